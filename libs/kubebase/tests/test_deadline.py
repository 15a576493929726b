"""Deadlines on a clock: which code is interrupted, and which is not."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kubebase.deadline import Deadline, happens_within
from kubebase.testing.clock import VirtualClock


async def test_a_body_that_takes_too_long_is_interrupted_at_the_deadline() -> None:
    clock = VirtualClock()
    ended: list[float] = []

    async def work() -> None:
        try:
            async with Deadline(clock, 5):
                await clock.sleep(60)
        except TimeoutError:
            ended.append(clock.monotonic())

    working = asyncio.ensure_future(work())
    await clock.advance(10)

    assert ended == [5]
    assert working.done()


async def test_a_body_that_is_quick_is_left_alone_and_leaves_nothing_behind() -> None:
    clock = VirtualClock()

    async with Deadline(clock, 5) as deadline:
        pass
    await clock.advance(10)

    assert not deadline.expired
    assert clock.sleepers == 0


async def test_a_changed_deadline_restarts_the_timer() -> None:
    clock = VirtualClock()
    deadline = Deadline(clock, 5)

    async def work() -> float:
        try:
            async with deadline:
                for _ in range(3):
                    await clock.sleep(4)
                    deadline.move(5)
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        return clock.monotonic()

    working = asyncio.ensure_future(work())
    await clock.advance(60)

    assert await working == 17


async def test_a_cancellation_from_outside_stays_a_cancellation() -> None:
    clock = VirtualClock()

    async def work() -> None:
        async with Deadline(clock, 5):
            await asyncio.Event().wait()

    working = asyncio.ensure_future(work())
    await clock.settle()

    working.cancel()

    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_time_out_inside_the_body_is_told_apart() -> None:
    deadline = Deadline(VirtualClock(), 5)

    with pytest.raises(TimeoutError, match="inner"):
        async with deadline:
            raise TimeoutError("inner")

    assert not deadline.expired


async def test_a_nested_deadline_ends_only_its_own_body() -> None:
    clock = VirtualClock()
    story: list[str] = []

    async def work() -> None:
        async with Deadline(clock, 10):
            try:
                async with Deadline(clock, 5):
                    await asyncio.Event().wait()
            except TimeoutError:
                story.append("inner")
            await clock.sleep(1)
            story.append("outer went on")

    working = asyncio.ensure_future(work())
    await clock.advance(20)

    await working
    assert story == ["inner", "outer went on"]


async def test_an_error_of_the_body_wins_over_a_deadline_that_expires_meanwhile() -> None:
    clock = VirtualClock()

    async def work() -> None:
        async with Deadline(clock, 5):
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("from the body")

    working = asyncio.ensure_future(work())
    await clock.advance(6)

    with pytest.raises(ValueError, match="from the body"):
        await working
    assert working.cancelling() == 0


@pytest.mark.parametrize(("when", "expected"), [(3, True), (8, False)], ids=["in time", "too late"])
async def test_happens_within(when: float, expected: bool) -> None:
    clock, event = VirtualClock(), asyncio.Event()
    waiting = asyncio.ensure_future(happens_within(clock, 5, event))

    await clock.advance(when)
    event.set()
    await clock.settle()

    assert await waiting is expected


async def test_a_deadline_is_freed_when_its_body_ends_and_not_by_the_garbage_collector() -> None:
    clock = VirtualClock()

    async def work() -> weakref.ref[Deadline]:
        deadline = Deadline(clock, 5)
        async with deadline:
            await asyncio.sleep(0)
        return weakref.ref(deadline)

    with collector_off():
        left = await work()
        await clock.advance(1)

        assert left() is None


@contextmanager
def collector_off() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
