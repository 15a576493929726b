"""One store: gather, validate, report. The same for all kinds of `kinds.py`.

A store is looked at when it changes, when something it went by changes (`dependencies.py`), and at its interval. Its
status is written when it differs, its events recorded when they are news; an idle store costs one call to its provider
for each interval and not one write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from eso_api import durations
from eso_operator.secretstore.kinds import StoreKind
from eso_operator.secretstore.outcome import Before, Report, report_of
from eso_operator.secretstore.validation import Validator
from eso_operator.stores.target import Connection
from eso_operator.sync.dependencies import Dependant, Dependencies, OnObject
from eso_operator.sync.floor import SHORTEST_INTERVAL
from eso_operator.telemetry.objects import ObjectSeries
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder
from kuberun.meta import Malformed, ObjectKey
from kuberun.status import OwnWrites, write_status

_log = structlog.get_logger(__name__)


PushTrouble = Callable[[OnObject], str | None]
"""Why changes of a store are not heard of; None if they are, or if nobody wants to."""


def no_trouble(_: OnObject) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class StoreSettings:
    controller_class: str
    interval: float
    """Seconds between validations of a store that does not say."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What all store reconcilers share."""

    client: Client
    clock: Clock
    validator: Validator
    dependencies: Dependencies
    series: ObjectSeries
    forget_connection: Callable[[Connection], None]
    push_trouble: PushTrouble = no_trouble


def interval_of(spec: Any, usual: float) -> float:
    """Seconds between two validations of a store that is in order."""
    try:
        said = durations.seconds(spec.refresh_interval, field="spec.refreshInterval")
    except durations.DurationError:
        return usual  # the verdict says so
    return max(said, SHORTEST_INTERVAL) if said else usual


class StoreReconciler:
    """Reconciles the stores of one kind."""

    def __init__(
        self, kind: StoreKind, stores: Store[Any], outside: Outside, *, recorder: EventRecorder, settings: StoreSettings
    ) -> None:
        self._kind = kind
        self._stores = stores
        self._outside = outside
        self._recorder = recorder
        self._settings = settings
        self._own = OwnWrites()

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Say on the store whether it can be used."""
        started = self._outside.clock.monotonic()
        store = self._gather(key)
        if store is None:
            return self._drop(key)
        try:
            store = await self._as_we_left_it(store)
        except NotFound:
            return Done()
        except ApiError as error:
            return Retry(f"the store cannot be read: the API server answered {error.reason or error.code}")
        report = await self._validate(store)
        written = await self._publish(store, report)
        self._outside.series.reconciled(self._kind.subsystem, store.metadata, self._outside.clock.monotonic() - started)
        return written or report.then

    def _gather(self, key: ObjectKey) -> Any | None:
        """The store, if it is there and ours. One that cannot be read is told by `sync.misfits`."""
        store = self._stores.get(key)
        if (
            store is None
            or isinstance(store, Malformed)
            or store.spec.controller not in ("", self._settings.controller_class)
        ):
            return None
        return store

    async def _as_we_left_it(self, store: Any) -> Any:
        """The store with our own last word on it, which the cache may not have heard yet.

        Against an older one a new verdict may look like no news, and would never be written.
        """
        if not self._own.behind(store.metadata):
            return store
        live = await self._outside.client.get(self._kind.kind, store.metadata.key)
        return live if live.metadata.uid == store.metadata.uid else store

    def _drop(self, key: ObjectKey) -> Outcome:
        """Gone, or somebody else's: nothing of it stays here."""
        self._own.forget(key)
        self._outside.series.forget(self._kind.subsystem, key)
        self._release(self._outside.dependencies.forget(self._dependant(key)))
        return Done()

    async def _validate(self, store: Any) -> Report:
        finding = await self._outside.validator.find_out(self._kind, store.metadata)
        self._release(self._outside.dependencies.record(self._dependant(store.metadata.key), finding.depends_on))
        trouble = self._outside.push_trouble(self._as_dependency(store.metadata.key))
        now = self._outside.clock.now()
        before = Before(self._kind, store.metadata, store.status, self._interval(store), now, push_trouble=trouble)
        return report_of(before, finding.verdict)

    async def _publish(self, store: Any, report: Report) -> Outcome | None:
        """Write what differs, then tell everybody; a write that came too late means another look."""
        try:
            changed = await write_status(
                self._outside.client, self._kind.kind, store.metadata, old=store.status, new=report.status
            )
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the store changed meanwhile")
        except ApiError as error:
            return Retry(f"status not written: the API server answered {error.reason or error.code}")
        if changed:
            self._own.wrote(store.metadata)
        for news in report.news:
            self._recorder.record(self._kind.resource, store.metadata, news.type, news.reason, news.message)
        if changed and report.ready is not None:
            ready, why = report.ready.status, report.ready.reason
            _log.info("store validated", store=str(store.metadata.key), ready=ready, why=why)
        self._outside.series.conditions(self._kind.subsystem, store.metadata, report.status.conditions)
        return None

    def _interval(self, store: Any) -> float:
        return interval_of(store.spec, self._settings.interval)

    def _release(self, unused: Sequence[Connection]) -> None:
        for connection in unused:
            self._outside.forget_connection(connection)

    def _as_dependency(self, key: ObjectKey) -> OnObject:
        return OnObject(self._kind.resource.group, self._kind.resource.kind, key)

    def _dependant(self, key: ObjectKey) -> Dependant:
        return Dependant(self._kind.subsystem, key)
