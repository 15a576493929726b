"""Operator and CRDs of the previous and of this version, in every order: nothing is rewritten, nothing is lost.

R148, R162. Each step replaces the CRDs or the operator while objects exist. The backend outlives all of them.
"""

from __future__ import annotations

import asyncio
import base64
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Sequence
from typing import Any

import pytest

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.generator import GENERATOR
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND, MAKER, SERVICE, Bench
from kubebase.meta import Condition, JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import SECRETS

pytestmark = [pytest.mark.live, pytest.mark.cluster]

ES, PUSHES, STATES = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource(), GENERATOR_STATE.resource()
V1, V2, GENERATORS = SECRET_STORE.resource(), SECRET_STORE_V2.resource(), GENERATOR.resource()
PARENTS = CLUSTER_EXTERNAL_SECRET.resource()
TARGETS = ("of-v1", "of-v2", "defaulted", "templated", "generated", "child")
CLASSES = PROVIDER_CLASS.resource()
STORE_V2 = {"apiVersion": V2.api_version, "kind": V2.kind, "name": "v2"}
STORES: dict[str, JsonObject] = {"v1": {"kind": V1.kind, "name": "v1"}, "v2": STORE_V2}

Step = tuple[str, str]
"""Which part is replaced, and by which version."""


def is_ready(condition: Condition) -> bool:
    return condition.status == "True"


def reading(store: JsonObject, **fields: Any) -> JsonObject:
    entry = {"secretKey": "password", "remoteRef": {"key": "db"}}
    return {"refreshInterval": "1h", "secretStoreRef": store, "data": [entry], **fields}


def pushing(store: JsonObject, remote_key: str) -> JsonObject:
    return {
        "secretStoreRefs": [store],
        "selector": {"secret": {"name": "source"}},
        "deletionPolicy": "Delete",
        "data": [{"match": {"secretKey": "key", "remoteRef": {"remoteKey": remote_key}}}],
    }


async def populate(cluster: Any) -> None:
    """Create objects of both generations, and wait until all are synced."""
    bench: Bench = cluster.bench
    await bench.create(BACKEND.resource(), "config", spec={"url": "https://backend"})
    await bench.create(MAKER.resource(), "maker", spec={"url": "https://backend"})
    await bench.create(V1, "v1", spec={"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}})
    await bench.create(V2, "v2", spec={"providerConfig": {"providerRef": {"kind": "Backend", "name": "config"}}})
    maker = {"providerConfig": {"providerRef": {"kind": "Maker", "name": "maker"}}}
    await bench.create(GENERATORS, "generator", spec=maker)
    await bench.create(SECRETS, "source", stringData={"key": "pushed"})
    template = {"template": {"data": {"url": "https://user:{{ .password }}@db"}}}
    source = {"apiVersion": GENERATORS.api_version, "kind": GENERATORS.kind, "name": "generator"}
    generated = {"refreshInterval": "0", "dataFrom": [{"sourceRef": {"generatorRef": source}}]}
    await bench.create(ES, "of-v1", spec=reading(STORES["v1"]))
    await bench.create(ES, "defaulted", spec={"secretStoreRef": {"name": "v1"}, "data": reading(STORE_V2)["data"]})
    await bench.create(ES, "of-v2", spec=reading(STORE_V2))
    await bench.create(ES, "templated", spec=reading(STORE_V2, target=template))
    await bench.create(ES, "generated", spec=generated)
    home = {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}}
    child = {"namespaceSelectors": [home], "externalSecretName": "child", "externalSecretSpec": reading(STORE_V2)}
    await bench.create(PARENTS, f"parent-{bench.namespace}", spec=child)
    for name, store in STORES.items():
        await bench.create(PUSHES, name, spec=pushing(store, f"pushed/{name}"))
    await all_ready(bench)


async def all_ready(bench: Bench) -> None:
    for name in TARGETS:
        await bench.ready(ES, name, is_ready)
    for name in STORES:
        await bench.ready(PUSHES, name, is_ready)
        await bench.ready(V1 if name == "v1" else V2, name, is_ready)
    await bench.ready(PARENTS, f"parent-{bench.namespace}", is_ready)


async def picture(cluster: Any) -> JsonObject:
    """Return everything that no step may change."""
    bench: Bench = cluster.bench
    secrets = {
        each["metadata"]["name"]: (each["metadata"]["uid"], each["metadata"]["resourceVersion"], each["data"])
        for each in await listed(bench, SECRETS)
        if not each["metadata"]["name"].startswith("probe")
    }
    assert set(TARGETS) <= set(secrets)
    pushes = {name: await bench.find(PUSHES, name) or {} for name in STORES}
    states = await listed(bench, STATES)
    return {
        "secrets": secrets,
        "records": {
            name: (each["status"]["syncedPushSecrets"], each["metadata"]["finalizers"]) for name, each in pushes.items()
        },
        "states": {each["metadata"]["name"]: (each["metadata"]["uid"], each["spec"]) for each in states},
        "backend": (dict(cluster.provider.stored), set(cluster.provider.books), len(cluster.provider.pushes)),
    }


async def listed(bench: Bench, resource: Resource) -> list[JsonObject]:
    return list((await bench.api.get(resource.path(bench.namespace))).body["items"])


async def works(cluster: Any, release: Any, name: str) -> None:
    """Wait until the operator of a version has read a new value, and has seen everything that existed before."""
    bench: Bench = cluster.bench
    await eventually(lambda: speaks(bench, release.protocol), f"{release.name} does not speak its own protocol")
    cluster.provider.data["probe"] = name.encode()
    entry = {"secretKey": "password", "remoteRef": {"key": "probe"}}
    await bench.create(ES, name, spec={**reading(STORE_V2), "data": [entry]})
    await bench.ready(ES, name, is_ready)
    found = await bench.find(SECRETS, name) or {}
    assert base64.b64decode(found["data"]["password"]).decode() == name
    await all_ready(bench)


async def speaks(bench: Bench, protocol: str) -> bool:
    found = await bench.find(CLASSES, SERVICE) or {}
    return bool((found.get("status") or {}).get("protocol") == protocol)


async def versions(bench: Bench) -> dict[str, str]:
    """Return the versions of all ExternalSecrets and PushSecrets: a status that is written again changes them."""
    found = [*await listed(bench, ES), *await listed(bench, PUSHES)]
    return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}


