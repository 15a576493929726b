"""A first start and a restart: objects wait for a provider that is known and does not answer yet."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.settings import Settings
from eso_testkit.operator.operators import BACKEND_ID, LABEL, PORT, SERVICE, SERVICES, Bench, scripted
from eso_testkit.operator.storingprovider import storing
from eso_testkit.operator.transports import Between
from kubebase.meta import Condition, Resource
from kubebase.testing.waiting import eventually
from kuberun.requests import Request

pytestmark = pytest.mark.live

STORES, STORES_V2, CLASSES = SECRET_STORE.resource(), SECRET_STORE_V2.resource(), PROVIDER_CLASS.resource()
SECRETS, PUSHES = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()
FAKE = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
INLINE = {"providerConfig": {"inline": {"kind": "Backend", "spec": {}}}}
READS = {
    "secretStoreRef": {"name": "store"},
    "refreshInterval": "1s",
    "data": [{"secretKey": "k", "remoteRef": {"key": "a"}}],
}
PUSHED = {
    "secretStoreRefs": [{"name": "store"}],
    "refreshInterval": "1s",
    "selector": {"secret": {"name": "db"}},
    "data": [{"match": {"secretKey": "k", "remoteRef": {"remoteKey": "pushed"}}}],
}
OBJECTS: tuple[tuple[Resource, str, Any], ...] = (
    (STORES, "store", FAKE),
    (STORES_V2, "store2", INLINE),
    (SECRETS, "db", READS),
    (PUSHES, "push", PUSHED),
)
SERVES = {
    "external-secrets.io/provider-kinds": str(BACKEND_ID),
    "external-secrets.io/provider-v1-keys": "fake",
}


class StatusWrites(Between):
    """Counts the writes of statuses that the API server took, by kind and name."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()

    async def request(self, request: Request) -> bytes:
        answer = await self.inner.request(request)
        if request.method == "PATCH" and request.path.endswith("/status"):
            self.taken["/".join(request.path.split("/")[-3:-1])] += 1
        return answer


class HeldCertificates(Between):
    """Holds the writes of certificate Secrets until `released`, as a busy API server would."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def request(self, request: Request) -> bytes:
        if request.method != "GET" and "/secrets/" in f"{request.path}/":
            await self.released.wait()
        return await self.inner.request(request)


def is_ready(condition: Condition) -> bool:
    return condition.status == "True"


def waits(condition: Condition) -> bool:
    said = f"{condition.reason} {condition.message}"
    return condition.status == "Unknown" and ("ProviderStarting" in said or "does not exist yet" in said)


def alone(bench: Bench) -> Settings:
    return replace(bench.settings, namespace=bench.namespace)


async def create_service(bench: Bench, annotations: dict[str, str], port: int = PORT) -> None:
    spec = {"ports": [{"name": "grpc", "port": port}]}
    await bench.create(SERVICES, SERVICE, metadata={"labels": LABEL, "annotations": annotations}, spec=spec)


async def warnings(bench: Bench) -> list[str]:
    listed = await bench.api.get(f"/api/v1/namespaces/{bench.namespace}/events")
    return [f"{each['reason']}: {each['message']}" for each in listed.body["items"] if each["type"] == "Warning"]


@pytest.mark.parametrize("annotations", [pytest.param(SERVES, id="declared"), pytest.param({}, id="not declared")])
async def test_new_objects_say_once_that_their_provider_starts_and_become_ready_without_a_warning(
    bench: Bench, annotations: dict[str, str]
) -> None:
    writes = StatusWrites()
    await create_service(bench, annotations)
    for resource, name, spec in OBJECTS:
        await bench.create(resource, name, spec=spec)

    async with bench.operator(alone(bench), through=writes.over):
        for resource, name, _ in OBJECTS:
            await bench.ready(resource, name, waits)
        await bench.ready(CLASSES, SERVICE, lambda condition: condition.reason == "ProviderStarting")
        while_it_starts = Counter({name: count for name, count in writes.taken.items() if "class" not in name})
        material = await eventually(bench.server_material, "no certificates were issued for the provider")
        host = await bench.listen(storing(data={"a": b"value"}), material)
        for resource, name, _ in OBJECTS:
            await bench.ready(resource, name, is_ready)
        await bench.ready(CLASSES, SERVICE, is_ready)
        complaints = await warnings(bench)
        await host.stop()

    assert set(while_it_starts.values()) == {1}, while_it_starts
    assert complaints == []


async def test_objects_that_were_ready_stay_so_while_their_provider_starts_again(bench: Bench) -> None:
    async with bench.operator(alone(bench)):
        host = await bench.install(
            storing(data={"a": b"value"}), **{"provider-kinds": str(BACKEND_ID), "provider-v1-keys": "fake"}
        )
        for resource, name, spec in OBJECTS:
            await bench.create(resource, name, spec=spec)
        for resource, name, _ in OBJECTS:
            await bench.ready(resource, name, is_ready)
        await host.stop()
    before = {name: (await bench.find(resource, name) or {})["status"] for resource, name, _ in OBJECTS}
    writes = StatusWrites()

    async with bench.operator(alone(bench), through=writes.over):
        await bench.ready(CLASSES, SERVICE, lambda condition: condition.reason == "ProviderStarting")
        held = {name: (await bench.find(resource, name) or {})["status"] for resource, name, _ in OBJECTS}
        complaints = await warnings(bench)
        await host.start()
        await bench.ready(CLASSES, SERVICE, is_ready)
        await host.stop()

    assert held == before
    assert complaints == []


async def test_a_provider_that_waits_for_its_certificate_says_so(bench: Bench) -> None:
    held = HeldCertificates()
    await create_service(bench, SERVES)
    await bench.create(STORES, "store", spec=FAKE)

    async with bench.operator(alone(bench), through=held.over):
        waiting = await bench.ready(CLASSES, SERVICE, lambda condition: condition.reason == "ProviderStarting")
        await bench.ready(STORES, "store", waits)
        complaints = await warnings(bench)
        held.released.set()
        material = await eventually(bench.server_material, "no certificates were issued for the provider")
        host = await bench.listen(storing(data={"a": b"value"}), material)
        await bench.ready(STORES, "store", is_ready)
        await host.stop()

    (ready,) = waiting["status"]["conditions"]
    assert ready["message"].startswith("CertificatesNotIssued: no client certificate is issued for Service")
    assert complaints == []


async def test_a_provider_that_does_not_start_in_time_is_reported_with_the_reason(bench: Bench) -> None:
    await create_service(bench, SERVES)
    await bench.create(STORES, "store", spec=FAKE)

    async with bench.operator(replace(bench.impatient, namespace=bench.namespace)):
        store = await bench.ready(STORES, "store", lambda condition: condition.status == "False")
        await bench.until_event("store", "Warning", "InvalidProviderConfig")

    (ready,) = store["status"]["conditions"]
    assert "Refused" in ready["message"]
    assert "install" not in ready["message"]


async def test_the_class_of_a_service_follows_its_port_at_once(bench: Bench) -> None:
    async with bench.operator(alone(bench)):
        await bench.install(scripted())
        await bench.ready(CLASSES, SERVICE, is_ready)

        await bench.patch(SERVICES, SERVICE, {"spec": {"ports": [{"name": "grpc", "port": PORT + 1}]}})

        async def follows() -> bool:
            found = await bench.find(CLASSES, SERVICE) or {}
            return str(found["spec"]["address"]).endswith(f":{PORT + 1}")

        await eventually(follows, "the class keeps the former port")
