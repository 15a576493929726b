"""The retry policy of failed calls. Pure.

gRPC itself retries only calls that the server has not seen. A call is retried only if waiting can
help, if a second call is safe, and if the deadline allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from eso_operator.providers.errors import heals_by_itself
from eso_operator.providers.settings import CallSettings
from eso_operator.stores.resolved import CallPolicy
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.backoff import ExponentialBackoff, Random

_LONGEST_PAUSE = 30.0
_SHORTEST_PAUSE = 0.001
_SHORTEST_TRY = 1.0
"""The time that must be left for a retry after a timeout. Providers report it shortly before our deadline."""


class Repeat(Enum):
    """Says whether a call may be repeated."""

    HARMLESS = auto()
    """Reads, and writes with an idempotency key."""
    HARMFUL = auto()


def repeat_of(idempotency_key: str) -> Repeat:
    """Return whether a write may be repeated: only with an idempotency key."""
    return Repeat.HARMLESS if idempotency_key else Repeat.HARMFUL


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """The number of retries and the pauses between them."""

    max_retries: int
    pauses: ExponentialBackoff
    granted: float = 0.0
    """Seconds that the pauses add to the deadline, if the store sets a retry interval."""

    @staticmethod
    def of(policy: CallPolicy, settings: CallSettings) -> RetryPlan:
        """Return the plan from the settings of the store, else of the operator."""
        retries = settings.max_retries if policy.max_retries is None else policy.max_retries
        interval = settings.retry_interval if policy.retry_interval is None else policy.retry_interval
        first = max(interval, _SHORTEST_PAUSE)
        pauses = ExponentialBackoff(first=first, cap=max(first, _LONGEST_PAUSE), jitter=0.5)
        asked = 0.0 if policy.retry_interval is None else _together(pauses, retries, settings.longest_pauses)
        return RetryPlan(max(retries, 0), pauses, asked)

    def pause(self, error: ProviderError, tries: int, *, left: float, draw: Random) -> float | None:
        """Return the seconds until the next try; None for no retry. `tries` were made, `left` seconds remain."""
        if tries > self.max_retries or not heals_by_itself(error):
            return None
        seconds = max(self.pauses.delay(tries, draw), error.retry_after)
        needed = seconds + (_SHORTEST_TRY if error.reason is ErrorReason.BACKEND_TIMEOUT else 0.0)
        return seconds if needed < left else None


def _together(pauses: ExponentialBackoff, retries: int, longest: float) -> float:
    """Return the sum of the pauses of all retries, at most `longest`."""
    seconds = 0.0
    for number in range(1, retries + 1):
        seconds += pauses.ceiling(number)
        if seconds >= longest:
            return longest
    return seconds
