"""Whether the event loop goes on: a heartbeat that notes how late it came.

async with heartbeat() as heart:
    await something_that_must_not_block()
assert heart.worst_lag < 1.0
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kuberun.clock import Clock, SystemClock

_BEAT_SECONDS: Final = 0.005


@dataclass(slots=True)
class Heart:
    """`worst_lag` is the longest time, in seconds, for which the event loop did nothing else."""

    worst_lag: float = 0.0


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Heart]:
    """Beats beside the work in its body, in real time."""
    heart, clock = Heart(), SystemClock()
    beating = asyncio.create_task(_beat(heart, clock))
    try:
        yield heart
        await clock.sleep(_BEAT_SECONDS)  # what blocked until now has to be noticed
    finally:
        beating.cancel()


async def _beat(heart: Heart, clock: Clock) -> None:
    while True:
        begun = clock.monotonic()
        await clock.sleep(_BEAT_SECONDS)
        heart.worst_lag = max(heart.worst_lag, clock.monotonic() - begun - _BEAT_SECONDS)
