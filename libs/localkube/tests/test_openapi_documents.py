"""OpenAPI v3 documents: what kubectl looks for is there, and every reference leads somewhere."""

from collections.abc import Iterator
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.model import ServedKind
from localkube.schema.builtin import builtin_kinds
from localkube.schema.crd import accept, prepare_crd, served_kinds
from localkube.schema.openapi import group_versions, openapi_document, openapi_v2


def thing() -> list[ServedKind]:
    schema = {
        "type": "object",
        "description": "A thing.",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "description": "An a."}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd: JsonObject = {
        "metadata": {"name": "things.ex.io"},
        "spec": {
            "group": "ex.io",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }
    assert prepare_crd(crd, None) == []
    crd["status"] = accept(crd, [])
    return served_kinds(crd)


KINDS = [*builtin_kinds(), *thing()]
DOCUMENTS = {path: openapi_document(group) for path, group in group_versions(KINDS).items()}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def private_marks(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key.startswith("x-localkube"):
                yield key
            yield from private_marks(part)
    elif isinstance(value, list):
        for part in value:
            yield from private_marks(part)


@pytest.mark.parametrize("path", [pytest.param(path, id=path) for path in DOCUMENTS])
def test_every_reference_leads_to_a_component_and_nothing_private_leaks(path: str) -> None:
    document = DOCUMENTS[path]

    missing = {
        name for name in references(document) if name.rpartition("/")[2] not in document["components"]["schemas"]
    }

    assert missing == set()
    assert list(private_marks(document)) == []


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=f"{kind.resource.api_version} {kind.resource.kind}") for kind in KINDS]
)
def test_the_operations_of_a_kind_name_it_so_that_explain_finds_its_schema(kind: ServedKind) -> None:
    resource = kind.resource
    document = DOCUMENTS[resource.root.removeprefix("/")]
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}

    collection = document["paths"][resource.path("{namespace}")]
    named = [
        schema
        for schema in document["components"]["schemas"].values()
        if gvk in schema.get("x-kubernetes-group-version-kind", [])
    ]

    methods = [collection[method] for method in ("get", "post") if method in collection]
    assert all(method["x-kubernetes-group-version-kind"] == gvk for method in methods)
    assert methods
    assert len(named) == 1
    assert named[0]["properties"]["metadata"]["allOf"][0]["$ref"].endswith(".ObjectMeta")


def test_patches_advertise_dry_run_and_field_validation() -> None:
    path = DOCUMENTS["apis/ex.io/v1"]["paths"]["/apis/ex.io/v1/namespaces/{namespace}/things/{name}"]

    names = {parameter["name"] for parameter in path["patch"]["parameters"]}

    assert {"dryRun", "fieldValidation", "fieldManager", "force"} <= names


def test_the_component_of_a_custom_kind_is_named_after_its_group() -> None:
    schemas = DOCUMENTS["apis/ex.io/v1"]["components"]["schemas"]

    assert schemas["io.ex.v1.Thing"]["properties"]["spec"]["properties"]["a"]["description"] == "An a."
    assert schemas["io.ex.v1.ThingList"]["properties"]["items"]["items"]["allOf"][0]["$ref"].endswith("io.ex.v1.Thing")


def test_merge_keys_of_lists_reach_clients() -> None:
    schemas = DOCUMENTS["apis/apps/v1"]["components"]["schemas"]

    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]

    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"]["allOf"][0]["$ref"].endswith("io.k8s.api.core.v1.Container")


def test_v2_is_an_empty_envelope() -> None:
    assert openapi_v2()["swagger"] == "2.0"
