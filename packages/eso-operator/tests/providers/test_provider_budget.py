"""After a backend rejects an identity, one probe retries, not all its users."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from eso_operator.providers.limits import MAX_BUDGETS, Admission, Budgets
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import bound_store, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_testkit.operator.scriptedprovider import Nonsense
from eso_wire import codec
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Validation, ValidationState
from kubebase.testing.clock import VirtualClock

ONCE = CallPolicy(gated=False, max_retries=0)


async def read(loop: LoopbackGateway, identity: str = "identity") -> object:
    results = await loop.gateway.get(bound_store(policy=ONCE, identity=identity), wanted("a"))
    return results[0].outcome


async def fail(loop: LoopbackGateway, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ProviderError):
            await read(loop)


@pytest.mark.parametrize(
    ("reason", "retry_after", "closed"),
    [
        pytest.param(ErrorReason.RATE_LIMITED, 40.0, 40.0, id="throttled: as long as the backend says"),
        pytest.param(ErrorReason.RATE_LIMITED, 0.0, 1.0, id="throttled without a time: a second"),
        pytest.param(ErrorReason.CREDENTIALS_REJECTED, 0.0, 15.0, id="refused credentials: slowly"),
        pytest.param(ErrorReason.CONFIG_INVALID, 0.0, 15.0, id="bad configuration: slowly"),
    ],
)
async def test_a_refused_identity_is_not_asked_again_before_its_time(
    loop: LoopbackGateway, reason: ErrorReason, retry_after: float, closed: float
) -> None:
    loop.provider.broken = ProviderError(reason, "no", retry_after=retry_after)

    await fail(loop, 100)
    await loop.clock.advance(closed - 0.1)
    await fail(loop, 100)
    before = loop.provider.calls["GetSecrets"]
    await loop.clock.advance(0.2)
    await fail(loop, 100)

    assert before == 1
    assert loop.provider.calls["GetSecrets"] == 2


async def test_other_identities_are_not_affected(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no"))
    await fail(loop, 1)

    assert not isinstance(await read(loop, identity="new credentials"), ProviderError)


async def test_users_of_a_recovered_identity_wait_for_the_probe_and_go_on(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no"))
    await fail(loop, 1)
    await loop.clock.advance(15.0)
    loop.provider.latency = 1.0

    reads = [asyncio.create_task(read(loop)) for _ in range(20)]
    await loop.clock.settle()
    probes = loop.provider.calls["GetSecrets"] - 1
    await loop.clock.run_until_idle()

    assert probes == 1
    assert all(not isinstance(each.result(), ProviderError) for each in reads)


async def test_users_do_not_wait_long_for_an_unanswered_probe(loop: LoopbackGateway) -> None:
    """Each of them holds a worker, which others need."""
    loop.provider.errors.append(ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no"))
    await fail(loop, 1)
    await loop.clock.advance(15.0)
    loop.provider.hangs = True

    reads = [asyncio.create_task(read(loop)) for _ in range(20)]
    await loop.clock.settle()
    await loop.clock.advance(2.0)
    await loop.clock.settle()
    waiting = [each for each in reads if not each.done()]
    refused = [each.exception() for each in reads if each.done()]
    await loop.clock.run_until_idle()

    assert len(waiting) == 1
    assert all(isinstance(each, ProviderError) and each.message == "no" for each in refused)
    assert isinstance(waiting[0].exception(), ProviderError)
    assert loop.provider.calls["GetSecrets"] == 2


async def test_validation_asks_at_once_and_its_success_opens_the_identity(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no"))
    await fail(loop, 3)

    await loop.gateway.validate(bound_store(policy=ONCE))
    outcome = await read(loop)

    assert not isinstance(outcome, ProviderError)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda loop, no: loop.provider.errors.append(no), id="as an error of the call"),
        pytest.param(lambda loop, no: setattr(loop.provider, "nonsense", _opinion(no)), id="as its verdict"),
    ],
)
@pytest.mark.parametrize(
    "reason",
    [ErrorReason.CREDENTIALS_REJECTED, ErrorReason.CONFIG_INVALID, ErrorReason.BACKEND_UNAVAILABLE],
    ids=str,
)
async def test_a_refused_validation_leaves_it_to_the_gate_whether_others_may_read(
    loop: LoopbackGateway, reason: ErrorReason, spoil: Callable[[LoopbackGateway, ProviderError], None]
) -> None:
    """R80, R112: under gatingPolicy Disabled a failed validation stops no reads."""
    for _ in range(3):
        spoil(loop, ProviderError(reason, "no"))
        with contextlib.suppress(ProviderError):
            await loop.gateway.validate(bound_store(policy=ONCE))
    loop.provider.nonsense = None

    assert not isinstance(await read(loop), ProviderError)


async def test_a_validation_that_is_refused_again_does_not_make_the_others_wait_longer(loop: LoopbackGateway) -> None:
    loop.provider.broken = ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no")
    await fail(loop, 1)
    await loop.clock.advance(14.0)
    with pytest.raises(ProviderError):
        await loop.gateway.validate(bound_store(policy=ONCE))
    loop.provider.broken = None
    await loop.clock.advance(1.0)

    assert not isinstance(await read(loop), ProviderError)


async def test_a_throttled_validation_closes_the_identity(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(ProviderError(ErrorReason.RATE_LIMITED, "slow down", retry_after=20.0))
    with pytest.raises(ProviderError):
        await loop.gateway.validate(bound_store(policy=ONCE))

    await fail(loop, 3)

    assert loop.provider.calls["GetSecrets"] == 0


def _opinion(error: ProviderError) -> Nonsense:
    answer = codec.to_validate_response(Validation(ValidationState.INVALID, error=error)).SerializeToString()
    return lambda method, _true: answer if "Validate" in method else None


async def test_a_provider_cannot_delay_retries_for_more_than_an_hour(loop: LoopbackGateway) -> None:
    loop.provider.errors.append(ProviderError(ErrorReason.RATE_LIMITED, "next year", retry_after=365 * 24 * 3600.0))

    with pytest.raises(ProviderError) as caught:
        await read(loop)
    await loop.clock.advance(3600.0)

    assert caught.value.retry_after == 3600.0
    assert not isinstance(await read(loop), ProviderError)


async def test_a_throttled_item_closes_the_identity_too(loop: LoopbackGateway) -> None:
    loop.provider.item_errors["a"] = ProviderError(ErrorReason.RATE_LIMITED, "slow down", retry_after=20.0)

    results = await loop.gateway.get(bound_store(policy=ONCE), wanted("a", "b"))
    with pytest.raises(ProviderError) as caught:
        await loop.gateway.get(bound_store(policy=ONCE), wanted("b"))

    assert isinstance(results[0].outcome, ProviderError)
    assert not isinstance(results[1].outcome, ProviderError)
    assert (caught.value.reason, caught.value.retry_after) == (ErrorReason.RATE_LIMITED, 20.0)


async def test_a_denied_item_says_nothing_about_the_identity(loop: LoopbackGateway) -> None:
    loop.provider.item_errors["a"] = ProviderError(ErrorReason.PERMISSION_DENIED, "not yours")

    await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))
    results = await loop.gateway.get(bound_store(policy=ONCE), wanted("b"))

    assert not isinstance(results[0].outcome, ProviderError)


async def test_a_backend_that_is_down_closes_after_three_failures(loop: LoopbackGateway) -> None:
    loop.provider.broken = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")

    await fail(loop, 50)

    assert loop.provider.calls["GetSecrets"] == 3
    assert loop.registry.get_sample_value("eso_provider_identities_in_trouble") == 1


async def test_users_that_wait_for_a_probe_go_on_when_their_identity_is_evicted() -> None:
    clock = VirtualClock()
    budgets = Budgets(clock)
    refused = ProviderError(ErrorReason.CREDENTIALS_REJECTED, "no", retry_after=10.0)
    budgets.failed("old", refused, Admission.OPEN)
    await clock.advance(10.0)
    probe = await budgets.enter("old", within=1.0)
    waiting = asyncio.create_task(budgets.enter("old", within=1.0))
    await clock.settle()

    for number in range(MAX_BUDGETS):
        budgets.failed(number, refused, Admission.OPEN)
    await clock.settle()

    assert probe is Admission.PROBE
    assert waiting.done()
    assert await waiting is Admission.OPEN
    assert budgets.failing == MAX_BUDGETS
