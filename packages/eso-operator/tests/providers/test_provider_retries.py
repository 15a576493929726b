"""R81, R113, R138: which calls are made again, when, and which not. In virtual time."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from eso_api.values import SecretBytes
from eso_operator.providers.errors import NoResponseError
from eso_operator.providers.limits import RetryPlan
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import bound_store, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from eso_wire.values import (
    CleanupRequest,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    GenerateRequest,
    Limits,
    PushBatch,
    PushItem,
    RemoteRef,
)
from kubebase.backoff import ExponentialBackoff

TWICE = CallPolicy(gated=False, max_retries=2, retry_interval=1.0)
PUSH = (PushItem("x", RemoteRef("x"), SecretBytes(b"pushed")),)
DELETE = (DeleteItem("x", RemoteRef("x")),)


def error(reason: ErrorReason, retry_after: float = 0.0) -> ProviderError:
    return ProviderError(reason, "as the test says", retry_after=retry_after)


@pytest.mark.parametrize(
    ("reason", "calls"),
    [
        pytest.param(ErrorReason.BACKEND_ERROR, 3, id="an error of the backend is worth a retry"),
        pytest.param(ErrorReason.INTERNAL, 3, id="an unhandled error too"),
        pytest.param(ErrorReason.BACKEND_TIMEOUT, 3, id="a slow backend too"),
        pytest.param(ErrorReason.CONFIG_INVALID, 1, id="a bad configuration stays bad"),
        pytest.param(ErrorReason.CREDENTIALS_REJECTED, 1, id="refused credentials stay refused"),
        pytest.param(ErrorReason.PERMISSION_DENIED, 1, id="permissions do not change within seconds"),
        pytest.param(ErrorReason.PRECONDITION_FAILED, 1, id="a failed precondition needs a new read"),
        pytest.param(ErrorReason.INVALID_REQUEST, 1, id="a bad request stays bad"),
    ],
)
async def test_reads_are_repeated_by_the_class_of_the_error(
    loop: LoopbackGateway, reason: ErrorReason, calls: int
) -> None:
    loop.provider.broken = error(reason)
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=TWICE), wanted("a")))

    await loop.clock.run_until_idle()

    assert isinstance(call.exception(), ProviderError)
    assert loop.provider.calls["GetSecrets"] == calls


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        pytest.param("get", 3, id="get"),
        pytest.param("find", 3, id="find"),
        pytest.param("check", 3, id="check"),
        pytest.param("validate", 3, id="validate"),
        pytest.param("push", 1, id="a push without a key is not"),
        pytest.param("push with key", 3, id="a push with an idempotency key"),
        pytest.param("delete", 1, id="a delete without a key is not"),
        pytest.param("delete with key", 3, id="a delete with an idempotency key"),
        pytest.param("generate", 1, id="a generation without a key is not"),
        pytest.param("generate with key", 3, id="a generation with an idempotency key"),
        pytest.param("cleanup", 3, id="cleaning up"),
    ],
)
async def test_only_calls_that_do_no_harm_are_repeated(loop: LoopbackGateway, operation: str, calls: int) -> None:
    loop.provider.broken = error(ErrorReason.BACKEND_ERROR)
    call = asyncio.create_task(_made(loop, operation))

    await loop.clock.run_until_idle()

    assert isinstance(call.exception(), ProviderError)
    assert loop.provider.calls.total() == calls


async def _made(loop: LoopbackGateway, operation: str) -> object:
    gateway, bound = loop.gateway, bound_store(policy=TWICE)
    match operation:
        case "get":
            return await gateway.get(bound, wanted("a"))
        case "find":
            return await gateway.find(bound, FindQuery())
        case "check":
            return await gateway.check(bound, wanted("a"))
        case "validate":
            return await gateway.validate(bound)
        case "push":
            return await gateway.push(bound, PushBatch(PUSH))
        case "push with key":
            return await gateway.push(bound, PushBatch(PUSH, idempotency_key="k"))
        case "delete":
            return await gateway.delete(bound, DeleteBatch(DELETE))
        case "delete with key":
            return await gateway.delete(bound, DeleteBatch(DELETE, idempotency_key="k"))
        case "generate":
            return await gateway.generate(bound, GenerateRequest())
        case "generate with key":
            return await gateway.generate(bound, GenerateRequest(idempotency_key="k"))
        case "cleanup":
            return await gateway.cleanup(bound, CleanupRequest(SecretBytes(b"{}")))
    raise AssertionError(operation)


async def test_a_call_succeeds_when_the_failure_passes(loop: LoopbackGateway) -> None:
    loop.provider.errors.extend([error(ErrorReason.BACKEND_ERROR), error(ErrorReason.BACKEND_ERROR)])
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=TWICE), wanted("a")))

    await loop.clock.run_until_idle()

    assert (await call)[0].outcome == SecretBytes(b"value-of-a")
    assert loop.clock.monotonic() == pytest.approx(3.0)  # one second, then two


@pytest.mark.parametrize(
    ("policy", "failures", "calls"),
    [
        pytest.param(CallPolicy(gated=True, max_retries=3, retry_interval=10.0), 3, 4, id="the design's own example"),
        pytest.param(CallPolicy(gated=True, max_retries=5, retry_interval=0.1), 5, 6, id="often and soon"),
        pytest.param(CallPolicy(gated=True, max_retries=1, retry_interval=0.1), 3, 2, id="once, and it was not enough"),
        pytest.param(CallPolicy(gated=True, max_retries=0, retry_interval=0.1), 1, 1, id="never"),
        pytest.param(CallPolicy(gated=True, max_retries=9, retry_interval=30.0), 9, 3, id="but not for minutes"),
    ],
)
async def test_a_store_gets_the_retries_it_asks_for(
    loop: LoopbackGateway, policy: CallPolicy, failures: int, calls: int
) -> None:
    """R81, R113: also when the budget of the identity is shut by them."""
    loop.provider.errors.extend(error(ErrorReason.BACKEND_UNAVAILABLE) for _ in range(failures))
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=policy), wanted("a")))

    await loop.clock.run_until_idle()

    assert loop.provider.calls["GetSecrets"] == calls
    assert (call.exception() is None) == (calls == failures + 1)


@pytest.mark.parametrize(
    ("reason", "calls"),
    [
        pytest.param(ErrorReason.BACKEND_UNAVAILABLE, 3, id="a backend that is down"),
        pytest.param(ErrorReason.RATE_LIMITED, 3, id="a throttled item"),
        pytest.param(ErrorReason.BACKEND_TIMEOUT, 3, id="a slow backend"),
        pytest.param(ErrorReason.BACKEND_ERROR, 1, id="not an answer that another call would get again"),
        pytest.param(ErrorReason.SECRET_NOT_FOUND, 1, id="not a missing key"),
        pytest.param(ErrorReason.PERMISSION_DENIED, 1, id="not a denied key"),
        pytest.param(ErrorReason.INTERNAL, 1, id="not a defect of the provider"),
    ],
)
async def test_items_are_repeated_by_the_class_of_their_error(
    loop: LoopbackGateway, reason: ErrorReason, calls: int
) -> None:
    loop.provider.item_errors["a"] = error(reason)
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=TWICE), wanted("a")))

    await loop.clock.run_until_idle()

    assert (await call)[0].outcome == error(reason)
    assert loop.provider.calls["GetSecrets"] == calls


async def test_an_item_gets_the_retries_of_its_store_and_no_other_item_is_asked_for_again(
    loop: LoopbackGateway,
) -> None:
    loop.provider.passing_item_errors["a"] = deque(error(ErrorReason.BACKEND_UNAVAILABLE) for _ in range(3))
    policy = CallPolicy(gated=True, max_retries=3, retry_interval=0.05)
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=policy), wanted("a", "b")))

    await loop.clock.run_until_idle()

    assert [each.outcome for each in await call] == [SecretBytes(b"value-of-a"), SecretBytes(b"value-of-b")]
    assert [[item.ref.key for item in asked] for asked in loop.provider.requests] == [["a", "b"], ["a"], ["a"], ["a"]]
    assert loop.clock.monotonic() == pytest.approx(0.05 + 0.1 + 0.2)


async def test_a_store_without_retries_gets_the_first_failure_of_an_item(loop: LoopbackGateway) -> None:
    loop.provider.passing_item_errors["a"] = deque([error(ErrorReason.BACKEND_UNAVAILABLE)])

    results = await loop.gateway.get(bound_store(policy=CallPolicy(gated=True, max_retries=0)), wanted("a"))

    assert results[0].outcome == error(ErrorReason.BACKEND_UNAVAILABLE)
    assert loop.provider.calls["GetSecrets"] == 1


@pytest.mark.parametrize(
    ("operation", "calls"),
    [
        pytest.param("check", 2, id="check"),
        pytest.param("push", 1, id="a push without a key is not"),
        pytest.param("push with key", 2, id="a push with an idempotency key"),
        pytest.param("delete", 1, id="a delete without a key is not"),
        pytest.param("delete with key", 2, id="a delete with an idempotency key"),
    ],
)
async def test_only_items_that_do_no_harm_are_repeated(loop: LoopbackGateway, operation: str, calls: int) -> None:
    loop.provider.passing_item_errors = {
        key: deque([error(ErrorReason.RATE_LIMITED, retry_after=2.0)]) for key in ("a", "x")
    }
    call = asyncio.create_task(_made(loop, operation))

    await loop.clock.run_until_idle()

    assert await call
    assert loop.provider.calls.total() == calls
    assert loop.clock.monotonic() == pytest.approx(2.0 if calls == 2 else 0.0)


async def test_an_item_that_asks_for_a_pause_beyond_the_deadline_is_not_repeated(loop: LoopbackGateway) -> None:
    loop.provider.item_errors["a"] = error(ErrorReason.RATE_LIMITED, retry_after=40.0)

    results = await loop.gateway.get(bound_store(policy=TWICE), wanted("a"))

    assert isinstance(results[0].outcome, ProviderError)
    assert loop.clock.monotonic() == 0.0


async def test_results_of_items_outlive_a_retry_that_fails_as_a_whole(loop: LoopbackGateway) -> None:
    loop.provider.item_errors["a"] = error(ErrorReason.BACKEND_UNAVAILABLE)
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=TWICE), wanted("a", "b")))
    await loop.clock.settle()

    loop.provider.broken = error(ErrorReason.CONFIG_INVALID)
    await loop.clock.run_until_idle()

    assert [each.outcome for each in await call] == [
        error(ErrorReason.BACKEND_UNAVAILABLE),
        SecretBytes(b"value-of-b"),
    ]
    assert loop.provider.calls["GetSecrets"] == 2


async def test_the_tries_of_one_call_do_not_add_up_to_a_long_rest(loop: LoopbackGateway) -> None:
    """The identity rests for two seconds after three failures, however many tries the call has left then."""
    policy = CallPolicy(gated=True, max_retries=8, retry_interval=0.001)
    loop.provider.errors.extend(error(ErrorReason.BACKEND_UNAVAILABLE) for _ in range(9))
    failing = asyncio.create_task(loop.gateway.get(bound_store(policy=policy), wanted("a")))
    await loop.clock.run_until_idle()

    with pytest.raises(ProviderError) as refused:
        await loop.gateway.get(bound_store(policy=policy), wanted("b"))

    assert isinstance(failing.exception(), ProviderError)
    assert 0 < refused.value.retry_after <= 2.0


async def test_no_try_takes_longer_than_one_call_may(loop: LoopbackGateway) -> None:
    loop.provider.hangs = True
    policy = CallPolicy(gated=True, max_retries=2, retry_interval=5.0, call_timeout=4.0)
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=policy), wanted("a")))
    await loop.clock.settle()

    await loop.clock.advance(4.0)
    loop.provider.hangs = False
    await loop.clock.run_until_idle()

    assert (await call)[0].outcome == SecretBytes(b"value-of-a")


async def test_the_pause_is_at_least_what_the_provider_asks_for(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(error(ErrorReason.RATE_LIMITED, retry_after=7.0))
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=TWICE), wanted("a")))

    await loop.clock.run_until_idle()

    assert (await call)[0].outcome == SecretBytes(b"value-of-a")
    assert loop.clock.monotonic() == pytest.approx(7.0)


async def test_no_retry_is_started_that_cannot_end_in_time(loop: LoopbackGateway) -> None:
    loop.provider.broken = error(ErrorReason.RATE_LIMITED, retry_after=31.0)

    with pytest.raises(ProviderError):
        await loop.gateway.get(bound_store(policy=CallPolicy(gated=False, max_retries=2)), wanted("a"))

    assert loop.clock.monotonic() == 0.0


@pytest.mark.parametrize(
    ("policy", "within", "seconds"),
    [
        pytest.param(CallPolicy(gated=False, call_timeout=4.0), None, 4.0, id="the policy's"),
        pytest.param(CallPolicy(gated=False), None, 30.0, id="without one, the operator's"),
        pytest.param(CallPolicy(gated=False, call_timeout=4.0), 2.0, 2.0, id="what the caller has left, if less"),
    ],
)
async def test_a_hanging_call_ends_at_the_deadline(
    loop: LoopbackGateway, policy: CallPolicy, within: float | None, seconds: float
) -> None:
    loop.provider.hangs = True
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=policy), wanted("a"), within=within))

    await loop.clock.run_until_idle()

    assert isinstance(call.exception(), NoResponseError)
    assert loop.clock.monotonic() == pytest.approx(seconds)


async def test_an_unreached_provider_is_tried_again(loop: LoopbackGateway) -> None:
    loop.down = TransportError("refused")
    call = asyncio.create_task(loop.gateway.get(bound_store(policy=TWICE), wanted("a")))
    await loop.clock.settle()

    loop.down = None
    await loop.clock.run_until_idle()

    assert (await call)[0].outcome == SecretBytes(b"value-of-a")


async def test_a_try_takes_no_longer_than_the_provider_allows(loop: LoopbackGateway) -> None:
    loop.provider.hangs = True
    bound = bound_store(policy=CallPolicy(gated=False, max_retries=0), limits=Limits(max_deadline=3.0))
    call = asyncio.create_task(loop.gateway.get(bound, wanted("a")))

    await loop.clock.run_until_idle()

    assert isinstance(call.exception(), NoResponseError)
    assert loop.clock.monotonic() == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("reason", "left", "again"),
    [
        pytest.param(ErrorReason.BACKEND_TIMEOUT, 0.9, False, id="not in the rest that a slow backend left"),
        pytest.param(ErrorReason.BACKEND_TIMEOUT, 5.0, True, id="with time left"),
        pytest.param(ErrorReason.BACKEND_ERROR, 0.9, True, id="after an error that came at once"),
    ],
)
def test_a_slow_backend_is_retried_only_if_enough_time_is_left(
    reason: ErrorReason, left: float, *, again: bool
) -> None:
    plan = RetryPlan(3, ExponentialBackoff(first=0.1, cap=0.1))

    assert (plan.pause(error(reason), 1, left=left, draw=lambda: 0.0) is not None) == again
