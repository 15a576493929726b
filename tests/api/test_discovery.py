"""Discovery, plain and aggregated, OpenAPI v3, version and health."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


async def test_the_core_group_has_version_one(api: RawApi) -> None:
    reply = await api.get("/api")

    assert reply.body["kind"] == "APIVersions"
    assert reply.body["versions"] == ["v1"]
    assert reply.body["serverAddressByClientCIDRs"]


@pytest.mark.parametrize(
    ("group", "version"),
    [
        ("apps", "v1"),
        ("authentication.k8s.io", "v1"),
        ("authorization.k8s.io", "v1"),
        ("rbac.authorization.k8s.io", "v1"),
        ("coordination.k8s.io", "v1"),
        ("apiextensions.k8s.io", "v1"),
    ],
)
async def test_a_group_is_listed_with_its_preferred_version(api: RawApi, group: str, version: str) -> None:
    groups = (await api.get("/apis")).body["groups"]
    alone = await api.get(f"/apis/{group}")

    found = next(one for one in groups if one["name"] == group)
    assert found["preferredVersion"] == {"groupVersion": f"{group}/{version}", "version": version}
    assert found["preferredVersion"] in found["versions"]
    assert (alone.body["kind"], alone.body["name"]) == ("APIGroup", group)
    assert alone.body["preferredVersion"] == found["preferredVersion"]


CORE, APPS, RBAC = "/api/v1", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"


@pytest.mark.parametrize(
    ("root", "kind", "namespaced", "short"),
    [
        (CORE, "ConfigMap", True, ["cm"]),
        (CORE, "Secret", True, []),
        (CORE, "ServiceAccount", True, ["sa"]),
        (CORE, "Event", True, ["ev"]),
        ("/apis/coordination.k8s.io/v1", "Lease", True, []),
        (RBAC, "Role", True, []),
        (RBAC, "RoleBinding", True, []),
        (RBAC, "ClusterRole", False, []),
        (RBAC, "ClusterRoleBinding", False, []),
        (APPS, "Deployment", True, ["deploy"]),
        (APPS, "StatefulSet", True, ["sts"]),
        (APPS, "DaemonSet", True, ["ds"]),
        ("/apis/apiextensions.k8s.io/v1", "CustomResourceDefinition", False, ["crd", "crds"]),
    ],
)
async def test_a_kind_is_discovered(api: RawApi, root: str, kind: str, namespaced: bool, short: list[str]) -> None:
    reply = await api.get(root)

    assert reply.body["kind"] == "APIResourceList"
    found = next(one for one in reply.body["resources"] if one["kind"] == kind and "/" not in one["name"])
    assert (found["name"], found["singularName"]) == (f"{kind.lower()}s", kind.lower())
    assert found["namespaced"] is namespaced
    assert found.get("shortNames", []) == short
    assert found["verbs"] == ALL_VERBS


@pytest.mark.parametrize(
    ("root", "name", "verbs"),
    [
        pytest.param("/api/v1", "namespaces", [v for v in ALL_VERBS if v != "deletecollection"], id="namespaces"),
        pytest.param("/api/v1", "namespaces/status", ["get", "patch", "update"], id="status of namespaces"),
        pytest.param("/api/v1", "namespaces/finalize", ["update"], id="finalize of namespaces"),
        pytest.param("/api/v1", "serviceaccounts/token", ["create"], id="tokens of service accounts"),
        pytest.param("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", ["create"], id="self access review"),
        pytest.param("/apis/authentication.k8s.io/v1", "tokenreviews", ["create"], id="token review"),
        pytest.param("/apis/apps/v1", "deployments/status", ["get", "patch", "update"], id="status of deployments"),
    ],
)
async def test_the_verbs_of_a_special_resource(api: RawApi, root: str, name: str, verbs: list[str]) -> None:
    resources = (await api.get(root)).body["resources"]

    found = next(one for one in resources if one["name"] == name)
    assert found["verbs"] == verbs


async def test_a_token_subresource_names_its_own_group(api: RawApi) -> None:
    resources = (await api.get("/api/v1")).body["resources"]

    found = next(one for one in resources if one["name"] == "serviceaccounts/token")
    assert (found["group"], found["version"], found["kind"]) == ("authentication.k8s.io", "v1", "TokenRequest")


@pytest.mark.usefixtures("widgets")
class TestCustomKinds:
    async def test_a_custom_group_orders_its_versions(self, api: RawApi) -> None:
        reply = await api.get("/apis/shop.example.com")

        assert [one["version"] for one in reply.body["versions"]] == ["v1", "v1beta1"]
        assert reply.body["preferredVersion"]["version"] == "v1"

    async def test_a_custom_kind_shows_names_and_status(self, api: RawApi) -> None:
        resources = (await api.get("/apis/shop.example.com/v1")).body["resources"]

        kind = next(one for one in resources if one["name"] == "widgets")
        status = next(one for one in resources if one["name"] == "widgets/status")
        assert (kind["shortNames"], kind["categories"], kind["singularName"]) == (["wd"], ["shop"], "widget")
        assert sorted(kind["verbs"]) == ALL_VERBS
        assert sorted(status["verbs"]) == ["get", "patch", "update"]

    async def test_aggregated_discovery_has_custom_kinds(self, api: RawApi) -> None:
        reply = await api.get("/apis", accept=AGGREGATED)

        group = next(one for one in reply.body["items"] if one["metadata"]["name"] == "shop.example.com")
        first = group["versions"][0]
        kind = next(one for one in first["resources"] if one["resource"] == "widgets")
        assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]
        assert kind["responseKind"] == {"group": "shop.example.com", "version": "v1", "kind": "Widget"}
        assert (kind["scope"], kind["singularResource"]) == ("Namespaced", "widget")
        assert (kind["shortNames"], kind["categories"]) == (["wd"], ["shop"])
        assert [one["subresource"] for one in kind["subresources"]] == ["status"]

    async def test_open_api_has_a_document_for_a_custom_group(self, api: RawApi, eventually: Any) -> None:
        document = await eventually(
            lambda: api.get("/openapi/v3/apis/shop.example.com/v1"), lambda reply: reply.status == 200
        )
        index = (await api.get("/openapi/v3")).body["paths"]

        schema = document.body["components"]["schemas"]["com.example.shop.v1.Widget"]
        assert index["apis/shop.example.com/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/shop.example.com/v1")
        assert schema["description"] == "Widget is something a shop sells."
        assert schema["properties"]["spec"]["properties"]["size"]["description"] == "How large it is."
        assert schema["x-kubernetes-group-version-kind"] == [
            {"group": "shop.example.com", "kind": "Widget", "version": "v1"}
        ]
        assert "/apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}" in document.body["paths"]


@pytest.mark.parametrize("path", ["/api", "/apis"])
async def test_aggregated_discovery_is_negotiated(api: RawApi, path: str) -> None:
    reply = await api.get(path, accept=f"{AGGREGATED},application/json")

    assert reply.headers["Content-Type"] == AGGREGATED
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    assert reply.headers["Vary"] == "Accept"


async def test_aggregated_discovery_of_the_core_group(api: RawApi) -> None:
    reply = await api.get("/api", accept=AGGREGATED)

    resources = reply.body["items"][0]["versions"][0]["resources"]
    maps = next(one for one in resources if one["resource"] == "configmaps")
    accounts = next(one for one in resources if one["resource"] == "serviceaccounts")
    assert maps["responseKind"]["kind"] == "ConfigMap"
    assert maps["verbs"] == ALL_VERBS
    assert accounts["subresources"][0]["subresource"] == "token"
    assert accounts["subresources"][0]["responseKind"]["kind"] == "TokenRequest"


async def test_aggregated_discovery_answers_unchanged_to_its_etag(api: RawApi) -> None:
    first = await api.get("/apis", accept=AGGREGATED)

    second = await api.send("GET", "/apis", headers={"Accept": AGGREGATED, "If-None-Match": first.headers["ETag"]})

    assert second.status == 304


@pytest.mark.parametrize("path", ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"])
async def test_open_api_lists_a_document_for_each_version(api: RawApi, path: str) -> None:
    index = (await api.get("/openapi/v3")).body["paths"]

    document = await api.get(index[path]["serverRelativeURL"])

    assert document.status == 200
    assert document.body["openapi"].startswith("3.")
    assert document.body["components"]["schemas"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/openapi/v3/api/v1", {"group": "", "kind": "Secret", "version": "v1"}),
        ("/openapi/v3/apis/apps/v1", {"group": "apps", "kind": "Deployment", "version": "v1"}),
    ],
)
async def test_open_api_schemas_name_their_kind(api: RawApi, path: str, kind: dict[str, str]) -> None:
    schemas: dict[str, Any] = (await api.get(path)).body["components"]["schemas"]

    matching = [one for one in schemas.values() if kind in one.get("x-kubernetes-group-version-kind", [])]
    assert len(matching) == 1
    assert {"apiVersion", "kind", "metadata"} <= set(matching[0]["properties"])


async def test_the_version_needs_no_login(api: RawApi) -> None:
    reply = await api.with_token("").get("/version")

    assert reply.status == 200
    assert reply.body["major"] == "1"
    assert reply.body["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_needs_no_login(api: RawApi, path: str) -> None:
    reply = await api.with_token("").get(path)

    assert (reply.status, reply.body) == (200, "ok")
