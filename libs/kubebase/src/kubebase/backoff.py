"""The delay after the n-th consecutive failure: exponential, capped, with jitter. Pure.

Watches, the work queue and leader election use it; each counts its own failures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

Random = Callable[[], float]
"""Returns numbers in [0, 1); tests pass their own."""

system_random: Random = random.random

_MAX_EXTRA: Final = 0.5
"""The random share that is added to a delay that a server names."""


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """`first` seconds after the first failure, then `factor` times more each time, never above `cap`.

    `jitter` is the random share of each delay: the delay lies in [(1 - jitter) * d, d]. So the cap holds, and clients
    that failed together do not retry together.
    """

    first: float = 1.0
    cap: float = 420.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.cap and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise ValueError(f"back-off needs 0 < first <= cap, factor >= 1 and jitter in [0, 1], not {self}")

    def up_to(self, longest: float) -> ExponentialBackoff:
        """Return this back-off with its cap raised to `longest` seconds if that is higher."""
        return _with_cap(self, longest) if longest > self.cap else self

    def delay(self, failures: int, draw: Random) -> float:
        """Return the seconds to wait after `failures` consecutive failures; 0 without failures."""
        if failures <= 0:
            return 0.0
        return self.ceiling(failures) * (1 - self.jitter * draw())

    def retry_delay(self, failures: int, draw: Random, retry_after: float) -> float:
        """Return the delay after a refusal with `retry_after` seconds: that delay, and at most half as long again.

        Without one (0), return the delay of the back-off.

        The delay that a server names does not grow with the failures. A server that starts refuses many times, each
        time with the delay that it needs. A growing back-off would outlast its start.
        """
        return retry_after * (1 + _MAX_EXTRA * draw()) if retry_after else self.delay(failures, draw)

    def ceiling(self, failures: int) -> float:
        """Return the longest delay after `failures` consecutive failures."""
        if self.factor == 1:
            return self.first
        doublings_to_cap = math.log(self.cap / self.first, self.factor)
        if failures - 1 >= doublings_to_cap:  # also keeps the power below from overflowing
            return self.cap
        return self.first * self.factor ** (failures - 1)


@lru_cache(maxsize=128)
def _with_cap(backoff: ExponentialBackoff, cap: float) -> ExponentialBackoff:
    """Return the back-off with another cap. Cached: most objects have the same interval."""
    return replace(backoff, cap=cap)
