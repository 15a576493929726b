"""The work queue: which key is reconciled next, and when. No key runs twice at the same time.

    triggers -> add -> [timer] -> lane -> take -> (running) -> done

- A key is queued once, however often it is added. If it is added while it runs, it runs once more afterwards.
- Of several delays for a key the earliest wins. A run cancels every timer that was set before it started: the reconcile
  returns the next delay.
- **Lanes.** The best lane with work is served first; within a lane, namespaces take turns and the oldest request of
  each goes first. To prevent starvation, every eighth take serves the request that has waited longest in any lane. A
  flood in a better lane therefore slows the worse ones to an eighth, and a new object waits for at most one request of
  a worse lane.
- **Urgent requests.** A caller may take only requests of the first two lanes (`take_urgent`). The controller reserves
  some workers for them.
- **Limit.** The number of running keys is bounded, and no namespace may take the last slots (`fairness.py`): many
  keys that wait for a slow backend leave room for other namespaces.
- A key queued in two lanes has the better lane and the earlier start of its wait. The first few reasons are recorded.

The queue does not decide what a reconcile does. Use it from one event loop only. Every operation is O(log n).
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from kubebase.backoff import ExponentialBackoff, Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import happens_within
from kubebase.fairness import FairLimit
from kubebase.meta import ObjectKey

# --- A priority queue whose entries can be moved and removed: a heap that skips outdated entries ----------------------


K = TypeVar("K", bound=Hashable)


class LazyHeap(Generic[K]):
    """Each key at most once, ordered by time, then by arrival. Outdated entries never outnumber live ones for long."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._live: dict[K, tuple[float, int]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._live)

    def push(self, key: K, when: float) -> None:
        """Put the key at `when`, replacing its earlier position."""
        self._arrivals += 1
        self._live[key] = (when, self._arrivals)
        heapq.heappush(self._heap, (when, self._arrivals, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(at, arrival, live) for live, (at, arrival) in self._live.items()]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        self._live.pop(key, None)

    def when(self, key: K) -> float | None:
        entry = self._live.get(key)
        return None if entry is None else entry[0]

    def peek(self) -> tuple[float, K] | None:
        while self._heap:
            when, arrival, key = self._heap[0]
            if self._live.get(key) == (when, arrival):
                return when, key
            heapq.heappop(self._heap)
        return None

    def pop(self) -> tuple[float, K]:
        head = self.peek()
        if head is None:
            raise IndexError("pop from an empty heap")
        heapq.heappop(self._heap)
        del self._live[head[1]]
        return head


Admits = Callable[[ObjectKey], bool]


class Lane(IntEnum):
    """Why a key is queued; lower values are served first."""

    FIRST_SYNC = 0
    SPEC_CHANGE = 1
    EVENT = 2
    REFRESH = 3


URGENT = (Lane.FIRST_SYNC, Lane.SPEC_CHANGE)
"""The lanes of requests that a person waits for: a new object, or a changed spec."""

FAIR_SHARE = 8
"""Every eighth take serves the request that has waited longest, whatever its lane."""

MAX_RUNNING = 1024
"""Largest number of running keys, including parked ones."""

_REASONS = 200
"""Once the reasons of a request have this many characters, no further reason is recorded."""


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """A key to reconcile. Requests for the same key are equal: the reason serves the trace only."""

    key: ObjectKey
    reason: str = field(default="", compare=False)
    lane: Lane = field(default=Lane.EVENT, compare=False)


@dataclass(frozen=True, slots=True)
class QueueStats:
    depth: Mapping[Lane, int]
    delayed: int
    running: int
    oldest_age: float
    """Seconds for which the oldest waiting request has been due."""
    adds: int = 0
    """Requests since the start, including those for keys that were queued already."""
    retries: int = 0


class QueueClosedError(Exception):
    """The queue is closed and hands out no further requests."""


@dataclass(slots=True)
class _Waiting:
    request: ReconcileRequest
    since: float
    """When the key was first requested: the longest wait is served first."""
    requested: float
    """When the key was last requested: data read before then is too old for this run."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """Consecutive failures of a key, and the time set for its next attempt."""

    count: int
    until: float


class WorkQueue:
    def __init__(
        self,
        clock: Clock,
        *,
        backoff: ExponentialBackoff | None = None,
        draw: Random = system_random,
        max_running: int = MAX_RUNNING,
    ) -> None:
        self._clock = clock
        self._running_limit = FairLimit(max_running)
        self._backoff = backoff or ExponentialBackoff()
        self._draw = draw
        self._waiting: dict[ObjectKey, _Waiting] = {}
        self._lanes = {lane: FairLane() for lane in Lane}
        self._delayed: dict[ObjectKey, ReconcileRequest] = {}
        self._timers: LazyHeap[ObjectKey] = LazyHeap()
        self._running: dict[ObjectKey, float] = {}
        self._requested: dict[ObjectKey, float] = {}
        self._again: dict[ObjectKey, _Waiting] = {}
        self._failures: dict[ObjectKey, _Failures] = {}
        self._takes = 0
        self._taken_at = clock.monotonic()
        self._adds = 0
        self._retries = 0
        self._waited: Callable[[float], None] = _ignore
        self._worked: Callable[[float], None] = _ignore
        self._admits: Callable[[ObjectKey], bool] | None = None
        self._changed = asyncio.Event()
        self._closed = False

    def listen(self, waited: Callable[[float], None], worked: Callable[[float], None]) -> None:
        """Report for how many seconds each due request waited for a worker, and then ran. Listeners must not raise."""
        self._waited, self._worked = waited, worked

    def restrict(self, admits: Callable[[ObjectKey], bool]) -> None:
        """Ignore requests for keys that are not admitted, from now on."""
        self._admits = admits

    def drop(self, belongs: Callable[[ObjectKey], bool]) -> None:
        """Drop every waiting and delayed request for such keys. Running keys may finish."""
        for key in [key for key in self._waiting if belongs(key)]:
            self._lanes[self._waiting.pop(key).request.lane].discard(key)
        for key in [key for key in self._delayed if belongs(key)]:
            self._timers.discard(key)
            del self._delayed[key]
        for table in (self._again, self._failures):
            for key in [key for key in table if belongs(key)]:
                del table[key]

    def add(self, request: ReconcileRequest, *, after: float = 0.0) -> None:
        """Queue the request, at once or after `after` seconds. A closed queue ignores it."""
        if self._closed or not (self._admits is None or self._admits(request.key)):
            return
        self._adds += 1
        if after > 0:
            self._delay(request, self._clock.monotonic() + after)
        else:
            now = self._clock.monotonic()
            self._enqueue(_Waiting(request, now, now))
        self._changed.set()

    async def take(self) -> ReconcileRequest:
        """Wait for the next request and mark its key as running until `done`. Raises QueueClosedError once closed."""
        while True:
            await self.wait()
            if (request := self.take_now()) is not None:
                return request

    async def wait(self, lanes: Iterable[Lane] = Lane) -> None:
        """Wait until a request of these lanes can be taken. Raises QueueClosedError once closed."""
        while True:
            if self._closed:
                raise QueueClosedError
            self._wake_due()
            if not self._running_limit.is_full and any(self._lanes[lane].admits(self._may_run) for lane in lanes):
                return
            self._changed.clear()
            await self._wait()

    def take_now(self) -> ReconcileRequest | None:
        """Take the next request without waiting; None if no request is ready or the queue is closed."""
        self._wake_due()
        key = None if self._closed else self._next()
        return None if key is None else self._pop(key)

    def take_urgent(self) -> ReconcileRequest | None:
        """Take the next urgent request without waiting; None if none is ready or the queue is closed."""
        self._wake_due()
        key = None if self._closed else self._first_of(URGENT)
        return None if key is None else self._pop(key)

    def done(self, key: ObjectKey) -> None:
        """End the run of the key, and queue the requests that were added for it in the meantime."""
        started = self._running.pop(key)
        self._worked(self._clock.monotonic() - started)
        del self._requested[key]
        self._running_limit.give_back(key.namespace)
        if again := self._again.pop(key, None):
            self._enqueue(again)
        self._changed.set()

    def retry(self, request: ReconcileRequest, *, at_least: float = 0.0, longest: float = 0.0) -> float:
        """Queue the request again after the key's back-off, and return the delay in seconds.

        The back-off may grow up to `longest` if that is more than the queue's own cap.

        The request returns in the event lane at best, so that many failing new objects do not delay an object that was
        never tried. A failure before the scheduled retry does not count: however many events wake the key meanwhile,
        its back-off does not grow.
        """
        self._retries += 1
        now = self._clock.monotonic()
        known = self._failures.get(request.key)
        failures = 1 if known is None else known.count + (now >= known.until)
        delay = max(self._backoff.up_to(longest).delay(failures, self._draw), at_least)
        self._failures[request.key] = _Failures(failures, now + delay)
        self.add(ReconcileRequest(request.key, request.reason, max(request.lane, Lane.EVENT)), after=delay)
        return delay

    def forget(self, key: ObjectKey) -> None:
        """Reset the key's failures, so that its next back-off starts small."""
        self._failures.pop(key, None)

    def failures(self, key: ObjectKey) -> int:
        known = self._failures.get(key)
        return 0 if known is None else known.count

    def longest_wait(self, key: ObjectKey, *, longest: float = 0.0) -> float:
        """Return the longest delay until the key's next run if it fails now."""
        return self._backoff.up_to(longest).ceiling(self.failures(key) + 1)

    def close(self) -> None:
        """Hand out no further requests. Running keys may finish; waiting keys are dropped.

        The next start lists the dropped keys again.
        """
        self._closed = True
        self._changed.set()

    def stats(self) -> QueueStats:
        self._wake_due()
        heads = [head[0] for lane in self._lanes.values() if (head := lane.oldest()) is not None]
        return QueueStats(
            depth={lane: len(heap) for lane, heap in self._lanes.items()},
            delayed=len(self._delayed),
            running=len(self._running),
            oldest_age=self._clock.monotonic() - min(heads) if heads else 0.0,
            adds=self._adds,
            retries=self._retries,
        )

    def running(self) -> Mapping[ObjectKey, float]:
        """Return for each running key the seconds since it started."""
        now = self._clock.monotonic()
        return {key: now - started for key, started in self._running.items()}

    def requested_at(self, key: ObjectKey) -> float:
        """Return the monotonic time of the latest request for the running key: the run must not use older data."""
        return self._requested[key]

    @property
    def idle_seconds(self) -> float:
        """Return the seconds since a request was last taken."""
        return self._clock.monotonic() - self._taken_at

    @property
    def has_backlog(self) -> bool:
        """Return whether a due key waits for a worker."""
        return bool(self._waiting)

    def waiting(self) -> Mapping[ObjectKey, float]:
        """Return for each due key the seconds it has waited for a worker."""
        self._wake_due()
        now = self._clock.monotonic()
        return {key: now - waiting.since for key, waiting in self._waiting.items()}

    def _delay(self, request: ReconcileRequest, due: float) -> None:
        known = self._timers.when(request.key)
        if known is None or due < known:
            self._timers.push(request.key, due)
            self._delayed[request.key] = request
        else:
            self._delayed[request.key] = _both(self._delayed[request.key], request)

    def _wake_due(self) -> None:
        now = self._clock.monotonic()
        while (head := self._timers.peek()) is not None and head[0] <= now:
            due, key = self._timers.pop()
            self._enqueue(_Waiting(self._delayed.pop(key), due, due))

    def _enqueue(self, entry: _Waiting) -> None:
        key = entry.request.key
        if key in self._running:
            self._again[key] = _merged(self._again.get(key), entry)
            return
        known = self._waiting.get(key)
        merged = self._waiting[key] = _merged(known, entry)
        if known is not None:
            self._lanes[known.request.lane].discard(key)
        self._lanes[merged.request.lane].push(key, merged.since)

    def _next(self) -> ObjectKey | None:
        """Choose the next key; None if no waiting key may run."""
        if not self._waiting or self._running_limit.is_full:
            return None
        if (self._takes + 1) % FAIR_SHARE == 0:
            heads = [head for lane in self._lanes.values() if (head := lane.oldest()) is not None]
            _, oldest = min(heads, key=lambda head: head[0])  # on a tie the first wins, which is in the better lane
            if self._may_run(oldest):
                return oldest
        return self._first_of(Lane)

    def _first_of(self, lanes: Iterable[Lane]) -> ObjectKey | None:
        candidates = (self._lanes[lane].next(self._may_run) for lane in lanes)
        return next((key for key in candidates if key is not None), None)

    def _may_run(self, key: ObjectKey) -> bool:
        return self._running_limit.may_take(key.namespace)

    def _pop(self, key: ObjectKey) -> ReconcileRequest:
        self._takes += 1
        waiting = self._waiting.pop(key)
        self._lanes[waiting.request.lane].discard(key)
        self._running_limit.take(key.namespace)
        self._timers.discard(key)
        self._delayed.pop(key, None)
        now = self._taken_at = self._clock.monotonic()
        self._running[key] = now
        self._waited(now - waiting.since)
        self._requested[key] = waiting.requested
        return waiting.request

    async def _wait(self) -> None:
        head = self._timers.peek()
        if head is None:
            await self._changed.wait()
        else:
            await happens_within(self._clock, head[0] - self._clock.monotonic(), self._changed)


class FairLane:
    """One lane of the queue: namespaces alternate; within a namespace the oldest key goes first.

    However many keys of one namespace wait, a key of another namespace waits for at most one of them.
    """

    def __init__(self) -> None:
        self._oldest: LazyHeap[ObjectKey] = LazyHeap()
        self._namespaces: OrderedDict[str, LazyHeap[ObjectKey]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._oldest)

    def push(self, key: ObjectKey, since: float) -> None:
        self._oldest.push(key, since)
        self._namespaces.setdefault(key.namespace, LazyHeap()).push(key, since)

    def discard(self, key: ObjectKey) -> None:
        self._oldest.discard(key)
        if (queue := self._namespaces.get(key.namespace)) is not None:
            queue.discard(key)
            if not queue:
                del self._namespaces[key.namespace]

    def oldest(self) -> tuple[float, ObjectKey] | None:
        """Return the key that has waited longest, and since when."""
        return self._oldest.peek()

    def admits(self, admits: Admits) -> bool:
        """Return whether any waiting key may run."""
        heads = (queue.peek() for queue in self._namespaces.values())
        return any(head is not None and admits(head[1]) for head in heads)

    def next(self, admits: Admits) -> ObjectKey | None:
        """Return the next key that may run and move its namespace to the end; None if no key may run."""
        for namespace, queue in self._namespaces.items():
            head = queue.peek()
            if head is not None and admits(head[1]):
                self._namespaces.move_to_end(namespace)
                return head[1]
        return None


def phase(uid: str, interval: float) -> float:
    """Return the offset of this object in a period of `interval` seconds: in [0, interval), always the same."""
    digest = hashlib.blake2b(uid.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 * interval


def until_phase(uid: str, interval: float, now: float) -> float:
    """Return the seconds from `now` (Unix time) to this object's next slot, in (0, interval].

    The slots of all objects are spread evenly, and a restart does not move them.
    """
    return interval - (now - phase(uid, interval)) % interval


def _ignore(_: float) -> None:
    """Discard the report."""


def _merged(known: _Waiting | None, new: _Waiting) -> _Waiting:
    if known is None:
        return new
    return _Waiting(_both(known.request, new.request), min(known.since, new.since), max(known.requested, new.requested))


def _both(first: ReconcileRequest, second: ReconcileRequest) -> ReconcileRequest:
    """Merge two requests for a key: both reasons, the better lane."""
    reasons, new = first.reason, second.reason
    if new not in reasons and len(reasons) <= _REASONS:
        reasons = f"{reasons}; {new}" if reasons else new
    return ReconcileRequest(first.key, reasons, min(first.lane, second.lane))
