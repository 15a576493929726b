"""Recorded events: what a controller reports about an object (`kubectl describe`, `kubectl get events`).

    record() ──► spam filter ──► bounded queue ──► run(): create an Event, or count up the one that said the same

`record` only puts a value into a queue: it never waits and never fails. `run` belongs into the caller's TaskGroup. A
failure costs the event, never the reconcile; lost events are counted.

    Warnings      at once, and before all others
    Normal        at once if no reconcile waits for a worker, else some tens a second: events yield to reconciles
    repeated      within seconds: occurrences of the same event are counted, and one request writes the number

A full queue drops Normal events before Warnings, and further events of an object before its first one: the first event
of an object is dropped only if there are more objects than places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from kubebase.bounded import BoundedDict
from kubebase.clock import Clock, rfc3339
from kubebase.deadline import happens_within
from kubebase.meta import JsonObject, ObjectKey, ObjectMeta, Resource, raw
from kubebase.plainlogs import structlog
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.redaction import bounded

MAX_MESSAGE_BYTES: Final = 1024
"""The API's own limit for an event message."""

_EVENTS: Final = raw(Resource("", "v1", "events", "Event"))
_MAX_REASON_BYTES: Final = 128
_MAX_NAME_STEM: Final = 253 - 17  # a dot and sixteen hex digits follow

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
    count_up_seconds: float = 10.0  # for which repeated events are counted before the number is written


@dataclass(slots=True)
class Counts:
    """What happened to the events; each is in exactly one of these counters."""

    written: int = 0
    dropped: int = 0  # the queue was full
    filtered: int = 0  # too many about one object
    failed: int = 0  # the API server did not accept it
    homeless: int = 0  # its namespace is gone or being deleted


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
        self._warnings: dict[_Subject, _Pending] = {}
        self._normal: dict[_Subject, _Pending] = {}
        self._repeated: dict[_Subject, _Pending] = {}
        self._writing: dict[_Subject, _Pending | None] = {}
        """What is being written now, with its occurrences since."""
        self._series: BoundedDict[_Subject, _Series] = BoundedDict(limits.remembered)
        self._buckets: BoundedDict[str, _Bucket] = BoundedDict(limits.remembered)
        self._changed = asyncio.Event()
        self._stopping = False
        self._stamp = 0
        self._paced_until = clock.monotonic()

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
        elif self._has_room(kind, first=first):
            due = self._clock.monotonic() + self._limits.count_up_seconds
            self._enqueue(subject, _Pending(about.resource_version, now, now, due))

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
        queues = (self._warnings, self._normal, self._repeated)
        return next((queue[subject] for queue in queues if subject in queue), self._writing.get(subject))

    def _has_room(self, kind: EventType, *, first: bool) -> bool:
        """Return whether a new event gets a place; a Warning takes that of another one if there is none.

        Half of the places are for Warnings and for the first events of objects.
        """
        used = len(self._warnings) + len(self._normal) + len(self._repeated)
        reserved = kind is EventType.WARNING or first
        if used < (self._limits.queued if reserved else self._limits.queued // 2):
            return True
        victims = self._repeated or self._normal
        if kind is not EventType.WARNING or not victims:
            self.counts.dropped += 1
            return False
        self.counts.dropped += victims.pop(next(iter(victims))).count
        return True

    def _enqueue(self, subject: _Subject, pending: _Pending) -> None:
        if subject in self._writing:
            self._writing[subject] = pending
            return
        if subject in self._series:
            queue = self._repeated
        else:
            queue = self._warnings if subject.type is EventType.WARNING else self._normal
        queue[subject] = pending
        self._changed.set()

    async def _next(self) -> tuple[_Subject, _Pending] | None:
        """Wait for the next event that may be written; None if there will be none."""
        while True:
            self._changed.clear()
            queue, wait = self._first_queue()
            if queue and wait <= 0:
                self._pace(queue)
                subject = next(iter(queue))
                self._writing[subject] = None
                return subject, queue.pop(subject)
            if queue:
                await happens_within(self._clock, wait, self._changed)
            elif self._stopping and not self._writing:
                return None
            else:
                await self._changed.wait()

    def _first_queue(self) -> tuple[dict[_Subject, _Pending], float]:
        """Return the queue to take from, and the seconds until then."""
        if self._warnings:
            return self._warnings, 0.0
        now = self._clock.monotonic()
        due = self._paced_until if self._normal or not self._repeated else self._due_of_repeated()
        return self._normal or self._repeated, 0.0 if self._stopping else due - now

    def _due_of_repeated(self) -> float:
        return max(self._paced_until, next(iter(self._repeated.values())).due)

    def _pace(self, queue: dict[_Subject, _Pending]) -> None:
        if queue is not self._warnings:
            rate = self._limits.busy_rate if self._busy() else self._limits.rate
            self._paced_until = max(self._paced_until, self._clock.monotonic()) + 1 / rate

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _write(self, subject: _Subject, pending: _Pending) -> None:
        try:
            if subject.key.namespace and not self._accepts(subject.key.namespace):
                self.counts.homeless += pending.count
                return
            await self._send(subject, pending)
        except (ApiError, ValueError) as error:
            self.counts.failed += pending.count
            _log.warning("event not recorded", about=str(subject.key), error=str(error))
        else:
            self.counts.written += pending.count
        finally:
            again = self._writing.pop(subject)
            if again is not None:
                self._enqueue(subject, again)
            self._changed.set()

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
        event = self._event(subject, pending)
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
                "name": self._name(subject, pending),
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


@dataclass(slots=True)
class _Series:
    """An Event we created, and how often it occurred."""

    key: ObjectKey
    count: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
