"""Writers that undo each other's work: the condition `Contended`, and limits for rewrites.

The first few rewrites happen at once, which is enough to revert an edit. After that, one rewrite is allowed per
interval. A new desired state is always written. `Allowance` decides by a bucket that the caller keeps. `Contention`
keeps the buckets of objects without a record; it holds only objects that were rewritten in the last minutes.

The condition names other objects of the reader's namespace only: who may read an object may not know what others have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from eso_api.common import CONTENDED
from eso_operator.controllers.base import Event, Report
from kubebase.clock import Clock
from kubebase.meta import Condition, ObjectKey
from kuberun.events import EventType
from kuberun.status import ConditionStatus, find_condition, remove_condition, same_verdict, set_condition

DIFFERENT_VALUES: Final = "DifferentValues"
FEEDS_ITSELF: Final = "FeedsItself"


class PushedKey(NamedTuple):
    """A remote key that a PushSecret has pushed a Secret to, and the number of the write that last changed it."""

    store: str
    """The key of the store in `status.syncedPushSecrets`."""
    remote_key: str
    by: ObjectKey
    written: int


OTHER_NAMESPACE: Final = "an object in another namespace"

BURST: Final = 5
REFILL_SECONDS: Final = 60.0
_MAX_TEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Bucket:
    """The rewrites that are left for one desired state, counted at a time (monotonic)."""

    desired: object
    left: float
    at: float


class Allowance:
    """Allows `burst` rewrites of an object at once, then one every `refill` seconds."""

    def __init__(self, clock: Clock, *, burst: int = BURST, refill: float = REFILL_SECONDS) -> None:
        self._clock = clock
        self._burst = burst
        self._refill = refill

    def is_exhausted(self, bucket: Bucket | None, desired: object) -> bool:
        """Return whether the object was rewritten to this desired state too often."""
        return bucket is not None and bucket.desired == desired and self._left(bucket) < 1

    def after_rewrite(self, bucket: Bucket | None, desired: object) -> Bucket:
        """Return the bucket after one more rewrite."""
        left = self._left(bucket) if bucket is not None and bucket.desired == desired else self._burst
        return Bucket(desired, left - 1, self._clock.monotonic())

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

    def allows(self, key: ObjectKey, desired: object) -> bool:
        """Return whether the object may be rewritten to this desired state now; if so, count the rewrite."""
        if self.exhausted(key, desired):
            return False
        self.count(key, desired)
        return True

    def exhausted(self, key: ObjectKey, desired: object) -> bool:
        """Return whether the object was rewritten to this desired state too often."""
        return self._allowance.is_exhausted(self._buckets.get(key), desired)

    def count(self, key: ObjectKey, desired: object) -> None:
        """Count a rewrite."""
        bucket = self._allowance.after_rewrite(self._buckets.pop(key, None), desired)
        self._forget_rested()
        self._buckets[key] = bucket

    def _forget_rested(self) -> None:
        """Drop full buckets; the oldest rewrite comes first."""
        while self._buckets:
            key, bucket = next(iter(self._buckets.items()))
            if not self._allowance.is_full(bucket):
                return
            del self._buckets[key]


@dataclass(frozen=True, slots=True)
class Contended:
    """The content of the condition."""

    reason: str
    message: str


NOT_CONTENDED: Final = Contended("", "")


def with_contention(report: Report, before: Sequence[Condition], found: Contended | None, now: datetime) -> Report:
    """Return the report with the correct condition, and with an event when the contention begins.

    `before` are the conditions of the object; None for `found` keeps them, because nothing is known. A report that
    changes nothing keeps its status.
    """
    if found is None:
        return report
    old = find_condition(before, CONTENDED)
    conditions, events = report.status.conditions, report.events
    if found is not NOT_CONTENDED:
        new = Condition(
            type=CONTENDED, status=ConditionStatus.TRUE, reason=found.reason, message=found.message[:_MAX_TEXT]
        )
        if same_verdict(old, new):
            return report
        conditions = set_condition(conditions, new, now)
        events = events if old is not None else (*events, Event(EventType.WARNING, CONTENDED, new.message))
    elif old is None:
        return report
    else:
        conditions = remove_condition(conditions, CONTENDED)
    status = msgspec.structs.replace(report.status, conditions=conditions)
    return replace(report, status=status, events=events, flush=True)


def named(kind: str, other: ObjectKey, namespace: str) -> str:
    """Return how a message to a reader in `namespace` names an object."""
    return f"{kind} {other.name}" if other.namespace == namespace else OTHER_NAMESPACE
