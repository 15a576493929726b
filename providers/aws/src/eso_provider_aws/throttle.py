"""Hold calls back while a service limits them.

    async with throttle.turn():
        ...                        # raises RATE_LIMITED at once while the pause lasts

A service that limits is left alone for a pause that doubles with every limit that follows soon. Then one call goes
ahead alone; what comes meanwhile waits for its outcome. Each answer lets one more call run at a time, so the end of a
limit is no burst.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from eso_wire.errors import ErrorReason, ProviderError
from kuberun.clock import Clock
from kuberun.deadline import Deadline

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""After a limit that comes later than this after the last pause, pauses begin anew."""
FULL_WIDTH: Final = 32
"""So many calls at a time are as good as no bound."""
WAIT_SECONDS: Final = 10.0
"""How long a call waits for those that go ahead of it."""

_NO_ANSWER: Final = frozenset(
    {ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.BACKEND_ERROR}
)


class Throttle:
    """The calls of one identity to one service in one region."""

    def __init__(self, clock: Clock, subject: str) -> None:
        self._clock = clock
        self._subject = subject
        self._pause = 0.0
        self._until = float("-inf")
        self._round = 0
        self._width = FULL_WIDTH
        self._running = 0
        self._moved = asyncio.Event()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place; a RATE_LIMITED that leaves the block closes the gate."""
        await self._enter()
        begun = self._round
        try:
            yield
            self._widen(begun)
        except ProviderError as failed:
            if failed.reason is ErrorReason.RATE_LIMITED:
                self._limited(begun)
                failed.retry_after = max(failed.retry_after, self._left())
            elif failed.reason not in _NO_ANSWER:
                self._widen(begun)
            raise
        finally:
            self._running -= 1
            self._moved.set()
            self._moved = asyncio.Event()

    def noted(self, error: ProviderError) -> ProviderError:
        """Close the gate if one item of an answer met the limit, although the call succeeded."""
        if error.reason is ErrorReason.RATE_LIMITED:
            if self._left() == 0:
                self._limited(self._round)
            error.retry_after = max(error.retry_after, self._left())
        return error

    async def _enter(self) -> None:
        self._check()
        if self._is_full():
            try:
                async with Deadline(self._clock, WAIT_SECONDS):
                    while self._is_full():
                        await self._moved.wait()
                        self._check()
            except TimeoutError:
                raise self._refusal(FIRST_PAUSE) from None
        self._running += 1

    def _is_full(self) -> bool:
        return self._running >= self._width < FULL_WIDTH

    def _check(self) -> None:
        if (left := self._left()) > 0:
            raise self._refusal(left)

    def _left(self) -> float:
        return max(self._until - self._clock.monotonic(), 0.0)

    def _limited(self, begun: int) -> None:
        """Calls that began before the limit was noticed are not a second reason to wait."""
        if begun != self._round:
            return
        now = self._clock.monotonic()
        soon = now - self._until <= LONGEST_PAUSE
        self._round += 1
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if soon else FIRST_PAUSE
        self._until = now + self._pause
        self._width = 1

    def _widen(self, begun: int) -> None:
        if begun == self._round:
            self._width = min(self._width + 1, FULL_WIDTH)

    def _refusal(self, left: float) -> ProviderError:
        return ProviderError(
            ErrorReason.RATE_LIMITED, f"{self._subject} limits its calls; asked again later", retry_after=left
        )
