"""How long to wait after the n-th failure in a row: exponential, capped, with jitter. Pure.

Used by watches, the work queue and leader election; each keeps its own count of failures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

Random = Callable[[], float]
"""A source of numbers in [0, 1); tests pass their own."""

system_random: Random = random.random


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first` seconds after the first failure, then `factor` times more each time, never above `cap`.

    `jitter` is the share of each delay that is random: the delay lies in [(1 - jitter) * d, d], so the cap holds
    and many clients that failed together do not come back together.
    """

    first: float = 1.0
    cap: float = 420.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.cap and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise ValueError(f"back-off needs 0 < first <= cap, factor >= 1 and jitter in [0, 1], not {self}")

    def up_to(self, longest: float) -> Backoff:
        """The same, growing to `longest` seconds if that is more than its cap."""
        return replace(self, cap=longest) if longest > self.cap else self

    def delay(self, failures: int, draw: Random) -> float:
        """Seconds to wait after `failures` failures in a row; none after none."""
        if failures <= 0:
            return 0.0
        return self.ceiling(failures) * (1 - self.jitter * draw())

    def ceiling(self, failures: int) -> float:
        """The longest delay after `failures` failures in a row."""
        if self.factor == 1:
            return self.first
        doublings_to_cap = math.log(self.cap / self.first, self.factor)
        if failures - 1 >= doublings_to_cap:  # also keeps the power below from overflowing
            return self.cap
        return self.first * self.factor ** (failures - 1)
