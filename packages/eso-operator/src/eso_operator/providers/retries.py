"""Whether and when a failed call is made again. Pure.

Retries happen here and nowhere else: gRPC's own are for calls that never left. A call is repeated only if waiting can
help, if repeating it does no harm, and if there is time left for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from eso_operator.providers.errors import heals_by_itself
from eso_operator.providers.settings import CallSettings
from eso_operator.stores.target import CallPolicy
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.backoff import Backoff, Random

_LONGEST_PAUSE = 30.0
_SHORTEST_PAUSE = 0.001
_SHORTEST_TRY = 1.0
"""A provider says that its backend is too slow a little before our deadline: what is left then is not for a retry."""


class Repeat(Enum):
    """What a second try of a call does."""

    HARMLESS = auto()
    """Reads, and writes that carry an idempotency key."""
    HARMFUL = auto()


def repeat_of(idempotency_key: str) -> Repeat:
    """Writes may be repeated only where the provider can tell that it is the same one."""
    return Repeat.HARMLESS if idempotency_key else Repeat.HARMFUL


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """How often, and with which pauses."""

    max_retries: int
    pauses: Backoff
    granted: float = 0.0
    """Seconds that the pauses may take besides the time of the call, because the store asks for them."""

    @staticmethod
    def of(policy: CallPolicy, settings: CallSettings) -> RetryPlan:
        """What the store says, else what the operator is set to."""
        retries = settings.max_retries if policy.max_retries is None else policy.max_retries
        interval = settings.retry_interval if policy.retry_interval is None else policy.retry_interval
        first = max(interval, _SHORTEST_PAUSE)
        pauses = Backoff(first=first, cap=max(first, _LONGEST_PAUSE), jitter=0.5)
        asked = 0.0 if policy.retry_interval is None else _together(pauses, retries, settings.longest_pauses)
        return RetryPlan(max(retries, 0), pauses, asked)

    def pause(self, error: ProviderError, tries: int, *, left: float, draw: Random) -> float | None:
        """Seconds until the next try; None when there is none. `tries` were made, `left` seconds remain."""
        if tries > self.max_retries or not heals_by_itself(error):
            return None
        seconds = max(self.pauses.delay(tries, draw), error.retry_after)
        needed = seconds + (_SHORTEST_TRY if error.reason is ErrorReason.BACKEND_TIMEOUT else 0.0)
        return seconds if needed < left else None


def _together(pauses: Backoff, retries: int, longest: float) -> float:
    """All pauses of so many retries, as far as they are granted."""
    seconds = 0.0
    for number in range(1, retries + 1):
        seconds += pauses.ceiling(number)
        if seconds >= longest:
            return longest
    return seconds
