"""Tests of certificates on an API server: an operator's certificate parts on a clock that can be put forward."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from eso_operator.certificates.client import ClientCertificates, ClientCertificateSettings, client_secrets
from eso_operator.certificates.issuance import review
from eso_operator.certificates.issuer import CertificateReport, Issuer
from eso_operator.certificates.settings import IssuerSettings
from eso_operator.certificates.worker import CertificateWorker, Review, ReviewRequest
from eso_operator.stores.resolved import ServiceKey
from kubebase.clock import SystemClock
from kubebase.testing.waiting import eventually
from kuberun.client import Client
from kuberun.manager import Manager
from kuberun.testing.rawapi import RawApi


class ShiftedClock(SystemClock):
    """Real time, plus an offset that a test adds."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class InProcessWorker(CertificateWorker):
    """A worker without a process of its own, which counts its reviews."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews = 0

    async def review(self, request: ReviewRequest) -> Review:
        self.reviews += 1
        return review(request)


@dataclass
class Operator:
    """The certificate components of one operator process."""

    issuer: Issuer
    certificates: ClientCertificates
    clock: ShiftedClock
    reports: list[CertificateReport] = field(default_factory=list)


@asynccontextmanager
async def operator(
    client: Client,
    core: str,
    *,
    served: tuple[str, ...] | None = None,
    worker: CertificateWorker | None = None,
    **more: Any,
) -> AsyncIterator[Operator]:
    """Run the certificate components.

    By default they serve their own namespace and the team's; an empty set means the cluster.

    The team's namespace has providers for all namespaces. `more` are further settings. Reviews
    run in this process, unless another `worker` is given.
    """
    clock, reports = ShiftedClock(), list[CertificateReport]()
    team = f"{core}-team"
    given = {"namespaces": (core, team) if served is None else served, "shared": (team,), **more}
    settings = IssuerSettings(core, **given)
    issuer = Issuer(client, settings, clock=clock, worker=worker or InProcessWorker())
    issuer.listen(reports.append)
    certificates = ClientCertificates(
        client,
        client_secrets(client, core, clock),
        ClientCertificateSettings(core, fresh=0.0),
        clock=clock,
        issuer=issuer,
    )
    manager = Manager(clock=clock, drain=5.0)
    manager.add_controller(issuer.controller)
    manager.add_informer(certificates.informer)
    manager.add_service("certificates", certificates.run)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(manager.run())
        for informer in (*issuer.controller.informers, certificates.informer):
            await informer.wait_synced()
        yield Operator(issuer, certificates, clock, reports)
        manager.stop()
        await running


async def create_service(api: RawApi, service: ServiceKey, **labels: str) -> None:
    body = {
        "metadata": {"name": service.name, "labels": {key.replace("_", "-"): value for key, value in labels.items()}},
        "spec": {"ports": [{"name": "grpc", "port": 8080}], "selector": {"app": service.name}},
    }
    created = await api.post(f"/api/v1/namespaces/{service.namespace}/services", body)
    if created.status != 201:
        raise AssertionError(created.body)


async def label(api: RawApi, service: ServiceKey) -> None:
    path = f"/api/v1/namespaces/{service.namespace}/services/{service.name}"
    await api.patch(path, {"metadata": {"labels": {"external-secrets.io/provider": "true"}}})


async def secret(api: RawApi, namespace: str, name: str) -> dict[str, Any] | None:
    found = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
    return found.body if found.status == 200 else None


async def gone(api: RawApi, namespace: str, name: str) -> None:
    async def is_gone() -> bool:
        return await secret(api, namespace, name) is None

    await eventually(is_gone)


def decoded(document: dict[str, Any], key: str) -> bytes:
    return base64.b64decode(document["data"][key])
