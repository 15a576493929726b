"""How long something that fails is tried before it is let go, so that it cannot hold an object for ever."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """Both must be over: so many attempts, and so much time."""

    attempts: int
    seconds: float

    def is_over(self, attempts: int, waited: float) -> bool:
        return attempts >= self.attempts and waited >= self.seconds
