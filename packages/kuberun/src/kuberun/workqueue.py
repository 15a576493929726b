"""The work queue: which key is reconciled next, and when. No key runs twice at the same time.

    triggers -> add -> [timer] -> lane -> take -> (running) -> done

- A key is queued once, whatever the number of adds; an add while it runs makes it run once more afterwards.
- Of several delays for a key the earliest wins. A run answers every timer set before it started: a reconcile
  returns what it still waits for.
- **Lanes.** The best lane that has work is served, its namespaces in turns, oldest first within each. So that no lane
  starves, every eighth take goes to the request that has waited longest in any lane: a flood in a better lane slows the
  worse ones to an eighth, never to nothing, and a new object waits for at most one request of a worse lane.
- **Places.** Of all keys that run at a time, a namespace never has the last places (`fairness.py`): a crowd that waits
  for something slow leaves room for others.
- A key queued in two lanes keeps the better lane and the longer wait. Of several reasons the first few are kept.

It decides nothing about what a reconcile does, and it is used from one event loop only. Every operation is O(log n).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from kuberun.backoff import Backoff, Random, system_random
from kuberun.clock import Clock
from kuberun.deadline import happens_within
from kuberun.fairness import Shares
from kuberun.lanes import FairLane
from kuberun.lazyheap import LazyHeap
from kuberun.meta import ObjectKey


class Lane(IntEnum):
    """Why a key waits, best served first."""

    FIRST_SYNC = 0
    SPEC_CHANGE = 1
    EVENT = 2
    REFRESH = 3


FAIR_SHARE = 8
"""Every take of this number serves the request that waited longest, whatever its lane."""

PLACES = 1024
"""Keys that run at a time, those that wait for something meanwhile included."""

_REASONS = 200
"""Characters of reasons after which no further one is kept."""


@dataclass(frozen=True, slots=True)
class Request:
    """A key to reconcile. Two requests for a key are the same request: the reason is for the trace only."""

    key: ObjectKey
    reason: str = field(default="", compare=False)
    lane: Lane = field(default=Lane.EVENT, compare=False)


@dataclass(frozen=True, slots=True)
class QueueStats:
    depth: Mapping[Lane, int]
    delayed: int
    running: int
    oldest_age: float
    """Seconds the longest waiting request has been due."""


class QueueClosedError(Exception):
    """The queue hands out nothing more."""


@dataclass(slots=True)
class _Waiting:
    request: Request
    since: float
    """When it was first asked for: who waits longest is served first."""
    asked: float
    """When it was last asked for: what is known from before then does not answer it."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """How many in a row, and when the next try was set for."""

    count: int
    until: float


class WorkQueue:
    def __init__(
        self, clock: Clock, *, backoff: Backoff | None = None, draw: Random = system_random, places: int = PLACES
    ) -> None:
        self._clock = clock
        self._places = Shares(places)
        self._backoff = backoff or Backoff()
        self._draw = draw
        self._waiting: dict[ObjectKey, _Waiting] = {}
        self._lanes = {lane: FairLane() for lane in Lane}
        self._delayed: dict[ObjectKey, Request] = {}
        self._timers: LazyHeap[ObjectKey] = LazyHeap()
        self._running: dict[ObjectKey, float] = {}
        self._asked: dict[ObjectKey, float] = {}
        self._again: dict[ObjectKey, _Waiting] = {}
        self._failures: dict[ObjectKey, _Failures] = {}
        self._takes = 0
        self._changed = asyncio.Event()
        self._closed = False

    def add(self, request: Request, *, after: float = 0.0) -> None:
        """Queue the request, at once or when `after` seconds have passed. Nothing is added to a closed queue."""
        if self._closed:
            return
        if after > 0:
            self._delay(request, self._clock.monotonic() + after)
        else:
            now = self._clock.monotonic()
            self._enqueue(_Waiting(request, now, now))
        self._changed.set()

    async def take(self) -> Request:
        """The next request; its key counts as running until `done`. Raises QueueClosedError once closed."""
        while True:
            await self.wait()
            if (request := self.take_now()) is not None:
                return request

    async def wait(self) -> None:
        """Until there is a request to take. Raises QueueClosedError once closed."""
        while True:
            if self._closed:
                raise QueueClosedError
            self._wake_due()
            if any(lane.admits(self._may_run) for lane in self._lanes.values()):
                return
            self._changed.clear()
            await self._wait()

    def take_now(self) -> Request | None:
        """As `take`, but None if there is nothing at the moment, or nothing any more."""
        self._wake_due()
        key = None if self._closed else self._next()
        return None if key is None else self._pop(key)

    def done(self, key: ObjectKey) -> None:
        """The run of the key has ended; what was added meanwhile is queued now."""
        del self._running[key]
        del self._asked[key]
        self._places.give_back(key.namespace)
        if again := self._again.pop(key, None):
            self._enqueue(again)
        self._changed.set()

    def retry(self, request: Request, *, at_least: float = 0.0, longest: float = 0.0) -> float:
        """Queue the request again after the key's back-off; the delay chosen, in seconds.

        The back-off may grow up to `longest` if that is more than the queue's own cap.

        It had its turn in the better lanes: it comes back in the event lane, so that a crowd of failing new objects
        does not stand before one that has never been tried. A failure before the time that was set says nothing new:
        however many events wake the key meanwhile, its back-off does not grow.
        """
        now = self._clock.monotonic()
        known = self._failures.get(request.key)
        failures = 1 if known is None else known.count + (now >= known.until)
        delay = max(self._backoff.up_to(longest).delay(failures, self._draw), at_least)
        self._failures[request.key] = _Failures(failures, now + delay)
        self.add(Request(request.key, request.reason, max(request.lane, Lane.EVENT)), after=delay)
        return delay

    def forget(self, key: ObjectKey) -> None:
        """The key's failures are history; the next back-off starts small."""
        self._failures.pop(key, None)

    def failures(self, key: ObjectKey) -> int:
        known = self._failures.get(key)
        return 0 if known is None else known.count

    def longest_wait(self, key: ObjectKey, *, longest: float = 0.0) -> float:
        """The most seconds that pass before the key's next turn if it fails now."""
        return self._backoff.up_to(longest).ceiling(self.failures(key) + 1)

    def close(self) -> None:
        """Hand out nothing more. What runs may still finish; what waits is dropped: the next start lists it again."""
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
        )

    def running(self) -> Mapping[ObjectKey, float]:
        """Seconds each running key has been running."""
        now = self._clock.monotonic()
        return {key: now - started for key, started in self._running.items()}

    def asked_at(self, key: ObjectKey) -> float:
        """When (monotonic) somebody last asked for the running key: what it goes by must not be older than that."""
        return self._asked[key]

    def waiting(self) -> Mapping[ObjectKey, float]:
        """Seconds each key that is due has been waiting for a worker."""
        self._wake_due()
        now = self._clock.monotonic()
        return {key: now - waiting.since for key, waiting in self._waiting.items()}

    def _delay(self, request: Request, due: float) -> None:
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
        """Whose turn it is; None if nothing waits, or nothing that may run now."""
        if not self._waiting:
            return None
        if (self._takes + 1) % FAIR_SHARE == 0:
            heads = [head for lane in self._lanes.values() if (head := lane.oldest()) is not None]
            _, oldest = min(heads, key=lambda head: head[0])  # of equals the first, which is in the better lane
            if self._may_run(oldest):
                return oldest
        turns = (lane.next(self._may_run) for lane in self._lanes.values())
        return next((key for key in turns if key is not None), None)

    def _may_run(self, key: ObjectKey) -> bool:
        return self._places.may_take(key.namespace)

    def _pop(self, key: ObjectKey) -> Request:
        self._takes += 1
        waiting = self._waiting.pop(key)
        self._lanes[waiting.request.lane].discard(key)
        self._places.take(key.namespace)
        self._timers.discard(key)
        self._delayed.pop(key, None)
        self._running[key] = self._clock.monotonic()
        self._asked[key] = waiting.asked
        return waiting.request

    async def _wait(self) -> None:
        head = self._timers.peek()
        if head is None:
            await self._changed.wait()
        else:
            await happens_within(self._clock, head[0] - self._clock.monotonic(), self._changed)


def phase(uid: str, interval: float) -> float:
    """Where in a period of `interval` seconds this object's turn falls: in [0, interval), for ever the same."""
    digest = hashlib.blake2b(uid.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 * interval


def until_phase(uid: str, interval: float, now: float) -> float:
    """Seconds from `now` (Unix time) to this object's next turn, in (0, interval].

    Turns of all objects together are spread evenly, and a restart does not change them.
    """
    return interval - (now - phase(uid, interval)) % interval


def _merged(known: _Waiting | None, new: _Waiting) -> _Waiting:
    if known is None:
        return new
    return _Waiting(_both(known.request, new.request), min(known.since, new.since), max(known.asked, new.asked))


def _both(first: Request, second: Request) -> Request:
    """One request for both reasons, in the better lane."""
    reasons, new = first.reason, second.reason
    if new not in reasons and len(reasons) <= _REASONS:
        reasons = f"{reasons}; {new}" if reasons else new
    return Request(first.key, reasons, min(first.lane, second.lane))
