"""One ProviderClass or ClusterProviderClass: find the provider, perform a handshake, report the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from eso_api.crd import CustomKind
from eso_operator.controllers.memory import Record
from eso_operator.controllers.providerclass.outcome import Answered, CheckResult, Unanswered, report_of
from eso_operator.dependencies.dependencies import (
    Dependant,
    Dependencies,
    Dependency,
    OnLabel,
    on_connection,
    on_object,
)
from eso_operator.memory import Memory
from eso_operator.providers.errors import cause_of
from eso_operator.report.reporter import Reporter
from eso_operator.stores.classes import class_connection
from eso_operator.stores.resolved import Connection, ResolutionError, ServiceKey
from eso_operator.stores.resolver import Resolver
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.errors import ProviderError
from eso_wire.values import Handshake, KindId, ObjectRef
from kubebase.clock import Clock
from kubebase.meta import Malformed, ObjectKey
from kuberun.cache import Cache
from kuberun.controller import Done, Result
from kuberun.errors import ApiError


class Handshakes(Protocol):
    """The part of the directory that is needed here."""

    async def refresh(self, connection: Connection) -> Handshake: ...

    def starting(self, connection: Connection) -> float: ...

    def forget(self, connection: Connection) -> None: ...


@dataclass(frozen=True, slots=True)
class ClassKindInfo:
    """One of the two kinds."""

    custom: CustomKind[Any]
    subsystem: Subsystem


@dataclass(frozen=True, slots=True)
class ClassOutside:
    """The dependencies of both class reconcilers.

    `certificate_end` and `endpoints` return known facts about a Service.
    """

    clock: Clock
    resolver: Resolver
    directory: Handshakes
    dependencies: Dependencies
    certificate_end: Callable[[ServiceKey], datetime | None]
    endpoints: Callable[[ServiceKey], Awaitable[int]]
    interval: float


class ClassReconciler:
    """Reconciles the classes of one kind."""

    def __init__(
        self,
        kind: ClassKindInfo,
        classes: Cache[Any],
        outside: ClassOutside,
        *,
        reporter: Reporter[Any],
        memory: Memory[Record],
    ) -> None:
        self._kind = kind
        self._classes = classes
        self._outside = outside
        self._reporter = reporter
        self._memory = memory

    async def reconcile(self, key: ObjectKey) -> Result:
        """Connect to the provider and report the result on the class."""
        found = self._classes.get(key)
        if found is None or isinstance(found, Malformed):
            self._memory.forget(key)
            return Done()
        try:
            found = await self._reporter.refresh_if_stale(found)
        except ApiError as problem:
            return self._reporter.ended_by(problem, "the class cannot be read")
        self._memory.of(key, found.metadata.uid)
        with self._reporter.timed(found.metadata):
            result = await self._ask(found)
            now, interval = self._outside.clock.now(), self._outside.interval
            told = await self._reporter.publish(
                found, lambda found: report_of(found.spec, found.status, result, now=now, interval=interval)
            )
        return told.then

    async def _ask(self, found: Any) -> CheckResult:
        outside, resource = self._outside, self._kind.custom.resource()
        kind = KindId(resource.group, resource.version, resource.kind)
        try:
            connection = class_connection(kind, found, settings=outside.resolver.settings, view=outside.resolver.view)
        except ResolutionError as error:
            self._depend(found.metadata.key, None)
            return Unanswered(error.reason.value, error.message)
        self._depend(found.metadata.key, connection)
        try:
            handshake = await outside.directory.refresh(connection)
        except ProviderError as error:
            return Unanswered(cause_of(error), error.message, outside.directory.starting(connection))
        service = connection.endpoint.service
        if service is None:
            return Answered(handshake)
        return Answered(handshake, outside.certificate_end(service), await outside.endpoints(service))

    def _depend(self, key: ObjectKey, connection: Connection | None) -> None:
        """Reconcile again when the provider or its Service changes; release a connection that is no longer used."""
        on: list[Dependency] = []
        if connection is not None:
            on = [on_connection(connection)]
            if (service := connection.endpoint.service) is not None:
                named = ObjectRef(api_version="v1", kind="Service", namespace=service.namespace, name=service.name)
                on = [*on, OnLabel(str(service)), on_object(named)]
        self._outside.dependencies.record(Dependant(self._kind.subsystem, key), on)
