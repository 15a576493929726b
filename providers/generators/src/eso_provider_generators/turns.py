"""Long work in threads: at most three at a time, and never all of them for one namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from kubebase.fairness import FairSlots

T = TypeVar("T")

_TURNS: Final = FairSlots(3, greed=1)


async def in_thread(namespace: str, make: Callable[[], T]) -> T:
    """Run `make` in a thread when it is the namespace's turn. It cannot be stopped, so its cost must be bounded."""
    async with _TURNS.slot(namespace):
        return await asyncio.to_thread(make)
