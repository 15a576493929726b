"""Deadlines on a `Clock`: like `asyncio.timeout`, but on a clock that tests can advance.

A running deadline can be moved. A watch uses this to detect a connection that is open but silent.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from kubebase.clock import Clock


class Deadline:
    """`async with Deadline(clock, 5):` raises TimeoutError if the body takes longer than five seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds
        self._expired = False

    def move(self, seconds: float) -> None:
        """Restart the deadline: `seconds` from now. Cheap enough for every frame of a stream.

        The timer checks again only at the earlier time, so a deadline can move later, never earlier.
        """
        self._at = self._clock.monotonic() + seconds

    @property
    def expired(self) -> bool:
        """Return whether this deadline ended the body, and not another timeout inside it."""
        return self._expired

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task to interrupt")
        self._cancelling = task.cancelling()
        self._task = task
        self._timer = self._clock.call_later(self._at - self._clock.monotonic(), self._expire)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> None:
        self._timer.cancel()
        del self._timer  # its callback refers to this object: a cycle that only the garbage collector would free
        if self._expired and self._task.uncancel() <= self._cancelling and exc_type is asyncio.CancelledError:
            raise TimeoutError from exc

    def _expire(self) -> None:
        left = self._at - self._clock.monotonic()
        if left > 0:
            self._timer = self._clock.call_later(left, self._expire)
            return
        self._expired = True
        self._task.cancel()


async def happens_within(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Wait for the event for at most that many seconds; return whether it happened."""
    try:
        async with Deadline(clock, seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
