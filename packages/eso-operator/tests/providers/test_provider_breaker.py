"""A provider process that does not answer is left alone for a while, and found again by one probe."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from eso_operator.providers.errors import NoResponseError
from eso_operator.providers.limits import MAX_BREAKERS, Admission, Breaker, BreakerKey, Breakers
from eso_operator.providers.settings import BreakerSettings
from eso_operator.stores.resolved import CallPolicy, SecretTls
from eso_testkit.operator.boundstores import TLS, bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from kubebase.backoff import ExponentialBackoff
from kubebase.testing.clock import VirtualClock

ONCE = CallPolicy(gated=False, max_retries=0)
THRESHOLD = BreakerSettings().threshold


async def fail(loop: LoopbackGateway, times: int, policy: CallPolicy = ONCE) -> None:
    for _ in range(times):
        with pytest.raises(ProviderError):
            await loop.gateway.get(bound_store(policy=policy), wanted("a"))


def calls_started(loop: LoopbackGateway) -> float:
    labels = {"method": "GetSecrets", "provider": "scripted"}
    return loop.registry.get_sample_value("eso_grpc_client_started_total", labels) or 0.0


def state(loop: LoopbackGateway) -> str:
    for name in ("closed", "open", "half-open"):
        if loop.registry.get_sample_value("eso_provider_breaker_state", {"provider": "scripted", "state": name}):
            return name
    return ""


async def test_after_some_failures_in_a_row_calls_are_refused_at_once(loop: LoopbackGateway) -> None:
    loop.down = TransportError("refused")

    await fail(loop, THRESHOLD + 20)

    assert calls_started(loop) == THRESHOLD
    assert state(loop) == "open"


async def test_the_state_that_is_shown_is_the_worst_of_the_providers_breakers(loop: LoopbackGateway) -> None:
    """Callers with their own timeouts have their own breaker: a working one says nothing about the others."""
    patient = replace(ONCE, call_timeout=7.0)
    loop.down = TransportError("refused")
    await fail(loop, THRESHOLD)
    loop.down = None

    await loop.gateway.get(bound_store(policy=patient), wanted("a"))
    meanwhile = state(loop)
    await loop.clock.advance(2.0)
    await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))

    assert meanwhile == "open"
    assert state(loop) == "closed"


def test_breakers_are_bounded_and_one_that_is_forgotten_is_no_longer_the_worst() -> None:
    breakers = Breakers(VirtualClock(), replace(BreakerSettings(), threshold=1))
    breakers.of("down", BreakerKey("first", None, None)).failed(TransportError("refused"), Admission.OPEN)
    before = breakers.worst("down")

    for number in range(MAX_BREAKERS):
        breakers.of("up", BreakerKey(str(number), None, None))

    assert (before, breakers.worst("down"), breakers.worst("up")) == ("open", "closed", "closed")


async def test_the_refusal_says_what_went_wrong_and_when_to_come_again(loop: LoopbackGateway) -> None:
    loop.down = TransportError("refused by a test")
    await fail(loop, THRESHOLD)

    with pytest.raises(TransportError, match="refused by a test") as caught:
        await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))

    assert caught.value.retry_after > 0


async def test_after_the_rest_one_probe_goes_out_and_the_others_wait_for_it(loop: LoopbackGateway) -> None:
    loop.down = TransportError("refused")
    await fail(loop, THRESHOLD)
    await loop.clock.advance(2.0)
    loop.down = None
    loop.provider.latency = 1.0

    reads = [asyncio.create_task(loop.gateway.get(bound_store(policy=ONCE), wanted("a"))) for _ in range(10)]
    await loop.clock.settle()
    during = calls_started(loop) - THRESHOLD
    await loop.clock.run_until_idle()

    assert during == 1
    assert all(read.exception() is None for read in reads)
    assert state(loop) == "closed"


@pytest.mark.parametrize(
    "policy", [pytest.param(ONCE, id="as usual"), pytest.param(replace(ONCE, call_timeout=7.0), id="own timeouts")]
)
async def test_a_handshake_is_made_while_others_are_refused_and_opens_for_them(
    loop: LoopbackGateway, policy: CallPolicy
) -> None:
    """A provider that is back is found at the pace of the directory, however long the others' rest has become."""
    loop.down = TransportError("refused")
    await fail(loop, THRESHOLD, policy)
    knock = asyncio.create_task(loop.gateway.handshake(endpoint(), TLS))
    await fail(loop, 5, policy)
    await loop.clock.run_until_idle()
    refused = calls_started(loop)
    loop.down = None

    await loop.gateway.handshake(endpoint(), TLS)
    results = await loop.gateway.get(bound_store(policy=policy), wanted("a"))

    assert isinstance(knock.exception(), TransportError)
    assert refused == THRESHOLD
    assert not isinstance(results[0].outcome, ProviderError)


async def test_a_failed_probe_makes_the_rest_longer(loop: LoopbackGateway) -> None:
    loop.down = TransportError("refused")
    await fail(loop, THRESHOLD)

    await loop.clock.advance(2.0)
    await fail(loop, 5)
    await loop.clock.advance(2.0)
    await fail(loop, 5)
    between = calls_started(loop)
    await loop.clock.advance(2.0)
    await fail(loop, 5)

    assert between == THRESHOLD + 1
    assert calls_started(loop) == THRESHOLD + 2


