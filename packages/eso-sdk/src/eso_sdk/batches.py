"""The items of one call, side by side: each with an outcome of its own, also when time is up for some of them.

    side_by_side(items, work, late) -> result of each, in their order; `late` makes those of items that were given up
    answered(outcomes)              -> raises when there is none among them that the backend gave

A caller whose own deadline passes gets nothing at all. So items end at the deadline of their call (`Call.deadline`),
which is before that of the caller: what was read until then still arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from eso_sdk.backend import CURRENT_CALL
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.clock import Clock
from kuberun.deadline import Deadline

T = TypeVar("T")
R = TypeVar("R")


class NotAnsweredError(ProviderError):
    """The time of the call was over before the backend had answered.

    It does not say how much time that was: no two calls have the same, and conditions would change with every try.
    """

    def __init__(self) -> None:
        super().__init__(ErrorReason.BACKEND_TIMEOUT, "the backend did not answer in time")


async def side_by_side(
    items: Sequence[T],
    work: Callable[[T], Awaitable[R]],
    *,
    late: Callable[[T, NotAnsweredError], R],
    gate: asyncio.Semaphore,
    clock: Clock,
) -> tuple[R, ...]:
    """Every item in a task of its own, as many at a time as the gate lets through. Cancelling it cancels them all."""
    if not items:
        return ()
    seconds = CURRENT_CALL.get().deadline - clock.monotonic()

    async def gated(item: T) -> R:
        async with gate:
            return await work(item)

    if len(items) == 1:  # most calls: without a task of its own
        try:
            async with Deadline(clock, seconds):
                return (await gated(items[0]),)
        except TimeoutError:
            return (late(items[0], NotAnsweredError()),)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gated(item)) for item in items]
        try:
            async with Deadline(clock, seconds):
                await asyncio.wait(tasks)
        except TimeoutError:
            for task in tasks:
                task.cancel()
    results = zip(items, tasks, strict=True)
    return tuple(late(item, NotAnsweredError()) if task.cancelled() else task.result() for item, task in results)


def answered(outcomes: Sequence[object]) -> None:
    """A call of which nothing was answered in time fails as a whole: it is the backend that hangs, not an item."""
    late = [outcome for outcome in outcomes if isinstance(outcome, NotAnsweredError)]
    if late and len(late) == len(outcomes):
        raise late[0]
