"""How long a failing operation is retried before it is abandoned, so that it cannot block an object forever."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """Both must be exceeded: the number of attempts, and the time."""

    attempts: int
    seconds: float

    def is_over(self, attempts: int, waited: float) -> bool:
        return attempts >= self.attempts and waited >= self.seconds
