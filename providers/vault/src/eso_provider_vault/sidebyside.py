"""Many requests of one operation, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 16


async def each(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return the results in the order of the items. The first failure cancels the rest and is raised."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def gated(item: T) -> R:
        async with gate:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gated(item)) for item in items]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
