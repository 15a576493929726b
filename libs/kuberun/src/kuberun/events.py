"""Recorded events: what a controller reports about an object (`kubectl describe`, `kubectl get events`).

    record() ──► spam filter ──► bounded queue ──► run(): create an Event, or count up the one that said the same

`record` only puts a value into a queue: it never waits and never fails. `run` belongs into the caller's TaskGroup. A
refusal costs the event, never the reconcile; lost events are counted. While the API server is away, events wait.

    Warnings      at once, and before all others
    Normal        at once if no reconcile waits for a worker, else one at a time: events yield to reconciles, which
                  make many requests at a time. After some seconds they go out several at a time, some tens a second
    repeated      within seconds: occurrences of the same event are counted, and one request writes the number

A full queue drops Normal events before Warnings, and further events of an object before its first one: the first event
of an object is dropped only if there are more objects than places (`_Queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import structlog

from kubebase.bounded import BoundedDict
from kubebase.clock import Clock, rfc3339
from kubebase.deadline import happens_within
from kubebase.meta import JsonObject, ObjectKey, ObjectMeta, Resource, raw
from kuberun.client import Client
from kuberun.errors import AlreadyExists, ApiError, ImpossibleName, NotFound, ServiceUnavailable, Throttled, Unreachable
from kuberun.redaction import bounded

MAX_MESSAGE_BYTES: Final = 1024
"""The API's own limit for an event message."""

_EVENTS: Final = raw(Resource("", "v1", "events", "Event"))
_MAX_REASON_BYTES: Final = 128
_MAX_NAME_STEM: Final = 253 - 17  # a dot and sixteen hex digits follow
_AWAY: Final = (Unreachable, Throttled, ServiceUnavailable)
"""The API server does not respond, or responds that it is overloaded or unavailable."""
_TERMINATING: Final = "NamespaceTerminating"
"""The cause of a refusal to create an object in a namespace that is being deleted."""

