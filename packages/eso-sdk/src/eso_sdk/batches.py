"""The items of one call, processed concurrently: each has its own outcome, also if some run out of time.

    side_by_side(items, work, late) -> result of each, in order; `late` makes the result of items that were abandoned
    require_results(outcomes)       -> raises if the backend returned none of them

A caller whose deadline has passed gets no response at all. So items end at the deadline of their call
(`Call.deadline`), which is before that of the caller: results up to then still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from eso_sdk.backend import CURRENT_CALL
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

T = TypeVar("T")
R = TypeVar("R")


class NoResultError(ProviderError):
    """The call ran out of time before the backend answered.

    The message does not contain the time limit: it differs between calls, and conditions would change with every retry.
    """

    def __init__(self) -> None:
        super().__init__(ErrorReason.BACKEND_TIMEOUT, "the backend did not answer in time")


async def side_by_side(
    items: Sequence[T],
    work: Callable[[T], Awaitable[R]],
    *,
    late: Callable[[T, NoResultError], R],
    gate: asyncio.Semaphore,
    clock: Clock,
) -> tuple[R, ...]:
    """Process every item in its own task, limited by the gate. Cancelling this cancels all of them."""
    if not items:
        return ()
    seconds = CURRENT_CALL.get().deadline - clock.monotonic()

    async def gated(item: T) -> R:
        async with gate:
            return await work(item)

    if len(items) == 1:  # most calls; no extra task needed
        try:
            async with Deadline(clock, seconds):
                return (await gated(items[0]),)
        except TimeoutError:
            return (late(items[0], NoResultError()),)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gated(item)) for item in items]
        try:
            async with Deadline(clock, seconds):
                await asyncio.wait(tasks)
        except TimeoutError:
            for task in tasks:
                task.cancel()
    results = zip(items, tasks, strict=True)
    return tuple(late(item, NoResultError()) if task.cancelled() else task.result() for item, task in results)


def require_results(outcomes: Sequence[object]) -> None:
    """Raise if no item was answered in time: then the backend hangs, and the whole call fails."""
    late = [outcome for outcome in outcomes if isinstance(outcome, NoResultError)]
    if late and len(late) == len(outcomes):
        raise late[0]
