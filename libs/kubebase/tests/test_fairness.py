"""Shared places: no share takes them all, and waiting shares take turns."""

from __future__ import annotations

import asyncio
import math

import pytest

from kubebase.fairness import FairLimit, FairSlots, FairTable


def _taken_by(share: str, shares: FairLimit) -> int:
    while shares.may_take(share):
        shares.take(share)
    return shares.held(share)


@pytest.mark.parametrize(
    ("places", "alone"),
    [
        pytest.param(1, 1, id="one place is for whoever comes"),
        pytest.param(5, 4, id="five"),
        pytest.param(64, 52, id="sixty-four"),
    ],
)
def test_one_share_alone_gets_nearly_everything(places: int, alone: int) -> None:
    assert _taken_by("greedy", FairLimit(places)) == alone


def test_there_is_always_room_for_a_share_that_comes_later() -> None:
    shares = FairLimit(64)
    _taken_by("first", shares)
    assert _taken_by("second", shares) >= 8
    assert _taken_by("third", shares) >= 1


def test_who_gives_back_may_take_again() -> None:
    shares = FairLimit(10)
    held = _taken_by("a", shares)
    shares.give_back("a", held)
    assert shares.taken == 0
    assert _taken_by("a", shares) == held


def test_several_places_are_taken_together_or_not_at_all() -> None:
    shares = FairLimit(100)
    shares.take("b")
    assert shares.may_take("a", 80)
    assert not shares.may_take("a", 90)


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiting_callers_are_served_in_turns() -> None:
    slots = FairSlots(1, greed=math.inf)
    served: list[str] = []

    async def work(share: str) -> None:
        await slots.acquire(share)
        served.append(share)
        await asyncio.sleep(0)
        slots.release(share)

    async with asyncio.TaskGroup() as group:
        for share in [*["flood"] * 5, "small", "other"]:
            group.create_task(work(share))
    assert served == ["flood", "flood", "small", "other", "flood", "flood", "flood"]


async def test_a_crowd_that_holds_its_places_leaves_some_to_others() -> None:
    slots = FairSlots(64)
    crowd = [asyncio.create_task(slots.acquire("crowd")) for _ in range(200)]
    await _settled()
    assert slots.taken == 52
    await asyncio.wait_for(slots.acquire("neighbour"), 1)
    for task in crowd:
        task.cancel()


async def test_whoever_leaves_while_it_waits_holds_nothing() -> None:
    slots = FairSlots(1)
    await slots.acquire("a")
    leaving = asyncio.create_task(slots.acquire("b"))
    await _settled()
    slots.release("a")  # hands the place to a caller that leaves at the same moment
    leaving.cancel()
    await asyncio.wait([leaving])
    await asyncio.wait_for(slots.acquire("c"), 1)
    assert slots.taken == 1
    assert slots.waiting() == 0


async def test_more_places_are_handed_out_at_once() -> None:
    slots = FairSlots(1)
    await slots.acquire("a")
    waiting = asyncio.create_task(slots.acquire("b"))
    await _settled()
    slots.resize(2)
    await asyncio.wait_for(waiting, 30)
    assert slots.taken == 2


async def test_a_caller_that_wants_several_places_waits_until_all_are_free() -> None:
    slots = FairSlots(5, greed=math.inf)
    await slots.acquire("a", 3)
    large = asyncio.create_task(slots.acquire("b", 3))
    await asyncio.wait_for(slots.acquire("c", 2), 1)
    slots.release("c", 2)
    await _settled()
    waited = not large.done()

    slots.release("a", 3)
    await asyncio.wait_for(large, 1)

    assert waited
    assert slots.taken == 3


async def test_a_caller_that_leaves_lets_the_smaller_ones_behind_it_pass() -> None:
    slots = FairSlots(4, greed=math.inf)
    await slots.acquire("other", 3)
    large = asyncio.create_task(slots.acquire("a", 4))
    small = asyncio.create_task(slots.acquire("a"))
    await _settled()

    large.cancel()

    await asyncio.wait_for(small, 1)
    assert slots.taken == 4


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_share_that_fills_a_table_displaces_its_own_entries() -> None:
    table: FairTable[str, str] = FairTable(10)
    table.put("shared", "shared", "core")
    forgotten = [each for number in range(100) for each in table.put(f"t{number}", f"t{number}", "tenant")]
    assert forgotten == [f"t{number}" for number in range(91)]
    assert table.get("shared") == "shared"
    assert len(table) == 10


def test_recently_used_entries_are_kept() -> None:
    table: FairTable[str, str] = FairTable(2)
    table.put("a", "a", "s")
    table.put("b", "b", "s")
    table.get("a")
    assert table.put("c", "c", "s") == ["b"]


def test_a_new_entry_is_never_the_one_that_goes() -> None:
    table: FairTable[str, str] = FairTable(2)
    for name in "abc":
        table.put(name, name, f"share of {name}")
    assert table.get("c") == "c"
    assert len(table) == 2
