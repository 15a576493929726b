"""Keeps us from fighting: an object that somebody else changes back again and again is not rewritten without end.

The first few rewrites go through at once, which is what reverting an edit needs. Then there is one at a time, after a
while. What is asked for anew always goes through. Bounded by the objects that were rewritten in the last minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from kuberun.clock import Clock
from kuberun.meta import ObjectKey

BURST: Final = 5
REFILL_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Bucket:
    wish: object
    left: float
    at: float


class Contention:
    """Counts rewrites of objects of one kind: `burst` at once, then one for each of `refill` seconds."""

    def __init__(self, clock: Clock, *, burst: int = BURST, refill: float = REFILL_SECONDS) -> None:
        self._clock = clock
        self._burst = burst
        self._refill = refill
        self._buckets: OrderedDict[ObjectKey, _Bucket] = OrderedDict()

    def allows(self, key: ObjectKey, wish: object) -> bool:
        """Whether the object may be rewritten now, to be as wished; a yes is counted."""
        if self.exhausted(key, wish):
            return False
        self.count(key, wish)
        return True

    def exhausted(self, key: ObjectKey, wish: object) -> bool:
        """Whether it was rewritten too often to be as wished."""
        bucket = self._buckets.get(key)
        return bucket is not None and bucket.wish == wish and self._left(bucket) < 1

    def count(self, key: ObjectKey, wish: object) -> None:
        """It was rewritten."""
        bucket = self._buckets.pop(key, None)
        left = self._left(bucket) if bucket is not None and bucket.wish == wish else self._burst
        self._forget_rested()
        self._buckets[key] = _Bucket(wish, left - 1, self._clock.monotonic())

    def _forget_rested(self) -> None:
        """The one that was rewritten longest ago is first."""
        while self._buckets:
            key, bucket = next(iter(self._buckets.items()))
            if self._left(bucket) < self._burst:
                return
            del self._buckets[key]

    def _left(self, bucket: _Bucket) -> float:
        return min(self._burst, bucket.left + (self._clock.monotonic() - bucket.at) / self._refill)
