"""The gate V2Stores: v2 kinds are turned off and on again, and nothing is lost (R150, R153)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.controllers.secretstore.finalizer import FINALIZER
from eso_operator.controllers.secretstore.kinds import STORE_KINDS, Generation
from eso_operator.settings import FeatureGate, Settings
from eso_testkit.operator.operators import BACKEND, MAKER, Bench, scripted
from eso_testkit.operator.scenes import FAKE_STORE
from eso_testkit.operator.transports import Between
from kubebase.meta import Condition, JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.requests import Request
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

ES = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE_V2.resource()
PUSHES = PUSH_SECRET.resource()
V2_GROUPS = {kind.resource.group for kind in STORE_KINDS if kind.generation is Generation.V2} - {ES.group}
OWN_KINDS = {BACKEND.resource().group, MAKER.resource().group}


class Streams(Between):
    """Notes which groups are watched."""

    def __init__(self) -> None:
        self.groups: set[str] = set()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self.groups.add(request.path.split("/")[2])
        return self.inner.stream(request)


def wanted(reference: JsonObject) -> JsonObject:
    entry = {"secretKey": "password", "remoteRef": {"key": "db"}}
    return {"refreshInterval": "1h", "secretStoreRef": reference, "data": [entry]}


def push_to(store: str) -> JsonObject:
    """A PushSecret holds the stores that it names, also if their provider cannot be pushed to."""
    reference = {"apiVersion": STORES.api_version, "kind": STORES.kind, "name": store}
    return {
        "secretStoreRefs": [reference],
        "selector": {"secret": {"name": "source"}},
        "deletionPolicy": "Delete",
        "data": [{"match": {"secretKey": "key", "remoteRef": {"remoteKey": "pushed"}}}],
    }


def is_ready(condition: Condition) -> bool:
    return condition.status == "True"


def names_the_gate(condition: Condition) -> bool:
    return condition.status == "False" and "V2Stores" in condition.message


class Story:
    """Two v2 stores that PushSecrets hold, a v1 store, and an ExternalSecret of each generation."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @property
    def off(self) -> Settings:
        return replace(self.bench.settings, gates=self.bench.settings.gates - {FeatureGate.V2_STORES})

    async def begin(self) -> None:
        bench = self.bench
        await bench.install(scripted(data={"db": b"v1"}), provider_v1_keys="fake")
        await bench.create(BACKEND.resource(), "config", spec={"url": "https://backend"})
        config = {"providerConfig": {"providerRef": {"kind": "Backend", "name": "config"}}}
        await bench.create(SECRETS, "source", stringData={"key": "a value"})
        for name in ("kept", "doomed"):
            await bench.create(STORES, name, spec=config)
            await bench.create(PUSHES, name, spec=push_to(name))
        await bench.create(SECRET_STORE.resource(), "old", spec=FAKE_STORE)
        new = {"apiVersion": STORES.api_version, "kind": STORES.kind, "name": "kept"}
        own = {"apiVersion": BACKEND.resource().api_version, "kind": "Backend", "name": "config"}
        for name, reference in (("new", new), ("own", own), ("old", {"kind": "SecretStore", "name": "old"})):
            await bench.create(ES, name, spec=wanted(reference))
            await bench.ready(ES, name, is_ready)

    async def held(self, name: str) -> bool:
        found = await self.bench.find(STORES, name)
        return found is not None and FINALIZER in found["metadata"].get("finalizers", ())

    async def released(self) -> bool:
        return not await self.held("kept") and await self.bench.find(STORES, "doomed") is None

    async def synced_v1(self) -> bool:
        found = await self.bench.find(SECRETS, "old")
        return found is not None and found["metadata"]["annotations"].get("copied") == "while-off"

    async def versions(self) -> dict[str, str]:
        found = {name: await self.bench.find(SECRETS, name) for name in ("new", "own")}
        return {name: each["metadata"]["resourceVersion"] for name, each in found.items() if each is not None}


async def test_v2_kinds_are_turned_off_and_on_again_without_a_loss(bench: Bench) -> None:
    story, streams = Story(bench), Streams()
    async with bench.operator():
        await story.begin()
        for name in ("kept", "doomed"):
            await eventually(lambda name=name: story.held(name), f"store {name} is not held")  # type: ignore[misc]  # bound per turn
        before = await story.versions()

    async with bench.operator(story.off, through=streams.over):
        await bench.delete(STORES, "doomed")
        for name in ("new", "own"):
            found = await bench.ready(ES, name, names_the_gate)
            assert [each["reason"] for each in found["status"]["outcomes"]] == ["FeatureDisabled"]
        await bench.ready(PUSHES, "kept", names_the_gate)
        await eventually(story.released, "finalizers of v2 stores block their deletion")
        await bench.patch(ES, "old", {"metadata": {"annotations": {"copied": "while-off"}}})
        await eventually(story.synced_v1, "v1 stores do not work while v2 is off")
        assert not streams.groups & (V2_GROUPS | OWN_KINDS)
        off = await story.versions()

    async with bench.operator():
        for name in ("new", "own"):
            await bench.ready(ES, name, is_ready)
        await eventually(lambda: story.held("kept"), "the store is not held again")
        after = await story.versions()

    assert set(before) == {"new", "own"}
    assert before == off == after


async def test_a_cluster_external_secret_keeps_its_children_while_v2_kinds_are_off(bench: Bench) -> None:
    """R153: the child, its Secret and the parent outlive the gate; none is written for it."""
    parents, name = CLUSTER_EXTERNAL_SECRET.resource(), f"shared-{bench.namespace}"
    home = {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}}
    async with bench.operator():
        await bench.install(scripted(data={"db": b"v1"}))
        await bench.create(BACKEND.resource(), "config", spec={"url": "https://backend"})
        config = {"providerConfig": {"providerRef": {"kind": "Backend", "name": "config"}}}
        await bench.create(STORES, "store", spec=config)
        reference = {"apiVersion": STORES.api_version, "kind": STORES.kind, "name": "store"}
        spec = {"namespaceSelectors": [home], "externalSecretName": "child", "externalSecretSpec": wanted(reference)}
        await bench.create(parents, name, spec=spec)
        child = await bench.ready(ES, "child", is_ready)
        await bench.ready(parents, name, is_ready)
        before = await bench.find(SECRETS, "child") or {}

    async with bench.operator(Story(bench).off):
        off = await bench.ready(ES, "child", names_the_gate)

    async with bench.operator():
        on = await bench.ready(ES, "child", is_ready)
        await bench.ready(parents, name, is_ready)
        after = await bench.find(SECRETS, "child") or {}
        await bench.delete(parents, name)
        await eventually(lambda: _gone(bench, parents, name), "the parent stays")

    assert {each["metadata"]["uid"] for each in (child, off, on)} == {child["metadata"]["uid"]}
    assert {each["metadata"]["generation"] for each in (child, off, on)} == {1}
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def _gone(bench: Bench, resource: Resource, name: str) -> bool:
    return await bench.find(resource, name) is None
