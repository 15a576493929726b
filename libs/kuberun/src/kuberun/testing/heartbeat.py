"""Detects a blocked event loop: a heartbeat that records how late it was.

async with heartbeat() as heart:
    await something_that_must_not_block()
assert heart.worst_lag < 1.0

Time in which this thread waited for a processor does not count: on a busy machine it says nothing about the loop. The
garbage collector leaves the objects alone that exist already: a test run has millions, which take a second to visit.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubebase.clock import Clock, SystemClock

_BEAT_SECONDS: Final = 0.005
_SCHEDULING: Final = Path("/proc/thread-self/schedstat")
"""Of this thread, on Linux, in nanoseconds: time on a processor, time of waiting for one, number of turns."""


@dataclass(slots=True)
class Heart:
    """`worst_lag` is the longest time, in seconds, for which the event loop was blocked."""

    worst_lag: float = 0.0


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Heart]:
    """Run a heartbeat in real time beside the body."""
    heart, clock = Heart(), SystemClock()
    with short_collections():
        beating = asyncio.create_task(_beat(heart, clock))
        try:
            yield heart
            await clock.sleep(_BEAT_SECONDS)  # a block that lasted until now must be recorded
        finally:
            beating.cancel()


@contextmanager
def short_collections() -> Iterator[None]:
    """Let the garbage collector visit only objects that are created in the body."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _beat(heart: Heart, clock: Clock) -> None:
    while True:
        begun, queued = clock.monotonic(), _queued_seconds()
        await clock.sleep(_BEAT_SECONDS)
        passed, lost = clock.monotonic() - begun, _queued_seconds() - queued
        heart.worst_lag = max(heart.worst_lag, passed - lost - _BEAT_SECONDS)


def _queued_seconds() -> float:
    """Return how long this thread has been ready to run but waited for a processor; 0.0 where no system tells."""
    try:
        return int(_SCHEDULING.read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        return 0.0
