"""Operators and providers of two versions: each pair works, and a roll in either order rewrites no Secret (R140, R159).

The provider of each version is a process of its own. A provider that speaks only a newer major is refused with one
condition, and everything that was synced stays (R141).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.certificates.local import replace_set
from eso_testkit.cli.providerprocess import ProviderProcess
from eso_testkit.operator.operators import LABEL, PORT, SERVICE, SERVICES, Bench
from eso_wire.tls import client_id
from kubebase.meta import Condition, JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = [pytest.mark.live, pytest.mark.cluster]

ES, PUSHES, CLASSES = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource(), PROVIDER_CLASS.resource()
V1, V2 = SECRET_STORE.resource(), SECRET_STORE_V2.resource()
REFS: dict[str, JsonObject] = {
    "of-v1": {"kind": V1.kind, "name": "v1"},
    "of-v2": {"apiVersion": V2.api_version, "kind": V2.kind, "name": "v2"},
}
DATA = [{"key": "db", "value": "v1"}]


def is_ready(condition: Condition) -> bool:
    return condition.status == "True"


def reading(store: JsonObject) -> JsonObject:
    entry = {"secretKey": "password", "remoteRef": {"key": "db"}}
    return {"refreshInterval": "1h", "secretStoreRef": store, "data": [entry]}


class Roll:
    """One provider's Service, its process in either version, and objects that use it."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster = cluster
        self.bench: Bench = cluster.bench
        client = client_id("cluster.local", self.bench.namespace, "external-secrets")
        self.process = ProviderProcess((), folder / "provider", folder / "tls", client, self.bench.port)
        self.faults = folder / "faults.json"

    async def begin(self, release: Any) -> None:
        """Install the provider's Service; start its process with the certificates that the operator issues."""
        spec = {"ports": [{"name": "grpc", "port": PORT}]}
        await self.bench.create(SERVICES, SERVICE, metadata={"labels": LABEL}, spec=spec)
        await eventually(self.bench.server_material, "no certificates were issued")
        found = await self.bench.find(SECRETS, f"{SERVICE}-provider-tls") or {}
        names = ("ca.crt", "tls.crt", "tls.key")
        replace_set(self.process.tls, {name: base64.b64decode(found["data"][name]) for name in names})
        await self.start(release)

    async def start(self, release: Any, *protocols: str) -> None:
        """Replace the process, as a rolling update does."""
        await self.process.stop()
        listed = ", ".join(f'"{each}"' for each in protocols)
        self.faults.write_text(f'{{"rules": [], "protocols": [{listed}]}}' if protocols else "{}")
        self.process.command = release.fake_provider
        await self.process.start("--faults", str(self.faults))

    async def populate(self) -> None:
        await self.bench.create(V1, "v1", spec={"provider": {"fake": {"data": DATA}}})
        inline = {"kind": "Fake", "spec": {"data": DATA}}
        await self.bench.create(V2, "v2", spec={"refreshInterval": "1s", "providerConfig": {"inline": inline}})
        for name, ref in REFS.items():
            await self.bench.create(ES, name, spec=reading(ref))
        await self.bench.create(SECRETS, "source", stringData={"key": "pushed"})
        push = {
            "secretStoreRefs": [REFS["of-v2"]],
            "selector": {"secret": {"name": "source"}},
            "deletionPolicy": "Delete",
            "data": [{"match": {"secretKey": "key", "remoteRef": {"remoteKey": "pushed"}}}],
        }
        await self.bench.create(PUSHES, "push", spec=push)
        await self.settled()

    async def settled(self) -> None:
        for name in REFS:
            await self.bench.ready(ES, name, is_ready)
        await self.bench.ready(PUSHES, "push", is_ready)
        for resource, name in ((V1, "v1"), (V2, "v2")):
            await self.bench.ready(resource, name, is_ready)

    async def reads(self, name: str) -> None:
        """Wait until the running pair has read a value for a new ExternalSecret, through both generations of stores."""
        for of, ref in REFS.items():
            await self.bench.create(ES, f"{name}-{of}", spec=reading(ref))
            await self.bench.ready(ES, f"{name}-{of}", is_ready)

    async def picture(self) -> JsonObject:
        secrets = {name: await self.bench.find(SECRETS, name) or {} for name in (*REFS, "source")}
        push = await self.bench.find(PUSHES, "push") or {}
        kept = {name: (each["metadata"]["resourceVersion"], each["data"]) for name, each in secrets.items()}
        return {**kept, "push": (push["status"]["syncedPushSecrets"], push["metadata"]["finalizers"])}

    async def agrees(self, protocol: str) -> None:
        async def look() -> bool:
            found = await self.bench.find(CLASSES, SERVICE) or {}
            return bool((found.get("status") or {}).get("protocol") == protocol)

        await eventually(look, f"operator and provider do not agree on protocol {protocol}")


@pytest.fixture
async def roll(cluster: Any, tmp_path: Path) -> Any:
    made = Roll(cluster, tmp_path)
    yield made
    made.process.kill()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(["operator", "provider", "provider", "operator"], id="the operator first, and back last"),
        pytest.param(["provider", "operator", "operator", "provider"], id="the provider first, and back last"),
        pytest.param(["operator", "provider", "operator", "provider"], id="the operator first both times"),
    ],
)
async def test_operator_and_provider_are_replaced_in_either_order(
    roll: Any, previous: Any, this: Any, steps: Sequence[str]
) -> None:
    """Each step replaces one side by the other version."""
    other = {"previous": this, "this": previous}
    running = {"operator": previous, "provider": previous}
    await roll.cluster.install(this)
    async with roll.cluster.operator(previous):
        await roll.begin(previous)
        await roll.populate()
        before = await roll.picture()

    for number, side in enumerate(steps):
        running[side] = other[running[side].name]
        if side == "provider":
            await roll.start(running[side])
        async with roll.cluster.operator(running["operator"]):
            await roll.agrees(min(each.protocol for each in running.values()))
            await roll.reads(f"probe-{number}")
            await roll.settled()
        assert await roll.picture() == before


async def test_a_provider_of_a_newer_major_is_refused_with_one_condition_and_nothing_is_lost(
    roll: Any, this: Any
) -> None:
    """Nothing is read or written until a provider or an operator that fits is installed."""
    await roll.cluster.install(this)
    async with roll.cluster.operator(this):
        await roll.begin(this)
        await roll.populate()
        before = await roll.picture()

        await roll.start(this, "3.0", "3.1")

        found = await roll.bench.ready(V2, "v2", says_both)
        assert [each["type"] for each in found["status"]["conditions"] if each["status"] == "False"] == ["Ready"]
        await roll.bench.create(ES, "late", spec=reading(REFS["of-v2"]))
        await roll.bench.ready(ES, "late", lambda condition: "ProviderIncompatible" in condition.message)
        assert await roll.picture() == before

        await roll.start(this)

        await roll.bench.ready(ES, "late", is_ready)
        await roll.settled()
        assert await roll.picture() == before


def says_both(condition: Condition) -> bool:
    words = ("3.0, 3.1", "2.")
    return condition.reason == "ProviderIncompatible" and all(word in condition.message for word in words)