_log = structlog.get_logger(__name__)


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Limits of one recorder."""

    queued: int = 20_000
    remembered: int = 4096  # events that can be counted up, and objects with a known rate
    burst: int = 25  # events about one object in a burst
    refill_seconds: float = 300.0  # seconds until one more is allowed
    at_once: int = 4  # requests at the same time
    rate: float = 400.0  # Normal events in a second while no reconcile waits
    busy_rate: float = 50.0  # and while reconciles wait for workers
    yield_seconds: float = 3.0  # for which they go out one at a time then
    count_up_seconds: float = 10.0  # for which repeated events are counted before the number is written
    retry_seconds: float = 1.0  # between attempts while the API server is away
    keep_seconds: float = 300.0  # for which an event waits for an API server that is away


@dataclass(slots=True)
class Counts:
    """What happened to the events; each is in exactly one of these counters."""

    written: int = 0
    dropped: int = 0  # the queue was full
    filtered: int = 0  # too many about one object
    failed: int = 0  # the API server did not accept it
    namespace_gone: int = 0  # its namespace is gone or being deleted


def _never() -> bool:
    return False


def _every(_: str) -> bool:
    return True


class EventRecorder:
    """Writes events on behalf of a component (and of the instance it runs as).

    `busy` says whether reconciles wait for workers, `accepts` whether a namespace exists and is not being deleted.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        component: str,
        instance: str = "",
        limits: EventLimits = EventLimits(),  # noqa: B008  immutable
        busy: Callable[[], bool] = _never,
        accepts: Callable[[str], bool] = _every,
    ) -> None:
        self.counts = Counts()
        self._client = client
        self._clock = clock
        self._component = component
        self._instance = instance
        self._limits = limits
        self._busy = busy
        self._accepts = accepts
        self._queues: dict[_Queue, dict[_Subject, _Pending]] = {queue: {} for queue in _Queue}
        self._writing: dict[_Subject, _Pending | None] = {}
        """What is being written now, with its occurrences since."""
        self._series: BoundedDict[_Subject, _Series] = BoundedDict(limits.remembered)
        self._buckets: BoundedDict[str, _Bucket] = BoundedDict(limits.remembered)
        self._changed = asyncio.Event()
        self._stopping = False
        self._stamp = 0
        self._paced_until = self._away_until = clock.monotonic()

    def record(
        self,
        resource: Resource,
        about: ObjectMeta,
        kind: EventType,
        reason: str,
        message: str,
        *,
        component: str = "",
    ) -> None:
        """Queue an event about an object; without `component` in the name of the recorder's own. Returns at once."""
        subject = _Subject(
            component or self._component,
            resource.api_version,
            resource.kind,
            about.key,
            about.uid,
            kind,
            bounded(reason, _MAX_REASON_BYTES),
            bounded(message, MAX_MESSAGE_BYTES),
        )
        now = self._clock.now()
        if (pending := self._pending(subject)) is not None:
            pending.count, pending.last = pending.count + 1, now
            return
        first, passes = self._passes(subject)
        if not passes:
            self.counts.filtered += 1
        elif self._has_room(queue := self._queue_of(subject, first=first)):
            due = self._clock.monotonic() + self._limits.count_up_seconds
            self._enqueue(queue, subject, _Pending(about.resource_version, now, now, due))

    async def run(self) -> None:
        """Write recorded events until cancelled, or until `stop` is called and all earlier events are written."""
        places = asyncio.Semaphore(self._limits.at_once)
        async with asyncio.TaskGroup() as writes:
            while True:
                await places.acquire()
                if (taken := await self._next()) is None:
                    return
                writes.create_task(self._write(*taken)).add_done_callback(lambda _: places.release())

    def stop(self) -> None:
        """End `run` after the events that are queued now, which are written without pauses."""
        self._stopping = True
        self._changed.set()

    # --- the queue ----------------------------------------------------------------------------------------------------

    def _passes(self, subject: _Subject) -> tuple[bool, bool]:
        """Return whether this is the first event of its object, and whether the spam filter lets it pass.

        Each object has its own token bucket, so a noisy object does not hide the others.
        """
        now = self._clock.monotonic()
        name = subject.uid or f"{subject.kind}/{subject.key}"
        known = self._buckets.get(name)
        bucket = known or _Bucket(float(self._limits.burst), now)
        bucket.tokens = min(self._limits.burst, bucket.tokens + (now - bucket.filled_at) / self._limits.refill_seconds)
        bucket.filled_at = now
        self._buckets[name] = bucket
        if bucket.tokens < 1:
            return False, False
        bucket.tokens -= 1
        return known is None, True

    def _pending(self, subject: _Subject) -> _Pending | None:
        found = (queue[subject] for queue in self._queues.values() if subject in queue)
        return next(found, self._writing.get(subject))

    def _queue_of(self, subject: _Subject, *, first: bool) -> _Queue:
        is_warning = subject.type is EventType.WARNING
        if subject in self._series:
            return _Queue.REPEATED_WARNING if is_warning else _Queue.REPEATED
        return _Queue.WARNING if is_warning else _Queue.FIRST if first else _Queue.FURTHER

    def _has_room(self, queue: _Queue) -> bool:
        """Return whether a new event gets a place; if there is none, it takes that of a less important one.

        Half of the places are for Warnings and for the first events of objects.
        """
        used = sum(map(len, self._queues.values()))
        reserved = queue in (_Queue.WARNING, _Queue.FIRST)
        if used < (self._limits.queued if reserved else self._limits.queued // 2):
            return True
        victims = next((self._queues[each] for each in _DROPPED_FIRST[queue] if self._queues[each]), None)
        if victims is None:
            self.counts.dropped += 1
            return False
        self.counts.dropped += victims.pop(next(iter(victims))).count
        return True

    def _enqueue(self, queue: _Queue, subject: _Subject, pending: _Pending) -> None:
        if subject in self._writing:
            self._writing[subject] = pending
            return
        self._queues[queue][subject] = pending
        self._changed.set()

    async def _next(self) -> tuple[_Queue, _Subject, _Pending] | None:
        """Wait for the next event that may be written; None if there will be none."""
        while True:
            self._changed.clear()
            queue, wait = self._first_queue()
            if queue is not None and self._yields(queue):
                await self._changed.wait()
                continue
            if queue is not None and wait <= 0:
                self._pace(queue)
                subject = next(iter(self._queues[queue]))
                self._writing[subject] = None
                return queue, subject, self._queues[queue].pop(subject)
            if queue is not None:
                await happens_within(self._clock, wait, self._changed)
            elif self._stopping and not self._writing:
                return None
            else:
                await self._changed.wait()

    def _first_queue(self) -> tuple[_Queue | None, float]:
        """Return the queue to take from, and the seconds until then; None if all are empty."""
        queue = next((queue for queue, waiting in self._queues.items() if waiting), None)
        if queue is None or self._stopping:
            return queue, 0.0
        if queue is _Queue.WARNING:
            return queue, self._away_until - self._clock.monotonic()
        due = max(self._paced_until, self._away_until)
        if queue in _COUNTED:
            dues = ((next(iter(self._queues[each].values())).due, each) for each in _COUNTED if self._queues[each])
            first, queue = min(dues)
            due = max(due, first)
        return queue, due - self._clock.monotonic()

    def _yields(self, queue: _Queue) -> bool:
        """Return whether an event waits until the current request has ended, because reconciles wait for workers."""
        if queue is _Queue.WARNING or not self._writing or self._stopping or not self._busy():
            return False
        waited = self._clock.now() - next(iter(self._queues[queue].values())).first
        return waited < timedelta(seconds=self._limits.yield_seconds)

    def _pace(self, queue: _Queue) -> None:
        if queue is not _Queue.WARNING:
            rate = self._limits.busy_rate if self._busy() else self._limits.rate
            self._paced_until = max(self._paced_until, self._clock.monotonic()) + 1 / rate

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _write(self, queue: _Queue, subject: _Subject, pending: _Pending) -> None:
        try:
            if subject.key.namespace and not self._accepts(subject.key.namespace):
                self.counts.namespace_gone += pending.count
                return
            await self._send(subject, pending)
        except _AWAY as error:
            if self._stopping or self._clock.now() - pending.first > timedelta(seconds=self._limits.keep_seconds):
                self._failed(subject, pending, error)
            else:
                self._keep(queue, subject, pending, error.retry_after)
        except (ApiError, ValueError) as error:
            if _is_namespace_gone(error):
                self.counts.namespace_gone += pending.count
            else:
                self._failed(subject, pending, error)
        else:
            self.counts.written += pending.count
        finally:
            again = self._writing.pop(subject)
            if again is not None:
                self._enqueue(self._queue_of(subject, first=False), subject, again)
            self._changed.set()

    def _failed(self, subject: _Subject, pending: _Pending, error: Exception) -> None:
        self.counts.failed += pending.count
        _log.warning("event not recorded", about=str(subject.key), error=str(error))

    def _keep(self, queue: _Queue, subject: _Subject, pending: _Pending, retry_after: float | None) -> None:
        """Put an event back to the front of its queue, with its occurrences since, and pause all requests."""
        since = self._writing[subject]
        if since is not None:
            pending.count, pending.last = pending.count + since.count, since.last
            self._writing[subject] = None
        self._queues[queue] = {subject: pending, **self._queues[queue]}
        pause = max(self._limits.retry_seconds, retry_after or 0.0)
        self._away_until = max(self._away_until, self._clock.monotonic() + pause)

    async def _send(self, subject: _Subject, pending: _Pending) -> None:
        series = self._series.use(subject)
        if series is not None:
            try:
                await self._count_up(series, pending)
            except NotFound:  # events expire after an hour
                del self._series[subject]
            else:
                return
        await self._create(subject, pending)

    async def _count_up(self, series: _Series, pending: _Pending) -> None:
        patch = {"count": series.count + pending.count, "lastTimestamp": rfc3339(pending.last)}
        await self._client.merge_patch(_EVENTS, series.key, patch)
        series.count += pending.count

    async def _create(self, subject: _Subject, pending: _Pending) -> None:
        pending.name = pending.name or self._name(subject, pending)
        event = self._event(subject, pending)
        with suppress(AlreadyExists):  # an earlier attempt whose response was lost
            await self._client.create(_EVENTS, event)
        key = ObjectKey(event["metadata"]["namespace"], event["metadata"]["name"])
        self._series[subject] = _Series(key, pending.count)

    def _event(self, subject: _Subject, pending: _Pending) -> JsonObject:
        component, instance = subject.component, self._instance
        about = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.key.namespace,
            "name": subject.key.name,
            "uid": subject.uid,
            "resourceVersion": pending.resource_version,
        }
        return {
            "metadata": {
                "name": pending.name,
                "namespace": subject.key.namespace or "default",  # events about cluster-scoped objects live here
            },
            "involvedObject": {name: value for name, value in about.items() if value},
            "type": subject.type,
            "reason": subject.reason,
            "message": subject.message,
            "source": {"component": component, "host": instance} if instance else {"component": component},
            "reportingComponent": component,
            "reportingInstance": instance or component,
            "firstTimestamp": rfc3339(pending.first),
            "lastTimestamp": rfc3339(pending.last),
            "count": pending.count,
        }

    def _name(self, subject: _Subject, pending: _Pending) -> str:
        """Return the object's name plus a unique time stamp, the format that other components use."""
        self._stamp = max(self._stamp + 1, int(pending.first.timestamp() * 1e9))
        return f"{subject.key.name[:_MAX_NAME_STEM].rstrip('.-')}.{self._stamp:x}"


