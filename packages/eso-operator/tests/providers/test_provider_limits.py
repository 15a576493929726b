"""The number of parallel calls to an endpoint."""

from __future__ import annotations

import asyncio

import pytest

from eso_operator.providers.limits import InFlight
from eso_testkit.operator.boundstores import bound_store, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Limits
from kubebase.testing.clock import VirtualClock


async def hold(slots: InFlight, order: list[int], number: int, release: asyncio.Event) -> None:
    async with slots.slot(10.0):
        order.append(number)
        await release.wait()


async def test_slots_are_given_in_the_order_of_asking() -> None:
    clock, order, release = VirtualClock(), list[int](), asyncio.Event()
    slots = InFlight("p", clock, slots=2, max_waiting=10)
    tasks = [asyncio.create_task(hold(slots, order, number, release)) for number in range(6)]
    await clock.settle()
    first = list(order)

    release.set()
    await asyncio.gather(*tasks)

    assert first == [0, 1]
    assert order == [0, 1, 2, 3, 4, 5]
    assert slots.taken == 0


async def test_a_caller_that_leaves_passes_its_turn_on() -> None:
    clock, order, release = VirtualClock(), list[int](), asyncio.Event()
    slots = InFlight("p", clock, slots=1, max_waiting=10)
    tasks = [asyncio.create_task(hold(slots, order, number, release)) for number in range(3)]
    await clock.settle()

    release.set()
    await asyncio.sleep(0)  # the first is leaving and has handed its slot to the second
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert order[-1] == 2
    assert slots.taken == 0


async def test_waiting_ends_at_the_deadline_of_the_caller() -> None:
    clock, release = VirtualClock(), asyncio.Event()
    slots = InFlight("p", clock, slots=1, max_waiting=10)
    holder = asyncio.create_task(hold(slots, [], 0, release))
    await clock.settle()
    late = asyncio.create_task(hold(slots, [], 1, release))

    await clock.advance(10.0)

    error = late.exception()
    assert isinstance(error, ProviderError)
    assert error.reason is ErrorReason.BACKEND_TIMEOUT
    release.set()
    await holder


async def test_too_many_waiting_callers_are_refused() -> None:
    clock, release = VirtualClock(), asyncio.Event()
    slots = InFlight("p", clock, slots=1, max_waiting=2)
    tasks = [asyncio.create_task(hold(slots, [], number, release)) for number in range(3)]
    await clock.settle()

    with pytest.raises(ProviderError, match="2 calls already wait for provider p"):
        await hold(slots, [], 3, release)

    release.set()
    await asyncio.gather(*tasks)


async def test_a_higher_limit_lets_waiting_callers_go() -> None:
    clock, order, release = VirtualClock(), list[int](), asyncio.Event()
    slots = InFlight("p", clock, slots=1, max_waiting=10)
    tasks = [asyncio.create_task(hold(slots, order, number, release)) for number in range(3)]
    await clock.settle()

    slots.resize(3)
    await clock.settle()

    assert order == [0, 1, 2]
    release.set()
    await asyncio.gather(*tasks)


async def test_the_providers_limit_counts_if_it_is_lower(loop: LoopbackGateway) -> None:
    loop.provider.latency = 1.0
    bound = bound_store(limits=Limits(max_in_flight=3))
    reads = [asyncio.create_task(loop.gateway.get(bound, wanted("a"))) for _ in range(10)]

    await loop.clock.settle()
    at_once = loop.provider.calls["GetSecrets"]
    await loop.clock.run_until_idle()

    assert at_once == 3
    assert all(read.exception() is None for read in reads)


async def test_a_namespace_whose_calls_are_silent_leaves_slots_to_others() -> None:
    clock, silence = VirtualClock(), asyncio.Event()
    slots = InFlight("p", clock, slots=64, max_waiting=1000)
    through: list[str] = []

    async def call(namespace: str) -> None:
        async with slots.slot(100.0, namespace):
            through.append(namespace)
            if namespace == "silent":
                await silence.wait()

    tasks = [asyncio.create_task(call("silent")) for _ in range(500)]
    await clock.settle()
    await asyncio.wait_for(call("neighbour"), 1)

    assert through.count("silent") == 52
    silence.set()
    await asyncio.gather(*tasks)
    assert len(through) == 501
