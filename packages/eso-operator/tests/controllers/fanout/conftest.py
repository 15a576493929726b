"""A fan-out controller on a live API server, and namespaces of one test alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from eso_operator.controllers.base import Channels, EventPublisher, Reporter
from eso_operator.controllers.fanout.controller import (
    CHILD_NAME_INDEX,
    PARENT_INDEX,
    FanOutDeps,
    by_child_name,
    by_parent,
)
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, FanOut
from eso_operator.controllers.fanout.status import subject_of
from eso_operator.telemetry.metrics import ObjectSeries
from eso_operator.wiring_controllers import FanOutWatches, Memories, fan_out_controller
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.transports import Between
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, ObjectKey, metadata_of
from kubebase.testing.waiting import eventually
from kuberun import config
from kuberun.client import Client
from kuberun.controller import Controller, Reconcile, ReconcileContext
from kuberun.errors import ApiError
from kuberun.events import EventRecorder
from kuberun.informer import Informer
from kuberun.manager import Manager
from kuberun.requests import Request
from kuberun.testing.builders import NAMESPACES
from kuberun.testing.rawapi import MERGE_PATCH
from kuberun.transport import AiohttpTransport, Transport

SPEC: JsonObject = {
    "secretStoreRef": {"kind": "ClusterSecretStore", "name": "shared"},
    "refreshInterval": "1h",
    "data": [{"secretKey": "password", "remoteRef": {"key": "db"}}],
}


@dataclass
class CountingTransport(Between):
    """Notes every write that the server took; fails those whose `where` holds a key of `broken`.

    A write decided on old facts is refused and changes nothing, so it does not count.
    """

    inner: Transport
    writes: list[str] = field(default_factory=list)
    broken: dict[str, ApiError] = field(default_factory=dict)

    async def request(self, request: Request) -> bytes:
        counts = request.method != "GET" and "/events" not in request.path
        for where, error in self.broken.items():
            if counts and where in request.where:
                raise error
        answer = await self.inner.request(request)
        if counts:
            self.writes.append(request.where)
        return answer


@dataclass(slots=True)
class Running:
    """A running controller: its reconciles of each parent, its writes and metrics, and the calls that fail."""

    writes: list[str]
    broken: dict[str, ApiError]
    series: ObjectSeries
    looks: dict[ObjectKey, int] = field(default_factory=dict)

    def writes_of(self, fleet: Fleet) -> list[str]:
        """Those of one test; other tests' objects may still be on their way out of the cluster."""
        return [write for write in self.writes if fleet.mark in write]

    async def looked_again(self, name: str, times: int = 2) -> None:
        """Wait until the parent has been reconciled that many more times."""
        key = ObjectKey("", name)
        goal = self.looks.get(key, 0) + times

        async def enough() -> bool:
            return self.looks.get(key, 0) >= goal

        await eventually(enough, f"{name} was not looked at again")

    def counted(self, reconcile: Reconcile) -> Reconcile:
        async def looked(key: ObjectKey, ctx: ReconcileContext) -> Any:
            outcome = await reconcile(key, ctx)
            self.looks[key] = self.looks.get(key, 0) + 1
            return outcome

        return looked