def _is_namespace_gone(error: Exception) -> bool:
    """Return whether the server refused an event because its namespace is gone or being deleted."""
    if not isinstance(error, ApiError) or isinstance(error, ImpossibleName):
        return False
    return isinstance(error, NotFound) or any(cause.reason == _TERMINATING for cause in error.causes)


class _Queue(IntEnum):
    """The queues, in the order in which events are written."""

    WARNING = 0
    FIRST = 1
    """The first events of objects."""
    FURTHER = 2
    REPEATED_WARNING = 3
    """Events that exist already and are only counted up."""
    REPEATED = 4


_COUNTED: Final = (_Queue.REPEATED_WARNING, _Queue.REPEATED)
_DROPPED_FIRST: Final = {
    _Queue.WARNING: (_Queue.REPEATED, _Queue.FURTHER, _Queue.FIRST, _Queue.REPEATED_WARNING),
    _Queue.FIRST: (_Queue.REPEATED, _Queue.FURTHER),
    _Queue.FURTHER: (_Queue.REPEATED,),
    _Queue.REPEATED_WARNING: (_Queue.REPEATED, _Queue.FURTHER),
    _Queue.REPEATED: (),
}
"""For an event of each queue, the queues in which it takes a place if there is none left."""


class _Subject(NamedTuple):
    """Events that agree in all these fields are one event that occurred several times."""

    component: str
    api_version: str
    kind: str
    key: ObjectKey
    uid: str
    type: EventType
    reason: str
    message: str


@dataclass(slots=True)
class _Pending:
    """Occurrences of an event that are not written yet."""

    resource_version: str
    first: datetime
    last: datetime
    due: float
    """When a number of repeated events is written."""
    count: int = 1
    name: str = ""
    """The name of the Event, from the first attempt on: another attempt must not create a second one."""


@dataclass(slots=True)
class _Series:
    """An Event we created, and how often it occurred."""

    key: ObjectKey
    count: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
