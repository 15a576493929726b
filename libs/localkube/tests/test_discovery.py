"""Discovery and OpenAPI documents, as clients read them at their start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kuberun.testing.rawapi import RawApi, raw_api
from localkube.model import version_order
from localkube.server import LocalKube

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OPEN: dict[str, Any] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def definition() -> dict[str, Any]:
    versions = [
        {"name": "v1beta1", "served": True, "storage": False, "schema": OPEN},
        {"name": "v1", "served": True, "storage": True, "schema": OPEN, "subresources": {"status": {}}},
        {"name": "v2alpha1", "served": False, "storage": False, "schema": OPEN},
    ]
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]}
    spec = {"group": "discovery.example.com", "scope": "Namespaced", "names": names, "versions": versions}
    return {"metadata": {"name": "things.discovery.example.com"}, "spec": spec}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RawApi]:
    async with LocalKube() as kube:
        (tmp_path / "ca.crt").write_bytes(kube.certificates.authority_pem)
        token = yaml.safe_load(kube.kubeconfig_text)["users"][0]["user"]["token"]
        async with raw_api(kube.url, token, str(tmp_path / "ca.crt")) as client:
            yield client


async def test_the_core_group(api: RawApi) -> None:
    versions = (await api.get("/api")).body
    resources = {entry["name"]: entry for entry in (await api.get("/api/v1")).body["resources"]}

    assert (versions["kind"], versions["versions"]) == ("APIVersions", ["v1"])
    assert resources["configmaps"] == {
        "name": "configmaps",
        "singularName": "configmap",
        "namespaced": True,
        "kind": "ConfigMap",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["cm"],
        "storageVersionHash": "qFsyl6wFWjQ=",
    }
    assert resources["serviceaccounts/token"] == {
        "name": "serviceaccounts/token",
        "singularName": "",
        "namespaced": True,
        "group": "authentication.k8s.io",
        "version": "v1",
        "kind": "TokenRequest",
        "verbs": ["create"],
    }


async def test_the_groups_and_their_preferred_versions(api: RawApi) -> None:
    await api.post(DEFINITIONS, definition())

    groups = {group["name"]: group for group in (await api.get("/apis")).body["groups"]}
    one = (await api.get("/apis/discovery.example.com")).body

    assert "" not in groups
    assert [version["version"] for version in groups["discovery.example.com"]["versions"]] == ["v1", "v1beta1"]
    assert one["preferredVersion"] == {"groupVersion": "discovery.example.com/v1", "version": "v1"}


async def test_a_definition_is_discovered_as_soon_as_it_is_created(api: RawApi) -> None:
    before = await api.get("/apis/discovery.example.com/v1")
    await api.post(DEFINITIONS, definition())
    after = (await api.get("/apis/discovery.example.com/v1")).body
    older = (await api.get("/apis/discovery.example.com/v1beta1")).body

    assert before.status == 404
    assert [entry["name"] for entry in after["resources"]] == ["things", "things/status"]
    assert [entry["name"] for entry in older["resources"]] == ["things"]
    assert (await api.get("/apis/discovery.example.com/v2alpha1")).status == 404


async def test_everything_in_one_document(api: RawApi) -> None:
    await api.post(DEFINITIONS, definition())

    reply = await api.get("/apis", accept=f"{AGGREGATED},application/json")
    core = await api.get("/api", accept=AGGREGATED)

    assert reply.headers["Content-Type"] == AGGREGATED
    groups = {group["metadata"]["name"]: group for group in reply.body["items"]}
    version = groups["discovery.example.com"]["versions"][0]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    assert version["resources"][0] == {
        "resource": "things",
        "responseKind": {"group": "discovery.example.com", "version": "v1", "kind": "Thing"},
        "scope": "Namespaced",
        "singularResource": "thing",
        "verbs": ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        "shortNames": ["th"],
        "categories": ["all"],
        "subresources": [
            {
                "subresource": "status",
                "responseKind": {"group": "discovery.example.com", "version": "v1", "kind": "Thing"},
                "verbs": ["get", "patch", "update"],
            }
        ],
    }
    assert [group["metadata"] for group in core.body["items"]] == [{}]


async def test_a_client_that_knows_the_document_is_told_so(api: RawApi) -> None:
    first = await api.get("/apis", accept=AGGREGATED)
    headers = {"Accept": AGGREGATED, "If-None-Match": first.headers["ETag"]}

    again = await api.send("GET", "/apis", headers=headers)
    await api.post(DEFINITIONS, definition())
    changed = await api.send("GET", "/apis", headers=headers)

    assert (again.status, changed.status) == (304, 200)


async def test_the_root_lists_paths(api: RawApi) -> None:
    assert {"/api/v1", "/apis/apps/v1", "/openapi/v3", "/version"} <= set((await api.get("/")).body["paths"])


async def test_openapi_documents_are_addressed_by_their_hash(api: RawApi) -> None:
    await api.post(DEFINITIONS, definition())
    index = (await api.get("/openapi/v3")).body["paths"]
    url = index["apis/discovery.example.com/v1"]["serverRelativeURL"]

    document = await api.get(url.partition("?")[0], hash=url.partition("=")[2])
    known = await api.send("GET", url.partition("?")[0], headers={"If-None-Match": document.headers["ETag"]})

    assert "com.example.discovery.v1.Thing" in document.body["components"]["schemas"]
    assert "immutable" in document.headers["Cache-Control"]
    assert known.status == 304
    assert {"api/v1", "apis/apps/v1"} <= index.keys()


async def test_another_definition_leaves_the_other_hashes_alone(api: RawApi) -> None:
    before = (await api.get("/openapi/v3")).body["paths"]
    await api.post(DEFINITIONS, definition())
    after = (await api.get("/openapi/v3")).body["paths"]

    assert {path: after[path] for path in before} == before
    assert after.keys() - before.keys() == {"apis/discovery.example.com/v1", "apis/discovery.example.com/v1beta1"}


async def test_openapi_v3_in_protobuf_is_not_acceptable(api: RawApi) -> None:
    reply = await api.get("/openapi/v3", accept="application/com.github.proto-openapi.spec.v3@v1.0+protobuf")

    assert reply.status == 406


def test_versions_in_the_order_of_preference() -> None:
    names = ["v1alpha1", "v2", "foo1", "v1", "v11beta2", "v10", "v3beta1", "v2beta1", "v12alpha1"]

    assert sorted(names, key=version_order) == [
        "v10", "v2", "v1", "v11beta2", "v3beta1", "v2beta1", "v12alpha1", "v1alpha1", "foo1",
    ]  # fmt: skip
