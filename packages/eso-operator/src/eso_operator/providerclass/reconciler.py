"""One ProviderClass or ClusterProviderClass: find the provider, shake hands, show what it said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import structlog

from eso_api.crd import CustomKind
from eso_operator.providerclass.outcome import Answered, ClassReport, Result, Unanswered, report_of
from eso_operator.stores.classes import class_connection
from eso_operator.stores.target import Connection, ResolutionError, ServiceKey
from eso_operator.sync.dependencies import Dependant, Dependencies, Dependency, OnLabel, on_connection, on_object
from eso_operator.sync.reporting import cause_of
from eso_operator.sync.resolver import Resolver
from eso_operator.telemetry.objects import ObjectSeries, Subsystem
from eso_wire.errors import ProviderError
from eso_wire.values import Handshake, KindId, ObjectRef
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder
from kuberun.meta import Malformed, ObjectKey
from kuberun.status import OwnWrites, write_status

_log = structlog.get_logger(__name__)


class Handshakes(Protocol):
    """The part of the directory that is needed here."""

    async def refresh(self, connection: Connection) -> Handshake: ...

    def forget(self, connection: Connection) -> None: ...


@dataclass(frozen=True, slots=True)
class ClassKindInfo:
    """One of the two kinds."""

    custom: CustomKind[Any]
    subsystem: Subsystem


@dataclass(frozen=True, slots=True)
class ClassOutside:
    """What both class reconcilers share. `certificate_end` and `endpoints` say what is known of a Service."""

    client: Client
    clock: Clock
    resolver: Resolver
    directory: Handshakes
    dependencies: Dependencies
    series: ObjectSeries
    recorder: EventRecorder
    certificate_end: Callable[[ServiceKey], datetime | None]
    endpoints: Callable[[ServiceKey], Awaitable[int]]
    interval: float


class ClassReconciler:
    """Reconciles the classes of one kind."""

    def __init__(self, kind: ClassKindInfo, classes: Store[Any], outside: ClassOutside) -> None:
        self._kind = kind
        self._classes = classes
        self._outside = outside
        self._own = OwnWrites()

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Say on the class whether its provider answers."""
        started = self._outside.clock.monotonic()
        found = self._classes.get(key)
        if found is None or isinstance(found, Malformed):
            return self._drop(key)
        try:
            found = await self._as_we_left_it(found)
        except NotFound:
            return Done()
        except ApiError as error:
            return Retry(f"the class cannot be read: the API server answered {error.reason or error.code}")
        result = await self._ask(found)
        report = report_of(
            found.spec, found.status, result, now=self._outside.clock.now(), interval=self._outside.interval
        )
        written = await self._publish(found, report)
        self._outside.series.reconciled(self._kind.subsystem, found.metadata, self._outside.clock.monotonic() - started)
        return written or report.then

    async def _as_we_left_it(self, found: Any) -> Any:
        """With our own last word on it: against an older one a new answer may look like no news."""
        if not self._own.behind(found.metadata):
            return found
        live = await self._outside.client.get(self._kind.custom.kind(), found.metadata.key)
        return live if live.metadata.uid == found.metadata.uid else found

    async def _ask(self, found: Any) -> Result:
        outside, resource = self._outside, self._kind.custom.resource()
        kind = KindId(resource.group, resource.version, resource.kind)
        try:
            connection = class_connection(
                kind, found, settings=outside.resolver.settings, snapshot=outside.resolver.snapshot
            )
        except ResolutionError as error:
            self._depend(found.metadata.key, None)
            return Unanswered(error.reason.value, error.message)
        self._depend(found.metadata.key, connection)
        try:
            handshake = await outside.directory.refresh(connection)
        except ProviderError as error:
            return Unanswered(cause_of(error), error.message)
        service = connection.endpoint.service
        if service is None:
            return Answered(handshake)
        return Answered(handshake, outside.certificate_end(service), await outside.endpoints(service))

    async def _publish(self, found: Any, report: ClassReport) -> Outcome | None:
        outside, resource = self._outside, self._kind.custom.resource()
        try:
            changed = await write_status(
                outside.client, self._kind.custom.kind(), found.metadata, old=found.status, new=report.status
            )
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the class changed meanwhile")
        except ApiError as error:
            return Retry(f"status not written: the API server answered {error.reason or error.code}")
        if changed:
            self._own.wrote(found.metadata)
        for news in report.news:
            _log.info("class looked at", provider_class=str(found.metadata.key), reason=news.reason)
            outside.recorder.record(resource, found.metadata, news.type, news.reason, news.message)
        outside.series.conditions(self._kind.subsystem, found.metadata, report.status.conditions)
        return None

    def _depend(self, key: ObjectKey, connection: Connection | None) -> None:
        """Look again when the provider or its Service changes; let go of a connection nobody uses any more."""
        on: list[Dependency] = []
        if connection is not None:
            on = [on_connection(connection)]
            if (service := connection.endpoint.service) is not None:
                named = ObjectRef(api_version="v1", kind="Service", namespace=service.namespace, name=service.name)
                on = [*on, OnLabel(str(service)), on_object(named)]
        for unused in self._outside.dependencies.record(self._dependant(key), on):
            self._outside.directory.forget(unused)

    def _drop(self, key: ObjectKey) -> Outcome:
        self._own.forget(key)
        self._outside.series.forget(self._kind.subsystem, key)
        for unused in self._outside.dependencies.forget(self._dependant(key)):
            self._outside.directory.forget(unused)
        return Done()

    def _dependant(self, key: ObjectKey) -> Dependant:
        return Dependant(self._kind.subsystem, key)
