"""Stores and generators of every form behind ExternalSecrets. On a live API server."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eso_api.crd import CustomKind
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_api.v2.generator import GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_api.values import SecretBytes
from eso_testkit.operator.operators import BACKEND, MAKER
from eso_testkit.operator.scenes import FAKE_STORE, STORE, STORES, Scene
from eso_wire import codec, paths
from eso_wire.values import Generated, ValueMetadata
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import NAMESPACES

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}
BACKENDS = BACKEND.resource()


@asynccontextmanager
async def cluster_object(stage: Scene, kind: CustomKind[Any], spec: JsonObject) -> AsyncIterator[str]:
    """Cluster-scoped objects of several tests are in one cluster."""
    name = f"shared-{secrets.token_hex(4)}"
    await stage.bench.create(kind.resource(), name, spec=spec)
    try:
        yield name
    finally:
        await stage.bench.delete(kind.resource(), name)


def reference(kind: CustomKind[Any], name: str) -> JsonObject:
    return {"apiVersion": kind.resource().api_version, "kind": kind.name, "name": name}


async def with_config(stage: Scene) -> JsonObject:
    """A configuration of the provider's own kind, and how stores refer to it."""
    stage.backend(db="v1")
    await stage.bench.create(BACKENDS, "config", spec={"url": "https://backend"})
    return {"providerRef": {"kind": "Backend", "name": "config"}}


async def test_a_v2_store_is_chosen_by_its_api_version(stage: Scene) -> None:
    """R72, R95, R110: a v1 and a v2 store of the same name are two stores."""
    config = await with_config(stage)
    await stage.bench.create(SECRET_STORE_V2.resource(), STORE, spec={"providerConfig": config})

    await stage.sync("two", ONE, secretStoreRef=reference(SECRET_STORE_V2, STORE))
    await stage.sync("one", ONE, secretStoreRef={"name": STORE, "kind": "SecretStore"})

    specs = stage.provider.identities[-2:]
    assert b"https://backend" in specs[0]
    assert b"https://backend" not in specs[1]
    assert await stage.data("two") == await stage.data("one") == {"password": "v1"}


async def test_a_v2_cluster_store_serves_a_namespace(stage: Scene) -> None:
    """R131."""
    config = await with_config(stage)
    pinned = {"providerRef": {**config["providerRef"], "namespace": stage.bench.namespace}}
    spec = {"providerConfig": pinned, "authenticationScope": "ProviderNamespace"}
    async with cluster_object(stage, CLUSTER_SECRET_STORE_V2, spec) as name:
        await stage.sync("db", ONE, secretStoreRef=reference(CLUSTER_SECRET_STORE_V2, name))

        assert await stage.data("db") == {"password": "v1"}


async def test_a_provider_object_is_a_store(stage: Scene) -> None:
    config = await with_config(stage)
    await stage.bench.create(PROVIDER.resource(), "direct", spec=config)

    await stage.sync("db", ONE, secretStoreRef=reference(PROVIDER, "direct"))

    assert await stage.data("db") == {"password": "v1"}


async def test_a_cluster_provider_object_is_a_store(stage: Scene) -> None:
    config = await with_config(stage)
    pinned = {"providerRef": {**config["providerRef"], "namespace": stage.bench.namespace}}
    async with cluster_object(stage, CLUSTER_PROVIDER, {**pinned, "authenticationScope": "ProviderNamespace"}) as name:
        await stage.sync("db", ONE, secretStoreRef=reference(CLUSTER_PROVIDER, name))

        assert await stage.data("db") == {"password": "v1"}


async def test_a_providers_own_kind_can_be_named_without_any_store(stage: Scene) -> None:
    await with_config(stage)

    await stage.sync("db", ONE, secretStoreRef=reference(BACKEND, "config"))

    assert await stage.data("db") == {"password": "v1"}


@pytest.mark.parametrize(
    ("conditions", "allowed"),
    [
        pytest.param([{"namespaces": ["{own}"]}], True, id="R131 named"),
        pytest.param([{"namespaces": ["elsewhere"]}], False, id="R132 P20 another one is named"),
        pytest.param([{"namespaceSelector": {"matchLabels": {"team": "a"}}}], True, id="selected by label"),
        pytest.param([{"namespaceSelector": {"matchLabels": {"team": "b"}}}], False, id="R132 not selected"),
        pytest.param([{"namespaceRegexes": ["^test-"]}], True, id="by expression"),
    ],
)
async def test_a_cluster_store_serves_whom_its_conditions_name(
    stage: Scene, conditions: list[JsonObject], allowed: bool
) -> None:
    stage.backend(db="v1")
    namespace = stage.bench.namespace
    await stage.bench.patch(NAMESPACES, namespace, {"metadata": {"labels": {"team": "a"}}})
    own = [
        {key: [namespace] if value == ["{own}"] else value for key, value in condition.items()}
        for condition in conditions
    ]
    async with cluster_object(stage, CLUSTER_SECRET_STORE, {**FAKE_STORE, "conditions": own}) as name:
        await stage.apply("db", ONE, secretStoreRef={"name": name, "kind": "ClusterSecretStore"})

        if allowed:
            await stage.ready("db")
            assert await stage.data("db") == {"password": "v1"}
        else:
            await stage.broken("db", "could not get secret data from provider", name)
            assert await stage.secret("db") is None
            assert stage.reads == 0


