"""What every controller shares: the frame of a reconcile (`Reconciler`), and its end (`Reporter`).

    find -> finalize if it is being deleted | hold -> reconcile -> outcome
    outcome -> the kind's status table -> Report -> Reporter.publish -> status, events, metrics, log

The status is written as a difference to the version it was compared with. A cached object may be older than our own
last write, and its difference may wrongly be empty, so such an object is read again before the report. If a user
touched labels or annotations meanwhile, the report is written to the new state: the work is not done again for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import structlog

from eso_api.common import READY
from eso_operator.memory import Memory, Record
from eso_operator.telemetry.metrics import ObjectSeries
from eso_operator.telemetry.subsystems import Subsystem
from kubebase.clock import Clock, rfc3339
from kubebase.meta import Condition, Kind, Malformed, Object, ObjectKey, ObjectMeta, Resource, meta_of
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Result
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder, EventType
from kuberun.status import HasStatus, find_condition, is_stale, write_status

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_WORTH_A_TIME: Final = 30.0
_ATTEMPTS: Final = 5
"""How often a status is written to an object that keeps being touched."""

_log = structlog.get_logger(__name__)

# --- the frame of a reconcile -----------------------------------------------------------------------------------------

ObjT = TypeVar("ObjT", bound=Object)


class Reconciler(Generic[ObjT]):
    """Reconciles the objects of one kind. A kind defines `reconcile`, and the other steps where it differs."""

    def __init__(
        self,
        objects: Cache[ObjT],
        memory: Memory[Record],
        *,
        timed: Callable[[ObjectMeta], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """Pass `Reporter.timed` for a kind whose reconciles have metrics for each object."""
        self._objects = objects
        self._memory = memory
        self._timed = timed

    async def run(self, key: ObjectKey, ctx: ReconcileContext) -> Result:
        """Reconcile one object. This is what the queue calls."""
        found = self.find(key)
        if found is None:
            return await self.gone(key)
        try:
            obj = await self.fresh(found)
            # First of all: a former object of that name may have had other dependencies.
            self._memory.of(key, obj.metadata.uid)
            if obj.metadata.deletion_timestamp is not None:
                return await self.finalize(obj, ctx)
            if (waiting := await self.hold(obj, ctx)) is not None:
                return waiting
            with self._timed(obj.metadata):
                return await self.reconcile(obj, ctx)
        except ApiError as problem:
            return result_of(problem)

    def find(self, key: ObjectKey) -> ObjT | None:
        """Return the object if it exists and can be decoded; `malformed.py` reports objects that cannot."""
        found = self._objects.get(key)
        return None if isinstance(found, Malformed) else found

    async def gone(self, key: ObjectKey) -> Result:
        """Forget an object that `find` did not return."""
        self._memory.forget(key)
        return Done()

    async def fresh(self, obj: ObjT) -> ObjT:
        """Return the object to work on: of some kinds, it is read if the cache is older than our last write."""
        return obj

    async def finalize(self, obj: ObjT, ctx: ReconcileContext) -> Result:
        """Clean up after an object that is being deleted. Kinds without a finalizer reconcile it until it is gone."""
        with self._timed(obj.metadata):
            return await self.reconcile(obj, ctx)

    async def hold(self, obj: ObjT, ctx: ReconcileContext) -> Result | None:
        """Set the finalizer before the first write that must be undone; return a result to wait for it."""
        del obj, ctx
        return None

    async def reconcile(self, obj: ObjT, ctx: ReconcileContext) -> Result:
        """Bring the object up to date and report on it. An ApiError ends in a retry."""
        raise NotImplementedError


def result_of(problem: ApiError, failed: str = "") -> Result:
    """Return the result of a reconcile after an error of the API server. `failed` names the failed action."""
    if isinstance(problem, NotFound):
        return Done()
    if isinstance(problem, Conflict):
        return Backoff("the object changed meanwhile")
    return Backoff(f"{failed}: {api_error_text(problem)}" if failed else api_error_text(problem))


def api_error_text(problem: ApiError) -> str:
    """Return the reason of the API server in one word: its message may quote the request."""
    return f"the API server answered {problem.reason or problem.code}"


def next_attempt(now: datetime, within: float) -> str | None:
    """Return the time of the next attempt; None for a retry within moments, which is not worth a status write."""
    return rfc3339(now + timedelta(seconds=within)) if within >= _WORTH_A_TIME else None


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """An event to record."""

    type: EventType
    reason: str
    message: str
    log: str = field(default="", compare=False)
    """The warning to log with it; empty for none."""


class TerminatingNamespaces:
    """Namespaces that are being deleted: events about their objects are recorded on the namespace."""

    def __init__(self, namespaces: Cache[Object]) -> None:
        self._namespaces = namespaces

    def ending(self, namespace: str) -> ObjectMeta | None:
        """Return the namespace if it is being deleted, else None."""
        found = self._namespaces.get(ObjectKey("", namespace))
        meta = None if found is None else meta_of(found)
        return None if meta is None or meta.deletion_timestamp is None else meta

    def accepts_events(self, namespace: str) -> bool:
        """Return whether the namespace is not being deleted.

        A namespace that the cache does not have may be new: the API server refuses the event if it is gone.
        """
        return self.ending(namespace) is None

    def subject(self, resource: Resource, metadata: ObjectMeta) -> tuple[Resource, ObjectMeta]:
        """Return the object that events refer to.

        A namespace that is being deleted accepts no events, so it is the subject itself.
        """
        ending = self.ending(metadata.namespace)
        return (resource, metadata) if ending is None else (NAMESPACES, ending)


class EventPublisher:
    """Records events in the name of one component; without a name, in that of the recorder's own.

    With `terminating`, those about objects in a namespace that is being deleted are recorded about the namespace.
    """

    def __init__(
        self, recorder: EventRecorder, terminating: TerminatingNamespaces | None = None, *, component: str = ""
    ) -> None:
        self._recorder = recorder
        self._component = component
        self._terminating = terminating

    def publish_events(self, resource: Resource, about: ObjectMeta, *events: Event) -> None:
        """Record the events, in this order. Returns at once."""
        if self._terminating is not None:
            resource, about = self._terminating.subject(resource, about)
        for each in events:
            self._recorder.record(resource, about, each.type, each.reason, each.message, component=self._component)


# --- reports ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """The effects of an outcome: the status to write, the events to record, and the time of the next reconcile."""

    status: Any
    result: Result
    events: tuple[Event, ...] = ()
    failed: bool = False
    """True if the reconcile counts as failed."""
    flush: bool = True
    """True if a changed status is written at once."""
    shown: bool = True
    """True if metrics show the conditions. False if they come from a cache and the report says nothing about them."""
    log: Mapping[str, object] | None = field(default=None, compare=False)
    """Fields of the log line besides the object's name; None for no line."""

    @property
    def ready(self) -> Condition | None:
        return find_condition(self.status.conditions, READY)


