"""A valve in front of a failing resource: shut for a while, then one caller probes it, and the others wait.

    open --shut()--> shut until T --first caller after T--> probing --success--> open
                          ^                                     |
                          +---------------- failure ------------+

While the valve is shut, callers get the error that shut it at once. While a probe runs, they wait for its result up to
`PATIENCE`, so that an unanswered probe does not hold all workers. A broken resource thus costs one call, however many
callers there are. Breakers (connections) and budgets (identities) use it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from eso_operator.providers.errors import restated
from eso_wire.errors import ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline

PATIENCE: Final = 2.0
"""Seconds that other callers wait for a probe; a successful one seldom takes longer."""


class Admission(Enum):
    """The way in which a caller was admitted."""

    OPEN = auto()
    PROBE = auto()
    """The caller is the probe: it must report with `open`, `shut` or `abandon`."""


class Urgency(Enum):
    """Says whether a caller may probe before the valve is due."""

    PATIENT = auto()
    NOW = auto()
    """For callers with their own interval, such as the validation of a store."""


@dataclass(slots=True)
class _Shut:
    error: ProviderError
    until: float


class Valve:
    """A valve, which starts open."""

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
        """Admit the caller, admit it as the probe, or raise the error that shut the valve."""
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
        """Open the valve: the resource works."""
        self._shut = None
        self.abandon()

    def shut(self, error: ProviderError, seconds: float) -> None:
        """Shut the valve: the resource fails, and the next probe may go after this time."""
        # A copy: the traceback of an error refers to everything that its callers held.
        self._shut = _Shut(restated(error), self._clock.monotonic() + seconds)
        self.abandon()

    def abandon(self) -> None:
        """End the probe without a result, for example after a cancellation; another caller may probe."""
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
