"""Values that no object can hold: of a wrong type, null, too large, without a key; and forms that an answer lacks."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
REVIEWS = {
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": {"spec": {"namespace": "default"}},
    "/apis/authentication.k8s.io/v1/tokenreviews": {"spec": {"token": "x"}},
    "/api/v1/namespaces/default/serviceaccounts/default/token": {"spec": {}},
}


def deployment(container: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "b"} | (container or {})]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, **pod}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}


def definition(schema: dict[str, Any]) -> dict[str, Any]:
    """A definition whose objects have a field `a` of that schema."""
    version: dict[str, Any] = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"a": schema}}}
    names = {"plural": "oddities", "kind": "Oddity"}
    spec = {"group": "wrong.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "oddities.wrong.example.com"}, "spec": spec}


@pytest.fixture
def deployments(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/deployments"


@pytest.mark.parametrize(
    ("container", "field", "wanted"),
    [
        (
            {"env": [{"name": "a", "valueFrom": "x"}]},
            "EnvVar.spec.template.spec.containers.env.valueFrom",
            "EnvVarSource",
        ),
        ({"securityContext": "x"}, "Container.spec.template.spec.containers.securityContext", "SecurityContext"),
    ],
    ids=["the source of a variable", "a security context"],
)
async def test_text_in_place_of_an_object(
    api: RawApi, deployments: str, container: dict[str, Any], field: str, wanted: str
) -> None:
    reply = await api.post(deployments, deployment(container))

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert f"cannot unmarshal string into Go struct field {field} of type v1.{wanted}" in reply.message


@pytest.mark.parametrize(
    ("container", "pod", "missing"),
    [
        ({"env": [{}]}, {}, "containers[0].env[0].name"),
        ({"ports": [{}]}, {}, "containers[0].ports[0].containerPort"),
        ({"volumeMounts": [{"name": "v"}]}, {"volumes": [{"name": "v"}]}, "containers[0].volumeMounts[0].mountPath"),
        ({}, {"volumes": [{}]}, "volumes[0].name"),
        ({}, {"initContainers": [{}]}, "initContainers[0].image"),
        ({}, {"topologySpreadConstraints": [{}]}, "topologySpreadConstraints[0].topologyKey"),
    ],
    ids=["variable", "port", "mount", "volume", "container", "constraint"],
)
async def test_items_are_told_apart_by_a_key(
    api: RawApi, deployments: str, container: dict[str, Any], pod: dict[str, Any], missing: str
) -> None:
    reply = await api.post(deployments, deployment(container, **pod))

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert f"spec.template.spec.{missing}" in [cause["field"] for cause in reply.causes]


@pytest.mark.usefixtures("widgets")
async def test_a_version_of_a_definition_has_a_name(api: RawApi) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.shop.example.com"
    made = (await api.get(path)).body
    del made["spec"]["versions"][0]["name"]

    reply = await api.patch(path, {"spec": {"versions": made["spec"]["versions"]}}, dryRun="All")

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "spec.versions[0].name" in [cause["field"] for cause in reply.causes]


@pytest.mark.parametrize("items", ["x", True, 5], ids=["text", "flag", "number"])
async def test_items_that_are_no_schema_are_none(api: RawApi, items: object) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

    required = await api.post(path, definition({"type": "array", "items": items}), dryRun="All")
    dropped = await api.post(path, definition({"type": "object", "items": items}), dryRun="All")

    assert (required.status, dropped.status) == (422, 201)
    assert required.message.endswith("properties[a].items: Required value: must be specified")
    assert dropped.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"] == {"type": "object"}


async def test_a_reference_without_a_name_can_be_applied_over(api: RawApi, deployments: str) -> None:
    made = await api.post(deployments, deployment(imagePullSecrets=[{}]))

    applied = await api.apply(f"{deployments}/a", deployment(), manager="one", force=True)

    assert (made.status, applied.status) == (201, 200)


async def test_null_in_a_list_of_texts_is_an_empty_text(api: RawApi, widgets: str, widget: Any) -> None:
    body = widget()
    body["metadata"]["finalizers"] = [None]

    reply = await api.post(widgets, body)

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert 'metadata.finalizers: Invalid value: "": name part must be non-empty' in reply.message


async def test_null_in_a_map_of_texts_is_an_empty_text(api: RawApi, widgets: str, widget: Any) -> None:
    body = widget()
    body["metadata"]["labels"] = {"a": None}

    reply = await api.post(widgets, body)

    assert (reply.status, reply.body["metadata"]["labels"]) == (201, {"a": ""})


@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["large", "small"])
async def test_a_number_that_no_float_holds(api: RawApi, widgets: str, widget: Any, number: int) -> None:
    reply = await api.post(widgets, widget(size=number))

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "into Go value of type float64" in reply.message


@pytest.mark.parametrize("path", REVIEWS)
async def test_an_answer_that_is_not_stored_is_no_table(api: RawApi, path: str) -> None:
    refused = await api.send("POST", path, REVIEWS[path], headers={"Accept": TABLE})
    answered = await api.send("POST", path, REVIEWS[path], headers={"Accept": f"{TABLE},application/json"})

    assert (refused.status, refused.reason) == (406, "NotAcceptable")
    assert (answered.status, "status" in answered.body) == (201, True)


async def test_one_object_is_no_list(api: RawApi, configmaps: str, widgets: str, widget: Any) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})
    await api.post(widgets, widget())

    built_in = await api.get(f"{configmaps}/a", accept=METADATA_LIST)
    custom = await api.get(f"{widgets}/w", accept=METADATA_LIST)

    assert (built_in.status, custom.status) == (406, 500)
    assert built_in.message.endswith("the requested object is not a list (*core.ConfigMap)")
    assert custom.message == "content is not a list"
