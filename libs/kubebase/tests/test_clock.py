"""Virtual time, on which the tests of every other module rely."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from kubebase.clock import Clock, SystemClock, parse_rfc3339, rfc3339
from kubebase.testing.clock import START, VirtualClock


async def test_time_stands_still_until_it_is_advanced() -> None:
    clock: Clock = VirtualClock()

    await SystemClock().sleep(0)

    assert clock.now() == START
    assert clock.monotonic() == 0


async def test_advancing_moves_both_clocks() -> None:
    clock = VirtualClock()

    await clock.advance(90)

    assert clock.now() == START + timedelta(seconds=90)
    assert clock.monotonic() == 90


async def test_sleepers_wake_in_order_of_their_time_and_then_of_their_start() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        seen.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in (("late", 3600.0), ("first", 1.0), ("second", 1.0)):
            tasks.create_task(sleeper(name, seconds))
        await clock.advance(7200)

    assert seen == [("first", 1.0), ("second", 1.0), ("late", 3600.0)]


async def test_a_sleep_started_on_the_way_counts_from_its_own_start() -> None:
    clock = VirtualClock()
    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(10)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(ticker())
    await clock.advance(35)
    task.cancel()

    assert ticks == [10, 20, 30]


async def test_woken_work_settles_before_the_next_sleeper_wakes() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    handed_over = asyncio.Event()

    async def early() -> None:
        await clock.sleep(1)
        handed_over.set()

    async def follower() -> None:
        await handed_over.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        seen.append("follower")

    async def late() -> None:
        await clock.sleep(1.5)
        seen.append("late")

    async with asyncio.TaskGroup() as tasks:
        for work in (late, follower, early):
            tasks.create_task(work())
        await clock.advance(2)

    assert seen == ["follower", "late"]


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.settle()

    task.cancel()
    await clock.advance(10)

    assert task.cancelled()
    assert clock.sleepers == 0


async def test_run_until_idle_passes_the_time_the_work_needs() -> None:
    clock = VirtualClock()

    async def work() -> str:
        for _ in range(24):
            await clock.sleep(3600)
        return "done"

    task = asyncio.create_task(work())
    await clock.run_until_idle()

    assert task.result() == "done"
    assert clock.monotonic() == 24 * 3600
    assert clock.next_wake_up() is None


async def test_a_task_that_spins_is_reported_instead_of_hanging() -> None:
    clock = VirtualClock()

    async def spin() -> None:
        while True:
            await clock.sleep(0)

    task = asyncio.create_task(spin())
    with pytest.raises(RuntimeError, match="does not settle"):
        await clock.settle()
    task.cancel()


def test_timestamps_are_utc_with_whole_seconds() -> None:
    moment = datetime(2030, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC)

    text = rfc3339(moment)

    assert text == "2030-01-01T12:00:00Z"
    assert parse_rfc3339(text) == moment.replace(microsecond=0)
