"""Pauses calls while a service throttles them.

    async with throttle.slot():
        ...                        # raises RATE_LIMITED at once while the pause lasts

When a service throttles, calls pause; the pause doubles with each throttling response that follows soon. After the
pause, one call is sent alone, and the others wait for its outcome. Each success permits one more parallel call, so the
end of a pause causes no burst.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from eso_sdk.errors import throttled
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""If a throttling response comes later than this after the last pause, pauses start again from the shortest."""
FULL_WIDTH: Final = 32
"""With this many parallel calls there is practically no limit."""
WAIT_SECONDS: Final = 10.0
"""Seconds that a call waits for the calls ahead of it."""

_NO_RESPONSE: Final = frozenset(
    {ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.BACKEND_ERROR}
)


class Throttle:
    """The calls of one identity to one service in one region."""

    def __init__(self, clock: Clock, subject: str) -> None:
        self._clock = clock
        self._subject = subject
        self._pause = 0.0
        self._until = float("-inf")
        self._code = ""
        self._round = 0
        self._width = FULL_WIDTH
        self._running = 0
        self._moved = asyncio.Event()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a place; a RATE_LIMITED that leaves the block closes the gate."""
        await self._enter()
        begun = self._round
        try:
            yield
            self._widen(begun)
        except ProviderError as failed:
            if failed.reason is ErrorReason.RATE_LIMITED:
                self._limited(begun, failed)
                failed.retry_after = max(failed.retry_after, self._left())
            elif failed.reason not in _NO_RESPONSE:
                self._widen(begun)
            raise
        finally:
            self._running -= 1
            self._moved.set()
            self._moved = asyncio.Event()

    def noted(self, error: ProviderError) -> ProviderError:
        """Close the gate if one item of a response met the limit, although the call succeeded."""
        if error.reason is ErrorReason.RATE_LIMITED:
            if self._left() == 0:
                self._limited(self._round, error)
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

    def _limited(self, begun: int, limit: ProviderError) -> None:
        """Start or extend the pause, to what the service says at least.

        Calls that started before the throttling was noticed do not extend it.
        """
        if begun != self._round:
            return
        now = self._clock.monotonic()
        soon = now - self._until <= LONGEST_PAUSE
        self._round += 1
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if soon else FIRST_PAUSE
        self._until = now + max(self._pause, limit.retry_after)
        self._code = limit.backend_code
        self._width = 1

    def _widen(self, begun: int) -> None:
        if begun == self._round:
            self._width = min(self._width + 1, FULL_WIDTH)

    def _refusal(self, left: float) -> ProviderError:
        return throttled(left, backend_code=self._code, subject=self._subject)