async def test_a_store_of_another_namespace_cannot_be_reached(stage: Scene) -> None:
    """R130."""
    stage.backend(db="v1")
    other = f"other-{secrets.token_hex(4)}"
    await stage.bench.api.post(NAMESPACES.path(), {"metadata": {"name": other}})
    body = {"apiVersion": STORES.api_version, "kind": STORES.kind, "metadata": {"name": "theirs"}, "spec": FAKE_STORE}
    await stage.bench.api.post(STORES.path(other), body)

    await stage.apply("db", ONE, secretStoreRef={"name": "theirs"})

    await stage.broken("db", "theirs")
    await stage.bench.api.delete(NAMESPACES.path("", other))


async def test_moving_to_a_v2_store_loses_nothing(stage: Scene) -> None:
    """R133, R134: the Secret stays the same object with the same content, and is not written."""
    config = await with_config(stage)
    await stage.bench.create(SECRET_STORE_V2.resource(), "new", spec={"providerConfig": config})
    await stage.sync("db", ONE)
    before = await stage.secret("db")

    await stage.change("db", secretStoreRef={**reference(SECRET_STORE_V2, "new")})

    async def moved() -> bool:
        return any(b"https://backend" in spec for spec in stage.provider.identities)

    await eventually(moved, "the new store is not asked")
    await stage.until_idle()
    assert (await stage.ready("db"))["status"]["syncedResourceVersion"].startswith("2-")
    assert await stage.secret("db") == before


async def test_two_stores_in_one_object(stage: Scene) -> None:
    """P19."""
    config = await with_config(stage)
    stage.backend(user="u1")
    await stage.bench.create(SECRET_STORE_V2.resource(), "new", spec={"providerConfig": config})
    own = {
        "secretKey": "user",
        "remoteRef": {"key": "user"},
        "sourceRef": {"storeRef": reference(SECRET_STORE_V2, "new")},
    }

    await stage.sync("db", data=[{"secretKey": "password", "remoteRef": {"key": "db"}}, own])

    assert await stage.data("db") == {"password": "v1", "user": "u1"}
    assert stage.reads == 2


async def test_a_v1beta1_manifest_works_unedited(stage: Scene) -> None:
    """R35."""
    stage.backend(db="v1")
    path = f"/apis/external-secrets.io/v1beta1/namespaces/{stage.bench.namespace}/externalsecrets"
    spec = {
        "refreshInterval": "1h",
        "secretStoreRef": {"name": STORE, "kind": "SecretStore"},
        "target": {"name": "db", "creationPolicy": "Owner"},
        "data": [{"secretKey": "password", "remoteRef": {"key": "db"}}],
    }
    body = {"apiVersion": "external-secrets.io/v1beta1", "kind": "ExternalSecret", "metadata": {"name": "db"}}

    answer = await stage.bench.api.post(path, {**body, "spec": spec})

    assert answer.status == 201
    await stage.ready("db")
    assert await stage.data("db") == {"password": "v1"}


async def test_a_v2_generator_is_a_source(stage: Scene) -> None:
    """R21, R92."""
    await stage.bench.create(MAKER.resource(), "maker", spec={})
    config = {"providerConfig": {"providerRef": {"kind": "Maker", "name": "maker"}}}
    await stage.bench.create(GENERATOR.resource(), "v2", spec=config)

    await stage.sync("db", dataFrom=[{"sourceRef": {"generatorRef": reference(GENERATOR, "v2")}}])

    assert await stage.data("db") == {"password": "generated"}


async def test_expiring_values_are_renewed_in_time_whatever_the_interval(stage: Scene) -> None:
    """R24: an hour would be too late for a token that lasts a second."""
    stage.provider.lifetime = 1.0
    await stage.bench.create(MAKER.resource(), "maker", spec={})
    entry = {"sourceRef": {"generatorRef": reference(MAKER, "maker")}}

    await stage.sync("db", dataFrom=[entry], refreshInterval="1h")
    renewed = Generated({"password": SecretBytes(b"renewed")}, metadata=ValueMetadata(suggested_refresh=3600.0))
    answer = codec.to_generate_response(renewed).SerializeToString()
    stage.provider.nonsense = lambda method, _: answer if paths.short_name(method) == "Generate" else None
    try:
        await stage.until("db", {"password": "renewed"})
    finally:
        stage.provider.nonsense = None


async def states(stage: Scene) -> dict[str, str | None]:
    """Generated state on record, by name, and when it may be collected."""
    listed = await stage.bench.api.get(GENERATOR_STATE.resource().path(stage.bench.namespace))
    return {each["metadata"]["name"]: each["spec"].get("garbageCollectionDeadline") for each in listed.body["items"]}


async def test_generated_state_lives_for_as_long_as_the_target_holds_the_value(stage: Scene) -> None:
    """A target that could not be written keeps the old value, and so does its state; the new state goes at once."""
    stage.provider.state = b'{"id": 1}'
    await stage.bench.create(MAKER.resource(), "maker", spec={})
    entry = {"sourceRef": {"generatorRef": reference(MAKER, "maker")}}
    await stage.sync("db", dataFrom=[entry])
    [first] = await states(stage)
    made = stage.provider.calls["Generate"]

    await stage.change("db", target={"template": {"data": {"a": "{{ .no_such_key }}"}}})
    await stage.broken("db", "no_such_key")

    async def discarded() -> bool:
        """Return whether unused states are no longer recorded, or have a deadline, and the value in use has none."""
        known = await states(stage)
        made_more = stage.provider.calls["Generate"] > made
        return made_more and [name for name, deadline in known.items() if deadline is None] == [first]

    await eventually(discarded, "the new state is not cleaned up")
    await stage.change("db", refreshPolicy="OnChange", target={"template": None})
    await stage.ready("db")
    known = await states(stage)
    assert known[first] is not None
    assert len([name for name, deadline in known.items() if deadline is None]) == 1
    assert await stage.data("db") == {"password": "generated"}