T = TypeVar("T", bound=HasStatus[Any])


@dataclass(frozen=True, slots=True)
class Subject:
    """The kind of object that is reported on."""

    kind: Kind[Any]
    subsystem: Subsystem
    log: str
    """The event of its log line."""
    log_key: str
    """The key under which a log line names the object."""
    counted: bool = False
    """True if syncs and failures are counted. The Go operator counts them for ExternalSecrets only."""
    events_first: bool = False
    """True if events are recorded even if the status cannot be written, because they report completed actions."""


@dataclass(frozen=True, slots=True)
class Channels:
    """The outputs of reports."""

    client: Client
    clock: Clock
    series: ObjectSeries
    publisher: EventPublisher


@dataclass(frozen=True, slots=True)
class Published(Generic[T]):
    """The result of a report."""

    obj: T
    """The object in its newest known state."""
    result: Result
    problem: ApiError | None = None
    """Why the report could not be written; None if it was, or if there was nothing to write."""


class Reporter(Generic[T]):
    """Reports on the objects of one kind. One for each controller, with its memory."""

    def __init__(self, subject: Subject, channels: Channels, memory: Memory[Record]) -> None:
        self._subject = subject
        self._channels = channels
        self._memory = memory
        memory.on_forget(lambda key, _: channels.series.forget(subject.subsystem, key))

    @contextmanager
    def timed(self, about: ObjectMeta) -> Iterator[None]:
        """Measure a reconcile. One that raises is not counted."""
        clock = self._channels.clock
        started = clock.monotonic()
        yield
        series = self._series(about.key)
        if self._subject.counted:
            series.synced(about)
        series.reconciled(self._subject.subsystem, about, clock.monotonic() - started)

    async def publish(self, obj: T, report_of: Callable[[T], Report]) -> Published[T]:
        """Report the outcome of a reconcile. `report_of` is called again if the object must be read again."""
        try:
            obj, report = await self._compared(obj, report_of)
        except ApiError as problem:
            return self._not_published(obj, problem)
        if report.failed and self._subject.counted:
            self._series(obj.metadata.key).failed(obj.metadata)
        if self._subject.events_first:
            self.publish_events(obj.metadata, *report.events)
        try:
            if report.flush:
                written = await self.write_again(obj, lambda live: report_of(live).status)
            else:
                written = obj
        except ApiError as problem:
            return self._not_published(obj, problem)
        if not self._subject.events_first:
            self.publish_events(obj.metadata, *report.events)
        self._show(obj, report)
        return Published(written, report.result)

    async def write(self, obj: T, status: Any) -> T:
        """Write the difference of the status; return the object after the write. Raises ApiError."""
        written: T = await write_status(self._channels.client, self._subject.kind, obj, status)
        if written is not obj:
            self._memory.of(obj.metadata.key, obj.metadata.uid).written_on = obj.metadata.resource_version
        return written

    async def write_again(self, obj: T, status_of: Callable[[T], Any]) -> T:
        """Write the status, again if the object was only touched: same spec, same status. Raises ApiError."""
        attempts = _ATTEMPTS
        while True:
            try:
                return await self.write(obj, status_of(obj))
            except Conflict:
                attempts -= 1
                live: T = await self._channels.client.get(self._subject.kind, obj.metadata.key)
                touched = _spec_id(live.metadata) == _spec_id(obj.metadata) and live.status == obj.status
                if not touched or live.metadata.deletion_timestamp is not None or not attempts:
                    raise
                obj = live

    def publish_events(self, about: ObjectMeta, *events: Event) -> None:
        """Record events, which may have log lines of their own."""
        self._channels.publisher.publish_events(self._subject.kind.resource, about, *events)
        for each in events:
            if each.log:
                _log.warning(each.log, **{self._subject.log_key: str(about.key)}, what=each.message)

    def is_stale(self, obj: T) -> bool:
        """Return whether the cached object is older than our own last write."""
        known = self._memory.known(obj.metadata.key, obj.metadata.uid)
        return (
            known is not None and known.written_on != "" and is_stale(obj.metadata.resource_version, known.written_on)
        )

    async def latest(self, obj: T) -> T:
        """Return the object of that name with our last write; read it if the cache does not have that write yet.

        Raises ApiError.
        """
        if not self.is_stale(obj):
            return obj
        live: T = await self._channels.client.get(self._subject.kind, obj.metadata.key)
        return live

    async def refresh_if_stale(self, obj: T) -> T:
        """Return the newest state of this object; the given one if it was replaced or its spec was edited since.

        A report about the given object does not apply to the new one; a write of it ends in a conflict. Raises
        ApiError.
        """
        live = await self.latest(obj)
        return live if _spec_id(live.metadata) == _spec_id(obj.metadata) else obj

    async def _compared(self, obj: T, report_of: Callable[[T], Report]) -> tuple[T, Report]:
        """Return the report, and the object that it is about."""
        report = report_of(obj)
        if report.status is obj.status or not self.is_stale(obj):
            return obj, report
        obj = await self.refresh_if_stale(obj)
        return obj, report_of(obj)

    def _not_published(self, obj: T, problem: ApiError) -> Published[T]:
        return Published(obj, result_of(problem, "status not written"), problem)

    def _series(self, key: ObjectKey) -> ObjectSeries:
        """Return the metrics. An object that has any gets a record, so that they are forgotten with it."""
        self._memory.at(key)
        return self._channels.series

    def _show(self, obj: T, report: Report) -> None:
        subject = self._subject
        if report.shown:
            self._series(obj.metadata.key).conditions(subject.subsystem, obj.metadata, report.status.conditions)
        if report.log is not None:
            log = _log.warning if report.failed else _log.info
            log(subject.log, **{subject.log_key: str(obj.metadata.key)}, **report.log)


def _spec_id(metadata: ObjectMeta) -> tuple[str, int]:
    return metadata.uid, metadata.generation
