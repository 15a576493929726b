"""Deadlines on a `Clock`: what `asyncio.timeout` is for the loop's own time, so that tests can turn the time.

A deadline can be moved while it runs, which is how a watch notices a connection that is open but silent.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from kuberun.clock import Clock


class Deadline:
    """`async with Deadline(clock, 5):` raises TimeoutError when the body is not done after five seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds
        self._expired = False

    def move(self, seconds: float) -> None:
        """Start counting anew: `seconds` from now. Cheap, so it may be called for every frame of a stream.

        The guard looks again only when the earlier time has come, so a deadline moves later, never closer.
        """
        self._at = self._clock.monotonic() + seconds

    @property
    def expired(self) -> bool:
        """Whether it was this deadline that ended the body, and not some other time-out inside."""
        return self._expired

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task to interrupt")
        self._cancelling = task.cancelling()
        self._task = task
        self._guard = asyncio.get_running_loop().create_task(self._expire())
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> None:
        # The guard is not awaited: a cancellation that arrived meanwhile would hit that await instead of the body.
        self._guard.cancel()
        if self._expired and self._task.uncancel() <= self._cancelling and exc_type is asyncio.CancelledError:
            raise TimeoutError from exc

    async def _expire(self) -> None:
        while (left := self._at - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        self._expired = True
        self._task.cancel()


async def happens_within(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Wait for the event, but not longer than that; says whether it happened."""
    try:
        async with Deadline(clock, seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
