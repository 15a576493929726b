"""How many calls one endpoint gets at once: the smaller of what the operator and the provider allow, first come first.

Waiting is bounded twice: by the caller's deadline and by the number of those who wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eso_operator.providers.errors import overloaded
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.clock import Clock
from kuberun.deadline import Deadline


class InFlight:
    """The slots of one endpoint."""

    def __init__(self, label: str, clock: Clock, *, slots: int, max_waiting: int) -> None:
        self._label = label
        self._clock = clock
        self._slots = slots
        self._max_waiting = max_waiting
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        return self._taken

    def resize(self, slots: int) -> None:
        """Another limit from now on; calls on their way are not touched."""
        self._slots = max(slots, 1)
        self._hand_out()

    @asynccontextmanager
    async def slot(self, within: float) -> AsyncIterator[None]:
        await self._take(within)
        try:
            yield
        finally:
            self._taken -= 1
            self._hand_out()

    async def _take(self, within: float) -> None:
        if self._taken < self._slots and not self._waiting:
            self._taken += 1
            return
        if len(self._waiting) >= self._max_waiting:
            raise overloaded(self._label, len(self._waiting))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with Deadline(self._clock, within):
                await turn
        except BaseException as exc:
            self._give_back(turn)
            if isinstance(exc, TimeoutError):
                raise self._too_late(within) from None
            raise

    def _give_back(self, turn: asyncio.Future[None]) -> None:
        """The caller left; a slot that was handed to it in the same moment goes to the next."""
        if turn.done() and not turn.cancelled():
            self._taken -= 1
            self._hand_out()
        elif turn in self._waiting:
            self._waiting.remove(turn)

    def _hand_out(self) -> None:
        while self._waiting and self._taken < self._slots:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

    def _too_late(self, within: float) -> ProviderError:
        return ProviderError(
            ErrorReason.BACKEND_TIMEOUT,
            f"provider {self._label} was busy: no call slot came free within {within:.1f} s",
        )
