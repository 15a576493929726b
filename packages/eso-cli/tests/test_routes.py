"""Which provider classes a store leads to."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.clustersecretstore import CLUSTER_SECRET_STORE
from eso_api.crd import CustomKind
from eso_api.generators.password import PASSWORD
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.clustersecretstore import CLUSTER_SECRET_STORE_V2
from eso_api.v2.generator import GENERATOR
from eso_api.v2.provider import PROVIDER
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_cli.routes import SERVICES, Classes, route_of
from kuberun.meta import JsonObject, ObjectKey, Resource, key_of

STORES = "provider.secretstore.external-secrets.io"
GENERATORS = "provider.generator.external-secrets.io"


def one(name: str, namespace: str = "", **spec: Any) -> JsonObject:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def serves(group: str, kind: str) -> list[dict[str, str]]:
    return [{"group": group, "version": "v2alpha1", "kind": kind}]


def classes() -> Classes:
    found = Classes()
    own = [one("near", "app", v1ProviderKeys=["vault"])]
    shared = [one("far", "eso", v1ProviderKeys=["vault", "aws"], serves=serves(STORES, "Fake"))]
    shared.append(one("maker", "eso", serves=[*serves(GENERATORS, "Fake"), *serves(PASSWORD.group, "Password")]))
    found.add(PROVIDER_CLASS.resource(), [*own, *shared])
    found.add(CLUSTER_PROVIDER_CLASS.resource(), [one("wide", v1ProviderKeys=["gcp"]), one("big", serves=[])])
    return found


REF = {"providerRef": {"kind": "Fake", "name": "x"}}


@pytest.mark.parametrize(
    ("kind", "spec", "home", "expected"),
    [
        pytest.param(SECRET_STORE, {"provider": {"vault": {}}}, "app", ["near"], id="the own namespace comes first"),
        pytest.param(CLUSTER_SECRET_STORE, {"provider": {"aws": {}}}, "", ["far"], id="a key of a v1 store"),
        pytest.param(SECRET_STORE, {"provider": {"gcp": {}}}, "app", ["wide"], id="a class of the cluster"),
        pytest.param(SECRET_STORE, {"provider": {"none": {}}}, "app", [], id="a key that nobody declares"),
        pytest.param(SECRET_STORE_V2, {"providerConfig": REF}, "app", ["far"], id="a v2 store by kind"),
        pytest.param(GENERATOR, {"providerConfig": REF}, "app", ["maker"], id="a generator of the same kind name"),
        pytest.param(PASSWORD, {"length": 5}, "app", ["maker"], id="a v1 generator is its own configuration"),
        pytest.param(
            CLUSTER_SECRET_STORE_V2,
            {"providerConfig": {"providerRef": {"kind": "ClusterFake", "name": "x"}}},
            "",
            ["far"],
            id="a cluster-scoped twin",
        ),
        pytest.param(
            PROVIDER,
            {"classRef": {"name": "big"}, **REF},
            "app",
            ["big"],
            id="a class that is named, whatever it serves",
        ),
        pytest.param(
            PROVIDER,
            {"config": {"classRef": {"kind": "ProviderClass", "name": "near"}, **REF}},
            "app",
            ["near"],
            id="a class of the own namespace, spelled below config",
        ),
    ],
)
def test_a_store_leads_to(kind: CustomKind[Any], spec: dict[str, Any], home: str, expected: list[str]) -> None:
    document = {"metadata": {"name": "s", "namespace": home}, "spec": spec}

    found = classes().serving(route_of(kind.resource(), document), home)

    assert [key_of(each.document).name for each in found] == expected


@pytest.mark.parametrize(
    ("address", "resource", "key"),
    [
        pytest.param("grpc://p.eso.svc:8080", SERVICES, ObjectKey("eso", "p"), id="a Service"),
        pytest.param("grpc://p.eso.svc.cluster.local:8080", SERVICES, ObjectKey("eso", "p"), id="a Service in full"),
        pytest.param("grpc://example.com:8080", None, ObjectKey("", ""), id="somewhere else"),
    ],
)
def test_an_address_leads_to(address: str, resource: Resource | None, key: ObjectKey) -> None:
    route = route_of(PROVIDER.resource(), {"spec": {"address": address, **REF}})

    assert (route.resource, route.key) == (resource, key)


@pytest.mark.parametrize("spec", [None, {}, {"provider": "text"}, {"provider": {"a": {}, "b": {}}}])
def test_a_spec_of_another_shape_leads_nowhere(spec: Any) -> None:
    route = route_of(SECRET_STORE.resource(), {"spec": spec})

    assert classes().serving(route, "app") == []