@dataclass(slots=True)
class Fleet:
    """Namespaces and a parent that belong to one test; `mark` is in all their names."""

    bench: Bench
    mark: str
    fan_out: FanOut = CLUSTER_EXTERNAL_SECRETS

    @property
    def name(self) -> str:
        return f"everywhere-{self.mark}"

    @property
    def selector(self) -> JsonObject:
        return {"matchLabels": {"fan-out": self.mark}}

    # --- the controller -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        clock = SystemClock()
        transport = CountingTransport(AiohttpTransport(config.load(self.bench.kubeconfig)))
        client = Client(transport)
        running = Running(transport.writes, transport.broken, ObjectSeries())
        recorder = EventRecorder(client, clock, component="external-secrets")
        fan_out = self.fan_out
        memory = Memories().parents(fan_out.subsystem)
        channels = Channels(client, clock, running.series, EventPublisher(recorder))
        reporter: Reporter[Any] = Reporter(subject_of(fan_out), channels, memory)
        watches = FanOutWatches(
            Informer(
                client.source(fan_out.parent),
                clock=clock,
                name="parents",
                indexes={CHILD_NAME_INDEX: by_child_name(fan_out)},
            ),
            Informer(client.source(fan_out.child), clock=clock, name="children", indexes={PARENT_INDEX: by_parent}),
            Informer(client.source(metadata_of(NAMESPACES)), clock=clock, name="namespaces"),
        )

        def make(name: str, reconcile: Reconcile) -> Controller:
            return Controller(name, running.counted(reconcile), clock=clock)

        manager = Manager(clock=clock)
        manager.add_service("events", recorder.run)
        manager.add_controller(
            fan_out_controller(fan_out, watches, FanOutDeps(client, clock, reporter, memory), make=make)
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(manager.run())
                try:
                    yield running
                finally:
                    manager.stop()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the test's own complaint reads better without the group
        finally:
            await client.close()

    # --- namespaces ---------------------------------------------------------------------------------------------------

    def ns(self, name: str) -> str:
        return f"{name}-{self.mark}"

    async def namespaces(self, *names: str, labelled: bool = True) -> list[str]:
        for name in names:
            metadata: JsonObject = {"name": self.ns(name)}
            if labelled:
                metadata["labels"] = {"fan-out": self.mark}
            answer = await self.bench.api.post("/api/v1/namespaces", {"metadata": metadata})
            assert answer.status == 201, answer.body
        return [self.ns(name) for name in names]

    async def label(self, name: str, value: str | None) -> None:
        await self.bench.patch(NAMESPACES, self.ns(name), {"metadata": {"labels": {"fan-out": value}}})

    async def namespace(self, name: str) -> JsonObject | None:
        return await self.bench.find(NAMESPACES, self.ns(name))

    # --- parents ------------------------------------------------------------------------------------------------------

    async def create(self, metadata: JsonObject | None = None, **spec: Any) -> JsonObject:
        """The test's parent. It means the labelled namespaces, unless the spec says otherwise."""
        fields = {"externalSecretSpec": SPEC, "namespaceSelector": self.selector, **spec}
        given = {name: value for name, value in fields.items() if value is not None}
        return await self.bench.create(self.fan_out.parent.resource, self.name, metadata=metadata or {}, spec=given)

    async def patch(self, patch: JsonObject) -> None:
        await self.bench.patch(self.fan_out.parent.resource, self.name, patch)

    async def parent(self) -> JsonObject | None:
        return await self.bench.find(self.fan_out.parent.resource, self.name)

    async def status(self, wanted: Callable[[JsonObject], bool]) -> JsonObject:
        """The parent's status as soon as it is as wanted."""
        seen: list[JsonObject] = []

        async def look() -> JsonObject | None:
            seen[:] = [(await self.parent() or {}).get("status") or {}]
            return seen[0] if wanted(seen[0]) else None

        return await _told(look, lambda: f"the status is {seen}")

    async def provisioned(self, *names: str) -> JsonObject:
        """The status when exactly these namespaces have their child and all is well."""
        expected = sorted(self.ns(name) for name in names)
        return await self.status(
            lambda status: status.get("provisionedNamespaces", []) == expected and _ready(status) == "True"
        )

    async def failed(self) -> JsonObject:
        return await self.status(lambda status: _ready(status) == "False")

    # --- children -----------------------------------------------------------------------------------------------------

    def path(self, namespace: str, name: str = "") -> str:
        return self.fan_out.child.resource.path(self.ns(namespace), name or self.name)

    async def child(self, namespace: str, name: str = "") -> JsonObject | None:
        answer = await self.bench.api.get(self.path(namespace, name))
        return dict(answer.body) if answer.status == 200 else None

    async def child_is(
        self, namespace: str, wanted: Callable[[JsonObject], bool], complaint: str, name: str = ""
    ) -> JsonObject:
        async def look() -> JsonObject | None:
            found = await self.child(namespace, name)
            return found if found is not None and wanted(found) else None

        return await eventually(look, complaint)

    async def no_child(self, namespace: str, name: str = "") -> None:
        async def gone() -> bool:
            return await self.child(namespace, name) is None

        await eventually(gone, f"there is still a child in {namespace}")

    async def edit_child(self, namespace: str, patch: JsonObject) -> None:
        answer = await self.bench.api.patch(self.path(namespace), patch, MERGE_PATCH)
        assert answer.status == 200, answer.body

    async def report(self, namespace: str, ready: str, reason: str, message: str = "") -> None:
        """Write the status of a child, as its controller does."""
        condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
        path = f"{self.path(namespace)}/status"
        answer = await self.bench.api.patch(path, {"status": {"conditions": [condition]}}, MERGE_PATCH)
        assert answer.status == 200, answer.body

    async def foreign(self, namespace: str, name: str = "") -> JsonObject:
        """An object of the child's kind that another writer made."""
        metadata = {"name": name or self.name, "namespace": self.ns(namespace)}
        resource = self.fan_out.child.resource
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": SPEC}
        answer = await self.bench.api.post(resource.path(self.ns(namespace)), document)
        assert answer.status == 201, answer.body
        return dict(answer.body)

    async def clean(self) -> None:
        """Nothing of the test stays in a cluster that others use."""
        api = self.bench.api
        for parent in await _items(self.bench, self.fan_out.parent.resource.path()):
            if self.mark in parent["metadata"]["name"]:
                path = self.fan_out.parent.resource.path("", parent["metadata"]["name"])
                await api.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
                await api.delete(path)
        for namespace in await _items(self.bench, "/api/v1/namespaces"):
            if self.mark in namespace["metadata"]["name"]:
                path = f"/api/v1/namespaces/{namespace['metadata']['name']}"
                await api.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
                await api.delete(path)


def _ready(status: JsonObject) -> str:
    return next((entry["status"] for entry in status.get("conditions", []) if entry["type"] == "Ready"), "")


async def _items(bench: Bench, path: str) -> list[JsonObject]:
    return list((await bench.api.get(path)).body["items"])


async def _told(look: Callable[[], Awaitable[JsonObject | None]], complaint: Callable[[], str]) -> JsonObject:
    try:
        return await eventually(look, "not as wanted")
    except AssertionError:
        raise AssertionError(complaint()) from None


@pytest.fixture
async def fleet(bench: Bench) -> AsyncIterator[Fleet]:
    fleet = Fleet(bench, secrets.token_hex(4))
    yield fleet
    await fleet.clean()
