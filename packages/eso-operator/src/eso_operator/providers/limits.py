"""How many calls one endpoint gets at once: the smaller of what the operator and the provider allow.

Namespaces take turns, and none takes the last slots (`kuberun/fairness.py`): what waits for one tenant's silent backend
does not hold up another one. Waiting is bounded twice: by the caller's deadline and by the number of those who wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eso_operator.providers.errors import overloaded
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.clock import Clock
from kuberun.deadline import Deadline
from kuberun.fairness import FairSlots, Shares


class InFlight:
    """The slots of one endpoint."""

    def __init__(self, label: str, clock: Clock, *, slots: int, max_waiting: int) -> None:
        self._label = label
        self._clock = clock
        self._slots = FairSlots(slots)
        self._waiting = Shares(max_waiting + slots)

    @property
    def taken(self) -> int:
        return self._slots.taken

    def resize(self, slots: int) -> None:
        """Another limit from now on; calls on their way are not touched."""
        self._slots.resize(slots)

    @asynccontextmanager
    async def slot(self, within: float, share: str = "") -> AsyncIterator[None]:
        """A slot for a call of that namespace."""
        if not self._waiting.may_take(share):
            raise overloaded(self._label, self._slots.waiting(share))
        self._waiting.take(share)
        try:
            await self._take(within, share)
            try:
                yield
            finally:
                self._slots.release(share)
        finally:
            self._waiting.give_back(share)

    async def _take(self, within: float, share: str) -> None:
        try:
            async with Deadline(self._clock, within):
                await self._slots.acquire(share)
        except TimeoutError:
            raise ProviderError(
                ErrorReason.BACKEND_TIMEOUT,
                f"provider {self._label} was busy: no call slot came free within {within:.1f} s",
            ) from None
