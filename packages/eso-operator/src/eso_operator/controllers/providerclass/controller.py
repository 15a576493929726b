"""One ProviderClass or ClusterProviderClass: find the provider, perform a handshake, report the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge

from eso_api.crd import CustomKind
from eso_operator.certificates.issuer import CertificateReport
from eso_operator.controllers.base import Reconciler, Reporter
from eso_operator.controllers.providerclass.status import CheckResult, Connected, NotConnected, report_of
from eso_operator.dependencies import (
    Dependant,
    Dependencies,
    Dependency,
    OnLabel,
    on_connection,
    on_object,
)
from eso_operator.memory import Memory, Record
from eso_operator.providers.directory import Directory
from eso_operator.providers.errors import cause_of
from eso_operator.stores.discovery import class_connection
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Connection, ResolutionError, ServiceKey
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.errors import ProviderError
from eso_wire.values import KindId, ObjectRef
from kubebase.clock import Clock
from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import ReconcileContext, Result
from kuberun.errors import ApiError
from kuberun.requests import Selection

_SLICES: Final = raw(Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"))


class CertificateEnds:
    """Listens to the issuer and reports changed expiry times; bounded by the Services that have certificates."""

    def __init__(self, registry: CollectorRegistry, changed: Callable[[ServiceKey], None]) -> None:
        self._ends: dict[ServiceKey, datetime] = {}
        self._changed = changed
        self._gauge = Gauge(
            "eso_provider_certificate_expiry_timestamp_seconds",
            "When the first certificate of a provider ends",
            ("service",),
            registry=registry,
        )

    def on_report(self, report: CertificateReport) -> None:
        if report.expires_at == self._ends.get(report.service):
            return
        if report.expires_at is not None:
            self._ends[report.service] = report.expires_at
            self._gauge.labels(str(report.service)).set(report.expires_at.timestamp())
        else:
            del self._ends[report.service]
            self._gauge.remove(str(report.service))
        self._changed(report.service)

    def of(self, service: ServiceKey) -> datetime | None:
        return self._ends.get(service)


class Endpoints:
    """Counts the ready addresses behind a Service; none where that cannot be read."""

    def __init__(self, client: Client, trusted: Callable[[ServiceKey], bool]) -> None:
        self._client = client
        self._trusted = trusted

    async def of(self, service: ServiceKey) -> int:
        if self._trusted(service):
            return 1
        selection = Selection(service.namespace, label_selector=f"kubernetes.io/service-name={service.name}")
        try:
            page = await self._client.list(_SLICES, selection)
        except ApiError:
            return 0
        return sum(_ready(entry) for entry in page.items if isinstance(entry, dict))


def _ready(found: JsonObject) -> int:
    endpoints = [entry for entry in found.get("endpoints") or () if isinstance(entry, dict)]
    ready = [entry for entry in endpoints if (entry.get("conditions") or {}).get("ready") is not False]
    return sum(len(entry.get("addresses") or ()) for entry in ready)


@dataclass(frozen=True, slots=True)
class ClassKindInfo:
    """One of the two kinds."""

    custom: CustomKind[Any]
    subsystem: Subsystem


@dataclass(frozen=True, slots=True)
class ClassDeps:
    """The dependencies of both class reconcilers.

    `certificate_end` and `endpoints` return known facts about a Service.
    """

    clock: Clock
    resolver: Resolver
    directory: Directory
    dependencies: Dependencies
    certificate_end: Callable[[ServiceKey], datetime | None]
    endpoints: Callable[[ServiceKey], Awaitable[int]]
    interval: float


class ClassReconciler(Reconciler[Any]):
    """Reconciles the classes of one kind."""

    def __init__(
        self,
        kind: ClassKindInfo,
        classes: Cache[Any],
        deps: ClassDeps,
        *,
        reporter: Reporter[Any],
        memory: Memory[Record],
    ) -> None:
        super().__init__(classes, memory, timed=reporter.timed)
        self._kind = kind
        self._deps = deps
        self._reporter = reporter

    async def fresh(self, obj: Any) -> Any:
        """Return the class with our last write: its result is compared with it."""
        return await self._reporter.refresh_if_stale(obj)

    async def reconcile(self, obj: Any, ctx: ReconcileContext) -> Result:
        """Connect to the provider and report the result on the class."""
        del ctx
        result = await self._handshake(obj)
        now, interval = self._deps.clock.now(), self._deps.interval
        published = await self._reporter.publish(
            obj, lambda found: report_of(found.spec, found.status, result, now=now, interval=interval)
        )
        return published.result

    async def _handshake(self, found: Any) -> CheckResult:
        deps, resource = self._deps, self._kind.custom.resource()
        kind = KindId(resource.group, resource.version, resource.kind)
        try:
            connection = class_connection(kind, found, settings=deps.resolver.settings, view=deps.resolver.view)
        except ResolutionError as error:
            self._depend(found.metadata.key, None)
            return NotConnected(error.reason.value, error.message)
        self._depend(found.metadata.key, connection)
        try:
            handshake = await deps.directory.refresh(connection)
        except ProviderError as error:
            return NotConnected(cause_of(error), error.message, deps.directory.starting(connection))
        service = connection.endpoint.service
        if service is None:
            return Connected(handshake)
        return Connected(handshake, deps.certificate_end(service), await deps.endpoints(service))

    def _depend(self, key: ObjectKey, connection: Connection | None) -> None:
        """Reconcile again when the provider or its Service changes; release a connection that is no longer used."""
        on: list[Dependency] = []
        if connection is not None:
            on = [on_connection(connection)]
            if (service := connection.endpoint.service) is not None:
                named = ObjectRef(api_version="v1", kind="Service", namespace=service.namespace, name=service.name)
                on = [*on, OnLabel(str(service)), on_object(named)]
        self._deps.dependencies.record(Dependant(self._kind.subsystem, key), on)
