"""A valve in front of something that broke: shut for a while, then one caller tries, and the others wait for him.

    open --shut()--> shut until T --first caller after T--> probing --success--> open
                          ^                                     |
                          +---------------- failure ------------+

While it is shut, callers get the error that shut it, at once; while the probe is on its way they wait for its outcome,
but not for long: a probe that nobody answers would keep all workers waiting with it. So a broken thing costs one call
however many want it. Used by the breaker (endpoints) and the budgets (identities).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from eso_operator.providers.errors import restated
from eso_wire.errors import ProviderError
from kuberun.clock import Clock
from kuberun.deadline import Deadline

PATIENCE: Final = 2.0
"""Seconds that others wait for a probe: one that succeeds seldom takes longer."""


class Admission(Enum):
    """How a caller got through."""

    OPEN = auto()
    PROBE = auto()
    """The caller tries for all: it has to report by `open`, `shut` or `abandon`."""


class Urgency(Enum):
    """Whether a caller may try before the time has come."""

    PATIENT = auto()
    NOW = auto()
    """For those who pace themselves, such as the validation of a store."""


@dataclass(slots=True)
class _Shut:
    error: ProviderError
    until: float


class Valve:
    """Open until shut."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shut: _Shut | None = None
        self._probe: asyncio.Event | None = None

    @property
    def is_open(self) -> bool:
        return self._shut is None

    @property
    def is_probing(self) -> bool:
        return self._probe is not None

    async def enter(self, within: float, urgency: Urgency = Urgency.PATIENT) -> Admission:
        """Pass, pass as the probe, or raise the error that shut it."""
        while self._shut is not None:
            if self._probe is not None:
                await self._outcome(self._probe, self._shut.error, min(within, PATIENCE))
            elif urgency is Urgency.NOW or self._clock.monotonic() >= self._shut.until:
                self._probe = asyncio.Event()
                return Admission.PROBE
            else:
                raise self._refusal(self._shut)
        return Admission.OPEN

    def open(self) -> None:
        """It works again."""
        self._shut = None
        self.abandon()

    def shut(self, error: ProviderError, seconds: float) -> None:
        """It does not work; the next may try after that time."""
        self._shut = _Shut(error, self._clock.monotonic() + seconds)
        self.abandon()

    def abandon(self) -> None:
        """The probe ended without telling anything, for example because its caller gave up: another may try."""
        if self._probe is not None:
            self._probe.set()
            self._probe = None

    async def _outcome(self, probe: asyncio.Event, error: ProviderError, within: float) -> None:
        try:
            async with Deadline(self._clock, within):
                await probe.wait()
        except TimeoutError:
            raise restated(error) from None

    def _refusal(self, shut: _Shut) -> ProviderError:
        return restated(shut.error, retry_after=max(shut.until - self._clock.monotonic(), shut.error.retry_after, 0.0))