@pytest.mark.parametrize(
    ("begin", "steps"),
    [
        pytest.param(
            "previous",
            [("crds", "this"), ("operator", "this"), ("operator", "previous"), ("crds", "previous")],
            id="CRDs then operator, and back in the opposite order",
        ),
        pytest.param(
            "previous",
            [("operator", "this"), ("crds", "this"), ("crds", "previous"), ("operator", "previous")],
            id="operator then CRDs, and back in the opposite order",
        ),
        pytest.param("this", [("operator", "previous"), ("operator", "this")], id="a new installation goes back"),
    ],
)
async def test_replacing_crds_and_operator_rewrites_and_loses_nothing(
    cluster: Any, previous: Any, this: Any, begin: str, steps: Sequence[Step]
) -> None:
    releases = {"previous": previous, "this": this}
    crds = operator = releases[begin]
    cluster.provider.data |= {"db": b"v1"}
    await cluster.install(crds)
    async with cluster.operator(operator):
        await cluster.bench.install(cluster.provider, provider_v1_keys="fake")
        await populate(cluster)
        await works(cluster, operator, "probe")
        before = await picture(cluster)

    for number, (part, version) in enumerate(steps):
        if part == "crds":
            await cluster.install(releases[version])
        else:
            operator = releases[version]
        async with cluster.operator(operator):
            await works(cluster, operator, f"probe-{number}")
            quiet = await versions(cluster.bench)
            await works(cluster, operator, f"probe-{number}-again")
            later = await versions(cluster.bench)
        assert await picture(cluster) == before
        assert {name: later[name] for name in quiet} == quiet, "a status is written again and again"

    async with cluster.operator(operator):
        await every_deletion_cleans_up(cluster)


async def every_deletion_cleans_up(cluster: Any) -> None:
    """Records and states of whichever version are good enough to remove what they tell of."""
    bench: Bench = cluster.bench
    for name in STORES:
        await bench.delete(PUSHES, name)
    for state in await listed(bench, STATES):
        await bench.delete(STATES, state["metadata"]["name"])

    async def clean() -> bool:
        return not (cluster.provider.stored or cluster.provider.books or await listed(bench, PUSHES))

    await eventually(clean, "pushed or generated values stay behind")


async def test_the_command_reads_what_the_previous_operator_wrote(cluster: Any, previous: Any, this: Any) -> None:
    """`eso` of this version may be installed first."""
    cluster.provider.data |= {"db": b"v1"}
    await cluster.install(previous)
    async with cluster.operator(previous):
        await cluster.bench.install(cluster.provider, provider_v1_keys="fake")
        await populate(cluster)
        await cluster.bench.patch(ES, "of-v2", {"spec": {"data": [{"secretKey": "x", "remoteRef": {"key": "none"}}]}})
        await cluster.bench.ready(ES, "of-v2", lambda condition: condition.status == "False")

    status = await told(cluster, this, "status", "--all-namespaces")
    why = await told(cluster, this, "why", "externalsecret", "of-v2", "--namespace", cluster.bench.namespace)

    assert "of-v2" in status
    assert "none" in why
    assert all("Traceback" not in each for each in (status, why))


async def told(cluster: Any, release: Any, *arguments: str) -> str:
    """Return what `eso` of a version prints; problems are no failure of the command."""
    config = ("--kubeconfig", str(cluster.bench.kubeconfig))
    command = release.python("-m", "eso_cli.main", *arguments, *config)
    running = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    output, _ = await running.communicate()
    return output.decode()
