"""Hold calls back while a service limits them.

    async with throttle.turn():
        ...                        # raises RATE_LIMITED at once while the pause lasts

A service that limits is left alone for a pause that doubles with every refusal. Then one call goes ahead alone; what
comes meanwhile waits for its outcome. Each call that succeeds lets one more run at a time, so the end of a limit is no
burst.
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
FULL_WIDTH: Final = 32
"""So many calls at a time are as good as no bound."""
WAIT_SECONDS: Final = 10.0
"""How long a call waits for those that go ahead of it."""


class Throttle:
    """The calls of one identity to one service in one region."""

    def __init__(self, clock: Clock, subject: str) -> None:
        self._clock = clock
        self._subject = subject
        self._pause = 0.0
        self._until = 0.0
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
        except ProviderError as failed:
            if failed.reason is ErrorReason.RATE_LIMITED:
                self._limited(begun)
                failed.retry_after = max(failed.retry_after, self._left())
            raise
        else:
            self._widen(begun)
        finally:
            self._running -= 1
            self._moved.set()
            self._moved = asyncio.Event()

    async def _enter(self) -> None:
        self._check()
        if self._running >= self._width < FULL_WIDTH:
            try:
                async with Deadline(self._clock, WAIT_SECONDS):
                    while self._running >= self._width:
                        await self._moved.wait()
                        self._check()
            except TimeoutError:
                raise self._refusal(FIRST_PAUSE) from None
        self._running += 1

    def _check(self) -> None:
        if (left := self._left()) > 0:
            raise self._refusal(left)

    def _left(self) -> float:
        return max(self._until - self._clock.monotonic(), 0.0)

    def _limited(self, begun: int) -> None:
        """Calls that began before the limit was noticed are not a second reason to wait."""
        if begun != self._round:
            return
        self._round += 1
        self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
        self._until = self._clock.monotonic() + self._pause
        self._width = 1

    def _widen(self, begun: int) -> None:
        if begun != self._round or self._width >= FULL_WIDTH:
            return
        self._width += 1
        if self._width >= FULL_WIDTH:
            self._pause = 0.0

    def _refusal(self, left: float) -> ProviderError:
        return ProviderError(
            ErrorReason.RATE_LIMITED, f"{self._subject} limits its calls; asked again later", retry_after=left
        )
