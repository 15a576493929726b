"""Which provider an object needs, and when `eso up` hears of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from eso_api.references import CORE_GROUP
from eso_api.secretstore import SECRET_STORE
from eso_cli.demand import Demand
from eso_sdk.installed import installed, load
from eso_tools.providers import Want, offers, wanted_by
from kubebase.clock import SystemClock
from localkube.cluster import Cluster
from localkube.manifests import install

V1, V2 = f"{CORE_GROUP}/v1", "secretstore.external-secrets.io/v2alpha1"
GENERATORS, GENERATORS_V2 = "generators.external-secrets.io/v1alpha1", "generator.external-secrets.io/v2alpha1"
STORE_CONFIG, GENERATOR_CONFIG = "provider.secretstore.external-secrets.io", "provider.generator.external-secrets.io"
SECONDS = 20.0


def obj(api_version: str, kind: str, spec: Any, name: str = "one", namespace: str = "app") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def connection(**named: Any) -> dict[str, Any]:
    return {"providerConfig": named}


@pytest.mark.parametrize(
    ("needy", "provider"),
    [
        pytest.param(obj(V1, "SecretStore", {"provider": {"fake": {}}}), "fake", id="a v1 store"),
        pytest.param(obj(V1, "ClusterSecretStore", {"provider": {"fake": {}}}), "fake", id="a v1 cluster store"),
        pytest.param(
            obj(V1, "SecretStore", {"provider": {"plugin": {"providerRef": {"kind": "Fake", "name": "a"}}}}),
            "fake",
            id="a v1 store with a plugin",
        ),
        pytest.param(obj(V1, "SecretStore", {"provider": {"vaultlike": {}}}), None, id="a key that no provider serves"),
        pytest.param(obj(V1, "SecretStore", {"provider": {"fake": {}, "aws": {}}}), None, id="two keys at once"),
        pytest.param(obj(GENERATORS, "Password", {"length": 8}), "generators", id="a v1alpha1 generator"),
        pytest.param(obj(GENERATORS, "ClusterGenerator", {"kind": "UUID"}), "generators", id="a ClusterGenerator"),
        pytest.param(obj(GENERATORS, "ECRAuthorizationToken", {"region": "a"}), "aws", id="a generator of a cloud"),
        pytest.param(
            obj(GENERATORS_V2, "Generator", connection(providerRef={"kind": "STSSessionToken", "name": "a"})),
            "aws",
            id="a v2 generator of a cloud",
        ),
        pytest.param(
            obj(GENERATORS, "GeneratorState", {"resource": obj(GENERATORS, "Password", {})}),
            "generators",
            id="a state whose generator is gone",
        ),
        pytest.param(
            obj(GENERATORS, "GeneratorState", {"resource": obj(GENERATORS, "GeneratorState", {})}),
            None,
            id="a state of a state",
        ),
        pytest.param(
            obj(V2, "SecretStore", connection(providerRef={"kind": "Fake", "name": "a"})), "fake", id="a v2 store"
        ),
        pytest.param(
            obj(V2, "ClusterSecretStore", connection(inline={"kind": "Fake", "spec": {}})), "fake", id="inline"
        ),
        pytest.param(
            obj(
                V2,
                "SecretStore",
                connection(providerRef={"apiVersion": "other.example/v1", "kind": "Fake", "name": "a"}),
            ),
            None,
            id="a kind of that name in another group",
        ),
        pytest.param(
            obj(f"{CORE_GROUP}/v1alpha1", "Provider", {"providerRef": {"kind": "Fake", "name": "a"}}),
            "fake",
            id="a Provider",
        ),
        pytest.param(
            obj(f"{CORE_GROUP}/v1alpha1", "ClusterProvider", {"config": {"providerRef": {"kind": "Fake"}}}),
            "fake",
            id="a ClusterProvider, as earlier drafts spelled it",
        ),
        pytest.param(
            obj(GENERATORS_V2, "Generator", connection(providerRef={"kind": "UUID", "name": "a"})),
            "generators",
            id="a v2 generator",
        ),
        pytest.param(obj(f"{STORE_CONFIG}/v2alpha1", "Fake", {}), "fake", id="a configuration"),
        pytest.param(obj(f"{STORE_CONFIG}/v2alpha1", "ClusterFake", {}), "fake", id="a cluster-scoped configuration"),
        pytest.param(obj(f"{GENERATOR_CONFIG}/v2alpha1", "Password", {}), "generators", id="a generator's own kind"),
        pytest.param(obj(V1, "SecretStore", "nonsense"), None, id="a spec that is no object"),
        pytest.param(obj(V2, "SecretStore", connection(providerRef="nonsense")), None, id="a reference that is none"),
    ],
)
def test_an_object_needs_the_provider_that_serves_what_it_names(needy: dict[str, Any], provider: str | None) -> None:
    served = offers(("fake", "generators", "aws"), pytest.fail)

    want = wanted_by(needy)

    assert (served.get(want) if want is not None else None) == provider


def test_no_kind_is_served_by_two_installed_providers() -> None:
    served = Counter(info.kind for name in installed() for info in load(name).kind_infos)

    assert [kind for kind, providers in served.items() if providers > 1] == []


def test_a_provider_that_cannot_be_loaded_is_reported_and_hides_no_other() -> None:
    said: list[str] = []

    served = offers(("nonsense", "fake"), said.append)

    assert served[Want("", "fake")] == "fake"
    assert len(said) == 1
    assert said[0].startswith('no provider "nonsense" is installed')


async def test_each_provider_is_named_once_by_the_first_object_that_needs_it() -> None:
    said: list[str] = []
    async with Cluster(None, clock=SystemClock()) as cluster:
        await install(cluster, [SECRET_STORE.crd(), obj("v1", "Namespace", {}, "app", "")])
        demand = Demand(cluster, (), ("fake", "nonsense"), warn=said.append)
        with demand.following():
            nothing = await demand.take_needed()
            before = list(said)
            store = obj(V1, "SecretStore", {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}})
            await install(cluster, [store])
            async with asyncio.timeout(SECONDS):
                await demand.changed()
                first = await demand.take_needed()
            await install(cluster, [{**store, "metadata": {"name": "two", "namespace": "app"}}])
            again = await demand.take_needed()

    assert (nothing, before) == ({}, [])  # nothing is imported for a cluster without stores
    assert first == {"fake": "SecretStore app/one"}
    assert again == {}
    assert "nonsense" in said[0]
    assert not demand.is_met


async def test_a_provider_that_runs_keeps_what_another_one_serves_too() -> None:
    async with Cluster(None, clock=SystemClock()) as cluster:
        await install(cluster, [SECRET_STORE.crd(), obj("v1", "Namespace", {}, "app", "")])
        demand = Demand(cluster, ("fake",), ("generators",), warn=pytest.fail)
        await install(cluster, [obj(V1, "SecretStore", {"provider": {"fake": {"data": []}}})])

        assert await demand.take_needed() == {}


async def test_the_needs_of_objects_that_are_about_to_be_created_are_known_before_them() -> None:
    async with Cluster(None, clock=SystemClock()) as cluster:
        demand = Demand(cluster, (), ("fake", "generators"), warn=pytest.fail)
        await demand.expect([obj("v1", "Secret", {}), obj("apps/v1", "Deployment", {}), {"kind": "SecretStore"}])
        nothing = await demand.take_needed()

        await demand.expect([obj("v1", "Secret", {}), obj(V1, "SecretStore", {"provider": {"fake": {}}})])

        assert nothing == {}
        assert await demand.take_needed() == {"fake": "SecretStore app/one"}


async def test_what_no_installed_provider_serves_is_said_once() -> None:
    said: list[str] = []
    async with Cluster(None, clock=SystemClock()) as cluster:
        demand = Demand(cluster, (), ("fake",), warn=said.append)

        await demand.expect([obj(V1, "SecretStore", {"provider": {"chef": {}}}, name) for name in ("one", "two")])
        await demand.expect([{"apiVersion": V1, "kind": "SecretStore", "spec": {"provider": {"other": {}}}}])

    assert [line.partition(";")[0] for line in said] == [
        "SecretStore app/one: no installed provider serves spec.provider.chef",
        "SecretStore : no installed provider serves spec.provider.other",
    ]
