"""Limits how often an object is rewritten while another writer keeps changing it back.

The first few rewrites happen at once, which is enough to revert an edit. After that, one rewrite is allowed per
interval. A new wish is always written. `Allowance` decides by a bucket that the caller keeps. `Contention` keeps the
buckets of objects without a record; it holds only objects that were rewritten in the last minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from kubebase.clock import Clock
from kubebase.meta import ObjectKey

BURST: Final = 5
REFILL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """The rewrites that are left for one wish, counted at a time (monotonic)."""

    wish: object
    left: float
    at: float


class Allowance:
    """Allows `burst` rewrites of an object at once, then one every `refill` seconds."""

    def __init__(self, clock: Clock, *, burst: int = BURST, refill: float = REFILL_SECONDS) -> None:
        self._clock = clock
        self._burst = burst
        self._refill = refill

    def is_exhausted(self, bucket: Bucket | None, wish: object) -> bool:
        """Return whether the object was rewritten to this wish too often."""
        return bucket is not None and bucket.wish == wish and self._left(bucket) < 1

    def after_rewrite(self, bucket: Bucket | None, wish: object) -> Bucket:
        """Return the bucket after one more rewrite."""
        left = self._left(bucket) if bucket is not None and bucket.wish == wish else self._burst
        return Bucket(wish, left - 1, self._clock.monotonic())

    def is_full(self, bucket: Bucket) -> bool:
        """Return whether the bucket is full, which is the same as no bucket."""
        return self._left(bucket) >= self._burst

    def _left(self, bucket: Bucket) -> float:
        return min(self._burst, bucket.left + (self._clock.monotonic() - bucket.at) / self._refill)


class Contention:
    """Counts rewrites of objects of one kind: `burst` at once, then one every `refill` seconds."""

    def __init__(self, clock: Clock, *, burst: int = BURST, refill: float = REFILL_SECONDS) -> None:
        self._allowance = Allowance(clock, burst=burst, refill=refill)
        self._buckets: OrderedDict[ObjectKey, Bucket] = OrderedDict()

    def allows(self, key: ObjectKey, wish: object) -> bool:
        """Return whether the object may be rewritten to this wish now; if so, count the rewrite."""
        if self.exhausted(key, wish):
            return False
        self.count(key, wish)
        return True

    def exhausted(self, key: ObjectKey, wish: object) -> bool:
        """Return whether the object was rewritten to this wish too often."""
        return self._allowance.is_exhausted(self._buckets.get(key), wish)

    def count(self, key: ObjectKey, wish: object) -> None:
        """Count a rewrite."""
        bucket = self._allowance.after_rewrite(self._buckets.pop(key, None), wish)
        self._forget_rested()
        self._buckets[key] = bucket

    def _forget_rested(self) -> None:
        """Drop full buckets; the oldest rewrite comes first."""
        while self._buckets:
            key, bucket = next(iter(self._buckets.items()))
            if not self._allowance.is_full(bucket):
                return
            del self._buckets[key]
