"""Work that takes long, in a thread: at most three at a time, and never all of them for one namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from kuberun.fairness import FairSlots

T = TypeVar("T")

_TURNS: Final = FairSlots(3, greed=1)


async def in_thread(namespace: str, make: Callable[[], T]) -> T:
    """What `make` makes, when it is the namespace's turn. It cannot be stopped: what it takes is bounded beforehand."""
    async with _TURNS.turn(namespace):
        return await asyncio.to_thread(make)
