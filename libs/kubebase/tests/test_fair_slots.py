"""Places shared by several users."""

from __future__ import annotations

import asyncio

import pytest

from kubebase.fairness import FairSlots


async def worked(slots: FairSlots, share: str, order: list[str]) -> None:
    async with slots.slot(share):
        order.append(share)
        await asyncio.sleep(0)


async def test_shares_take_turns() -> None:
    slots, order = FairSlots(1, greed=1), list[str]()

    async with asyncio.TaskGroup() as group:
        for share in ["a"] * 5 + ["b"] * 2 + ["c"]:
            group.create_task(worked(slots, share, order))

    assert order == ["a", "a", "b", "c", "a", "b", "a", "a"]


async def test_one_place_is_left_for_the_others() -> None:
    slots, entered = FairSlots(3, greed=1), list[str]()
    leave = asyncio.Event()

    async def hold(share: str) -> None:
        async with slots.slot(share):
            entered.append(share)
            await leave.wait()

    async with asyncio.TaskGroup() as group:
        for share in ("a", "a", "a", "b", "b"):
            group.create_task(hold(share))
        for _ in range(5):
            await asyncio.sleep(0)
        assert entered == ["a", "a", "b"]
        leave.set()

    assert sorted(entered) == ["a", "a", "a", "b", "b"]


@pytest.mark.parametrize("when", ["it waits", "it was just given a place"])
async def test_who_is_cancelled_takes_no_place(when: str) -> None:
    slots, order, leave = FairSlots(1, greed=1), list[str](), asyncio.Event()

    async def first() -> None:
        async with slots.slot("a"):
            await leave.wait()

    holder = asyncio.create_task(first())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(worked(slots, "b", order))
    await asyncio.sleep(0)
    if when == "it waits":
        waiting.cancel()
        leave.set()
        await holder
    else:
        leave.set()
        await holder
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    await worked(slots, "c", order)
    assert order[-1] == "c"