async def test_a_probe_whose_caller_leaves_makes_room_for_another(loop: LoopbackGateway) -> None:
    loop.down = TransportError("refused")
    await fail(loop, THRESHOLD)
    await loop.clock.advance(2.0)
    loop.down, loop.provider.hangs = None, True
    probe = asyncio.create_task(loop.gateway.get(bound_store(policy=ONCE), wanted("a")))
    await loop.clock.settle()

    loop.provider.hangs = False
    next_one = asyncio.create_task(loop.gateway.get(bound_store(policy=ONCE), wanted("a")))
    await loop.clock.settle()
    waited = not next_one.done()
    probe.cancel()
    await next_one

    assert waited


@pytest.mark.parametrize("reason", [reason for reason in ErrorReason if reason is not ErrorReason.UNSPECIFIED])
async def test_errors_that_a_provider_answers_never_count(reason: ErrorReason) -> None:
    breaker = Breaker(VirtualClock(), BreakerSettings(threshold=2))

    for _ in range(10):
        breaker.failed(ProviderError(reason, "answered"), Admission.OPEN)

    assert breaker.state == "closed"


@pytest.mark.parametrize(
    "failure", [TransportError("refused"), NoResponseError("silent")], ids=["not reached", "silent"]
)
async def test_failures_to_answer_count(failure: ProviderError) -> None:
    breaker = Breaker(VirtualClock(), BreakerSettings(threshold=2))

    for _ in range(2):
        breaker.failed(failure, Admission.OPEN)

    assert breaker.state == "open"


async def test_many_calls_that_fail_together_count_as_one_outage() -> None:
    clock = VirtualClock()
    breaker = Breaker(clock, BreakerSettings(threshold=2, rest=ExponentialBackoff(first=2, cap=100)), lambda: 0.0)

    for _ in range(50):
        breaker.failed(TransportError("refused"), Admission.OPEN)
    await clock.advance(2.0)

    assert await breaker.enter(1.0) is Admission.PROBE


async def test_one_users_bad_certificates_do_not_lock_out_another(loop: LoopbackGateway) -> None:
    loop.down = TransportError("handshake failed")
    await fail(loop, THRESHOLD)
    loop.down = None

    results = await loop.gateway.get(bound_store(policy=ONCE, tls=SecretTls("other", "own")), wanted("a"))

    assert not isinstance(results[0].outcome, ProviderError)


async def test_a_timeout_that_is_too_short_does_not_lock_out_the_others(loop: LoopbackGateway) -> None:
    """One tenant's store may set `timeouts: {call: 1ms}`; the provider stays available to all others."""
    hasty = CallPolicy(gated=False, max_retries=0, call_timeout=0.001)
    loop.provider.latency = 0.1
    for number in range(2 * THRESHOLD):
        call = asyncio.create_task(loop.gateway.get(bound_store(policy=hasty, identity=str(number)), wanted("a")))
        await loop.clock.run_until_idle()
        assert isinstance(call.exception(), ProviderError)
    refused = loop.provider.calls["GetSecrets"]

    patient = asyncio.create_task(loop.gateway.get(bound_store(policy=ONCE), wanted("a")))
    await loop.clock.run_until_idle()

    assert refused == THRESHOLD
    assert not isinstance(patient.result()[0].outcome, ProviderError)


async def test_a_backend_that_is_silent_locks_out_its_own_users_only(loop: LoopbackGateway) -> None:
    """A tenant's server may never respond; the provider and our workers stay available to all others."""
    loop.provider.hangs = True
    for _ in range(2 * THRESHOLD):
        call = asyncio.create_task(loop.gateway.get(bound_store(policy=ONCE, identity="tar pit"), wanted("a")))
        await loop.clock.settle()
        await loop.clock.advance(30.0 if not call.done() else 0.0)
        await loop.clock.settle()
        assert isinstance(call.exception(), ProviderError)
    asked = loop.provider.calls["GetSecrets"]
    loop.provider.hangs = False

    results = await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))

    assert asked < 2 * THRESHOLD
    assert not isinstance(results[0].outcome, ProviderError)


async def test_a_provider_that_is_silent_to_many_is_left_alone(loop: LoopbackGateway) -> None:
    loop.provider.hangs = True
    for number in range(THRESHOLD):
        call = asyncio.create_task(loop.gateway.get(bound_store(policy=ONCE, identity=str(number)), wanted("a")))
        await loop.clock.settle()
        await loop.clock.advance(30.0)
        await loop.clock.settle()
        assert isinstance(call.exception(), NoResponseError)

    with pytest.raises(NoResponseError):
        await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))

    assert loop.provider.calls["GetSecrets"] == THRESHOLD
    assert state(loop) == "open"


async def test_no_store_can_have_a_call_hang_for_days(loop: LoopbackGateway) -> None:
    bound = bound_store(policy=CallPolicy(gated=False, max_retries=0, call_timeout=7 * 24 * 3600.0))
    loop.provider.hangs = True

    call = asyncio.create_task(loop.gateway.get(bound, wanted("a")))
    await loop.clock.settle()
    await loop.clock.advance(300.0)
    await loop.clock.settle()

    assert isinstance(call.exception(), NoResponseError)
