"""Recorded events: what a controller reports about an object (`kubectl describe`, `kubectl get events`).

    record() ──► bounded queue ──► run(): spam filter ──► create an Event, or count up the one that said the same

`record` only puts a value into a queue: it never waits and never fails. `run` writes one event at a time and belongs
into the caller's TaskGroup. A failure costs the event, never the reconcile; lost events are counted.

Events yield to reconciles: after each write `run` pauses for a multiple of the time that the write took. A busy API
server answers slowly and gets few events; an idle one gets the rest of the queue within seconds.
"""

from __future__ import annotations

import asyncio
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
_PAUSE: Final = 4.0
"""The pause after a write, as a multiple of the time that it took."""
_LONGEST_PAUSE: Final = 1.0
_MAX_NAME_STEM: Final = 253 - 17  # a dot and sixteen hex digits follow

_log = structlog.get_logger(__name__)


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Limits of one recorder."""

    queued: int = 1000
    for_warnings: int = 250  # of the queue; other events take no place of these
    remembered: int = 4096  # events that can be counted up, and objects with a known rate
    burst: int = 25  # events about one object in a burst
    refill_seconds: float = 300.0  # seconds until one more is allowed


@dataclass(slots=True)
class Counts:
    """What happened to the events; each is in exactly one of these counters."""

    written: int = 0
    dropped: int = 0  # the queue was full
    filtered: int = 0  # too many about one object
    failed: int = 0  # the API server did not accept it


class EventRecorder:
    """Writes events on behalf of one component (and of the instance it runs as)."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        component: str,
        instance: str = "",
        limits: EventLimits = EventLimits(),  # noqa: B008  immutable
    ) -> None:
        self.counts = Counts()
        self._client = client
        self._clock = clock
        self._source = {"component": component, "host": instance} if instance else {"component": component}
        self._reporting = {"reportingComponent": component, "reportingInstance": instance or component}
        self._queue: asyncio.Queue[_Occurrence | None] = (
            asyncio.Queue()
        )  # bounded in `record`, so that `stop` always fits
        self._limits = limits
        self._stopping = asyncio.Event()
        self._stamp = 0
        self._series: BoundedDict[_Subject, _Series] = BoundedDict(limits.remembered)
        self._buckets: BoundedDict[str, _Bucket] = BoundedDict(limits.remembered)

    def record(self, resource: Resource, about: ObjectMeta, kind: EventType, reason: str, message: str) -> None:
        """Queue an event about an object. Returns at once."""
        kept = 0 if kind is EventType.WARNING else self._limits.for_warnings
        if self._queue.qsize() >= self._limits.queued - kept:
            self.counts.dropped += 1
            return
        subject = _Subject(
            resource.api_version,
            resource.kind,
            about.key,
            about.uid,
            kind,
            bounded(reason, _MAX_REASON_BYTES),
            bounded(message, MAX_MESSAGE_BYTES),
        )
        self._queue.put_nowait(_Occurrence(subject, about.resource_version, self._clock.now()))

    async def run(self) -> None:
        """Write recorded events until cancelled, or until `stop` is called and all earlier events are written."""
        while (occurrence := await self._queue.get()) is not None:
            if not self._passes(occurrence.subject):
                self.counts.filtered += 1
                continue
            started = self._clock.monotonic()
            try:
                await self._write(occurrence)
            except (ApiError, ValueError) as error:
                self.counts.failed += 1
                _log.warning("event not recorded", about=str(occurrence.subject.key), error=str(error))
            else:
                self.counts.written += 1
            await self._yield_to_reconciles(self._clock.monotonic() - started)

    def stop(self) -> None:
        """End `run` after the events that are queued now, which are written without pauses."""
        self._queue.put_nowait(None)
        self._stopping.set()

    async def _yield_to_reconciles(self, took: float) -> None:
        pause = min(_PAUSE * took, _LONGEST_PAUSE)
        if pause > 0 and not self._stopping.is_set():
            await happens_within(self._clock, pause, self._stopping)

    def _passes(self, subject: _Subject) -> bool:
        """Apply the spam filter: each object has its own token bucket, so a noisy object does not hide the others."""
        now = self._clock.monotonic()
        name = subject.uid or f"{subject.kind}/{subject.key}"
        bucket = self._buckets.get(name) or _Bucket(float(self._limits.burst), now)
        bucket.tokens = min(self._limits.burst, bucket.tokens + (now - bucket.filled_at) / self._limits.refill_seconds)
        bucket.filled_at = now
        self._buckets[name] = bucket
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    async def _write(self, occurrence: _Occurrence) -> None:
        series = self._series.use(occurrence.subject)
        if series is not None:
            try:
                await self._count_up(series, occurrence.at)
            except NotFound:  # events expire after an hour
                del self._series[occurrence.subject]
            else:
                return
        await self._create(occurrence)

    async def _count_up(self, series: _Series, at: datetime) -> None:
        patch = {"count": series.count + 1, "lastTimestamp": rfc3339(at)}
        await self._client.merge_patch(_EVENTS, series.key, patch)
        series.count += 1

    async def _create(self, occurrence: _Occurrence) -> None:
        event = self._event(occurrence)
        await self._client.create(_EVENTS, event)
        self._series[occurrence.subject] = _Series(
            ObjectKey(event["metadata"]["namespace"], event["metadata"]["name"]), count=1
        )

    def _event(self, occurrence: _Occurrence) -> JsonObject:
        subject = occurrence.subject
        at = rfc3339(occurrence.at)
        about = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.key.namespace,
            "name": subject.key.name,
            "uid": subject.uid,
            "resourceVersion": occurrence.resource_version,
        }
        return {
            "metadata": {
                "name": self._name(occurrence),
                "namespace": subject.key.namespace or "default",  # events about cluster-scoped objects live here
            },
            "involvedObject": {name: value for name, value in about.items() if value},
            "type": subject.type,
            "reason": subject.reason,
            "message": subject.message,
            "source": self._source,
            **self._reporting,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }

    def _name(self, occurrence: _Occurrence) -> str:
        """Return the object's name plus a unique time stamp, the format that other components use."""
        self._stamp = max(self._stamp + 1, int(occurrence.at.timestamp() * 1e9))
        return f"{occurrence.subject.key.name[:_MAX_NAME_STEM].rstrip('.-')}.{self._stamp:x}"


class _Subject(NamedTuple):
    """Events that agree in all these fields are one event that occurred several times."""

    api_version: str
    kind: str
    key: ObjectKey
    uid: str
    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Occurrence:
    subject: _Subject
    resource_version: str
    at: datetime


@dataclass(slots=True)
class _Series:
    """An Event we created, and how often it occurred."""

    key: ObjectKey
    count: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float
