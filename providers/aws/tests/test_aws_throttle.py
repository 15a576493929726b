"""Calls to a service that limits them: how long it is left alone, and how calls come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable

import pytest

from eso_provider_aws.provider import SecretsManager
from eso_provider_aws.testing.front import Front, StubResponse, refused
from eso_provider_aws.testing.front import RecordedRequest as Request
from eso_provider_aws.testing.sessions import context, read
from eso_sdk.rest import FULL_WIDTH, LONGEST_PAUSE, WAIT_SECONDS, Throttle
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.testing.clock import VirtualClock


def _limited() -> ProviderError:
    return ProviderError(ErrorReason.RATE_LIMITED, "limited")


class Service:
    """Takes a second for every call, and notes how many run at a time."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.throttle = Throttle(clock, "secretsmanager in eu-west-1")
        self.limits = False
        self.running = 0
        self.widest = 0
        self.calls = 0
        self.text: ProviderError | None = None

    async def call(self) -> None:
        async with self.throttle.slot():
            self.calls += 1
            self.running += 1
            self.widest = max(self.widest, self.running)
            try:
                await self.clock.sleep(1.0)
            finally:
                self.running -= 1
            if self.limits:
                raise _limited()
            if self.text is not None:
                raise self.text

    async def refused(self) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await self.over(self.call())
        return caught.value

    async def over(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.clock.advance(0.5)
        await task


@pytest.fixture
def service() -> Service:
    return Service(VirtualClock())


async def test_a_limited_service_is_left_alone_for_a_pause_that_doubles(service: Service) -> None:
    service.limits = True
    pauses = []
    for _ in range(9):
        error = await service.refused()
        pauses.append(error.retry_after)
        before = service.calls
        assert (await service.refused()).reason is ErrorReason.RATE_LIMITED
        assert service.calls == before
        await service.clock.advance(error.retry_after)

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_calls_that_meet_the_limit_together_are_one_reason_to_wait(service: Service) -> None:
    service.limits = True
    tasks = [asyncio.ensure_future(service.call()) for _ in range(100)]
    await service.clock.advance(1.0)

    errors = await asyncio.gather(*tasks, return_exceptions=True)

    assert {error.retry_after for error in errors if isinstance(error, ProviderError)} == {1.0}


async def test_after_a_pause_one_call_goes_ahead_and_the_others_follow_step_by_step(service: Service) -> None:
    service.limits = True
    await service.refused()
    service.limits, service.widest = False, 0
    await service.clock.advance(1.0)
    tasks = [asyncio.ensure_future(service.call()) for _ in range(200)]
    widths = []
    while not all(task.done() for task in tasks):
        await service.clock.settle()
        widths.append(service.running)
        await service.clock.advance(1.0)

    assert widths[:5] == [1, 2, 4, 8, 16]
    assert not any(task.exception() for task in tasks)
    assert service.calls == 201


async def test_a_probe_that_is_limited_closes_the_gate_for_all_that_wait(service: Service) -> None:
    service.limits = True
    await service.refused()
    await service.clock.advance(1.0)
    tasks = [asyncio.ensure_future(service.call()) for _ in range(50)]
    await service.clock.advance(1.0)

    errors = await asyncio.gather(*tasks, return_exceptions=True)

    assert service.calls == 2
    assert {error.retry_after for error in errors if isinstance(error, ProviderError)} == {2.0}


async def test_a_response_that_is_an_error_opens_the_gate_too(service: Service) -> None:
    service.limits = True
    await service.refused()
    service.limits = False
    service.text = ProviderError(ErrorReason.SECRET_NOT_FOUND, "absent")
    await service.clock.advance(1.0)
    for _ in range(FULL_WIDTH):
        await service.refused()
    tasks = [asyncio.ensure_future(service.call()) for _ in range(100)]
    await service.clock.settle()

    assert service.running == 100
    await service.clock.advance(1.0)
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_outage_does_not_open_the_gate(service: Service) -> None:
    service.limits = True
    await service.refused()
    service.limits = False
    service.text = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")
    await service.clock.advance(1.0)
    await service.refused()
    tasks = [asyncio.ensure_future(service.call()) for _ in range(3)]
    await service.clock.settle()

    assert service.running == 1
    await service.clock.advance(4.0)
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_limit_long_after_the_last_one_begins_with_the_first_pause(service: Service) -> None:
    service.limits = True
    for _ in range(5):
        await service.clock.advance((await service.refused()).retry_after)
    await service.clock.advance(LONGEST_PAUSE + 1)

    assert (await service.refused()).retry_after == 1.0


async def test_a_call_waits_only_so_long_for_those_ahead_of_it(service: Service) -> None:
    service.limits = True
    await service.refused()
    await service.clock.advance(1.0)

    async def stuck() -> None:
        async with service.throttle.slot():
            await asyncio.Event().wait()

    probe = asyncio.ensure_future(stuck())
    await service.clock.settle()
    waiting = asyncio.ensure_future(service.call())
    await service.clock.advance(WAIT_SECONDS)

    error = waiting.exception()
    assert isinstance(error, ProviderError)
    assert error.reason is ErrorReason.RATE_LIMITED
    probe.cancel()
    await asyncio.wait([probe])
    assert service.clock.sleepers == 0


async def test_a_cancelled_probe_gives_its_place_to_the_next_call(service: Service) -> None:
    service.limits = True
    await service.refused()
    service.limits = False
    await service.clock.advance(1.0)
    probe, cancelled, following = (asyncio.ensure_future(service.call()) for _ in range(3))
    await service.clock.settle()
    cancelled.cancel()
    probe.cancel()
    await service.clock.advance(1.0)

    await following
    assert service.running == 0


async def test_an_item_that_met_the_limit_closes_the_gate_once(service: Service) -> None:
    first, second = (service.throttle.noted(_limited()) for _ in range(2))

    assert (first.retry_after, second.retry_after) == (1.0, 1.0)
    assert (await service.refused()).retry_after == 1.0
    assert service.calls == 0


async def test_an_item_with_another_error_closes_nothing(service: Service) -> None:
    service.throttle.noted(ProviderError(ErrorReason.SECRET_NOT_FOUND, "absent"))

    await service.over(service.call())


# --- through the provider ---


async def test_reads_of_a_limited_service_make_one_call_and_say_when_to_come_again(
    front: Front, provider: InMemory
) -> None:
    front.respond("GetSecretValue", refused("ThrottlingException", "Rate exceeded"))
    for _ in range(5):
        (error,) = await read(provider, context(SecretsManager), "db")
        assert isinstance(error, ProviderError)
        assert error.reason is ErrorReason.RATE_LIMITED
        assert 0 < error.retry_after <= 1.0

    assert front.counts == {"GetSecretValue": 1}


async def test_a_limit_that_items_of_a_batch_met_holds_back_the_next_call(front: Front, provider: InMemory) -> None:
    def limited(request: Request) -> StubResponse:
        errors = [{"SecretId": name, "ErrorCode": "ThrottlingException"} for name in request.body["SecretIdList"]]
        return StubResponse(200, json.dumps({"SecretValues": [], "Errors": errors}).encode())

    front.respond("BatchGetSecretValue", limited)
    for _ in range(2):
        for error in await read(provider, context(SecretsManager), "a", "b"):
            assert isinstance(error, ProviderError)
            assert error.reason is ErrorReason.RATE_LIMITED
            assert error.retry_after > 0

    assert front.counts == {"BatchGetSecretValue": 1}
