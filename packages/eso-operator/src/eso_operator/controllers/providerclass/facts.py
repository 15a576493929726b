"""Facts that a class shows besides the provider's own: expiry of its certificate, number of its addresses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from eso_operator.certificates.issuer import Report
from eso_operator.stores.resolved import ServiceKey
from kubebase.meta import JsonObject, Resource, raw
from kuberun.client import Client
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

    def heard(self, report: Report) -> None:
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
