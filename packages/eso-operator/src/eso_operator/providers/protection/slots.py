"""Call slots: the most concurrent calls to one endpoint, the smaller of the limits of operator and provider.

Namespaces take turns, and none takes the last slots (`kubebase/fairness.py`), so that the silent backend of one tenant
does not block another. The deadline of the caller and the number of waiting callers bound the waiting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eso_operator.providers.errors import overloaded
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairLimit, FairSlots


class InFlight:
    """The slots of one endpoint."""

    def __init__(self, label: str, clock: Clock, *, slots: int, max_waiting: int) -> None:
        self.label = label
        self.slots = slots
        self._clock = clock
        self._slots = FairSlots(slots)
        self._waiting = FairLimit(max_waiting + slots)

    @property
    def taken(self) -> int:
        return self._slots.taken

    @property
    def queued(self) -> int:
        """The number of callers that wait for a slot."""
        return self._slots.waiting()

    def resize(self, slots: int) -> None:
        """Change the limit; running calls are not affected."""
        self.slots = slots
        self._slots.resize(slots)

    @asynccontextmanager
    async def slot(self, within: float, share: str = "") -> AsyncIterator[None]:
        """Hold a slot for a call of the namespace `share`. Raises ProviderError if none is free in time."""
        if not self._waiting.may_take(share):
            raise overloaded(self.label, self._slots.waiting(share))
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
                f"provider {self.label} was busy: no call slot came free within {within:.1f} s",
            ) from None
