"""Keeps us from fighting: a child that somebody else changes back again and again is not rewritten without end.

The first few rewrites go through at once, which is what reverting an edit needs. Then there is one for each minute.
What the parent asks for anew always goes through. Bounded by the children that were rewritten in the last minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eso_operator.fanout.description import Contents
from kuberun.clock import Clock
from kuberun.meta import ObjectKey

BURST: Final = 5
REFILL_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Bucket:
    contents: Contents
    left: float
    at: float


class Contention:
    """Counts rewrites of children."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[ObjectKey, _Bucket] = {}

    def allows(self, key: ObjectKey, contents: Contents) -> bool:
        """Whether the child may be rewritten now; a yes is counted."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None or bucket.contents != contents:
            self._forget_rested(now)
            bucket = self._buckets[key] = _Bucket(contents, BURST, now)
        left = _left(bucket, now)
        if left < 1:
            return False
        bucket.left, bucket.at = left - 1, now
        return True

    def _forget_rested(self, now: float) -> None:
        for key in [key for key, bucket in self._buckets.items() if _left(bucket, now) >= BURST]:
            del self._buckets[key]


def _left(bucket: _Bucket, now: float) -> float:
    return min(BURST, bucket.left + (now - bucket.at) / REFILL_SECONDS)
