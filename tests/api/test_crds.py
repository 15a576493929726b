"""The life of a CustomResourceDefinition: refused, established, changed, in conflict, deleted."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kuberun.testing.rawapi import JSON_PATCH, RawApi, Reply

pytestmark = pytest.mark.live

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def condition(reply: Reply, kind: str) -> dict[str, str]:
    conditions = (reply.body.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {"status": "", "reason": ""})


async def test_a_definition_becomes_established(crd: Any, install: Any) -> None:
    reply = await install(crd("lamps", "Lamp"))

    assert condition(reply, "NamesAccepted")["reason"] == "NoConflicts"
    assert condition(reply, "Established")["reason"] == "InitialNamesAccepted"
    assert reply.body["status"]["storedVersions"] == ["v1"]
    assert reply.body["status"]["acceptedNames"] == {
        "plural": "lamps",
        "singular": "lamp",
        "kind": "Lamp",
        "listKind": "LampList",
    }


async def test_names_and_conversion_are_defaulted(api: RawApi, crd: Any, install: Any) -> None:
    await install(crd("desks", "Desk"))

    spec = (await api.get(f"{CRDS}/desks.shop.example.com")).body["spec"]

    assert (spec["names"]["singular"], spec["names"]["listKind"]) == ("desk", "DeskList")
    assert spec["conversion"] == {"strategy": "None"}


def without_schema(crd: dict[str, Any]) -> None:
    del crd["spec"]["versions"][0]["schema"]


def two_storage_versions(crd: dict[str, Any]) -> None:
    crd["spec"]["versions"].append({**copy.deepcopy(crd["spec"]["versions"][0]), "name": "v2"})


def not_structural(crd: dict[str, Any]) -> None:
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": {}}}


def wrong_name(crd: dict[str, Any]) -> None:
    crd["metadata"]["name"] = "chairs.example.com"


def bad_scope(crd: dict[str, Any]) -> None:
    crd["spec"]["scope"] = "Everywhere"


def bad_version(crd: dict[str, Any]) -> None:
    crd["spec"]["versions"][0]["name"] = "V_1"


def bad_default(crd: dict[str, Any]) -> None:
    field = {"type": "integer", "default": "text"}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"x": field}}


def bad_rule(crd: dict[str, Any]) -> None:
    field = {"type": "integer", "x-kubernetes-validations": [{"rule": "self.nothing >"}]}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"x": field}}


def bad_column(crd: dict[str, Any]) -> None:
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [{"name": "X", "type": "shape", "jsonPath": ".x"}]


def uppercase_plural(crd: dict[str, Any]) -> None:
    crd["spec"]["names"]["plural"] = "Chairs"
    crd["metadata"]["name"] = "Chairs.shop.example.com"


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        pytest.param(without_schema, "openAPIV3Schema", id="no schema"),
        pytest.param(two_storage_versions, "spec.versions", id="two storage versions"),
        pytest.param(not_structural, "openAPIV3Schema.properties[spec].type", id="a schema that is not structural"),
        pytest.param(wrong_name, "metadata.name", id="a name that is not plural.group"),
        pytest.param(bad_scope, "spec.scope", id="an unknown scope"),
        pytest.param(bad_version, "versions[0].name", id="a bad version name"),
        pytest.param(bad_default, "openAPIV3Schema.properties[x].default", id="a default of the wrong type"),
        pytest.param(
            bad_rule,
            "openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule",
            id="a rule that does not compile",
        ),
        pytest.param(bad_column, "additionalPrinterColumns[0].type", id="an unknown column type"),
        pytest.param(uppercase_plural, "spec.names.plural", id="a plural in upper case"),
    ],
)
async def test_a_bad_definition_is_invalid(api: RawApi, crd: Any, spoil: Any, field: str) -> None:
    body = crd("chairs", "Chair")
    spoil(body)

    reply = await api.post(CRDS, body)

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert any(cause["field"].endswith(field) for cause in reply.causes), reply.causes
    assert reply.body["details"]["group"] == "apiextensions.k8s.io"
    assert reply.body["details"]["kind"] == "CustomResourceDefinition"


async def test_a_path_that_is_no_text_is_refused(api: RawApi, crd: Any) -> None:
    chairs = crd("chairs", "Chair")
    chairs["spec"]["versions"][0]["subresources"] = {
        "scale": {"specReplicasPath": 1, "statusReplicasPath": ".status.n"}
    }

    reply = await api.post(CRDS, chairs)

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "specReplicasPath" in reply.message


async def test_a_kind_that_is_taken_is_not_accepted(api: RawApi, crd: Any, install: Any, eventually: Any) -> None:
    await install(crd("pens", "Pen"))
    second = crd("stylos", "Pen", names={"listKind": "StyloList"})
    await api.post(CRDS, second)
    path = f"{CRDS}/stylos.shop.example.com"

    refused = await eventually(
        lambda: api.get(path), lambda reply: condition(reply, "NamesAccepted")["status"] == "False"
    )
    unserved = await api.get("/apis/shop.example.com/v1/stylos")

    await api.delete(path)
    assert condition(refused, "NamesAccepted")["reason"] == "KindConflict"
    assert condition(refused, "Established")["status"] == "False"
    assert unserved.status == 404


async def test_a_conflicting_name_is_accepted_once_it_is_free(
    api: RawApi, crd: Any, install: Any, eventually: Any
) -> None:
    await install(crd("cups", "Cup", names={"shortNames": ["cu"]}))
    await api.post(CRDS, crd("mugs", "Mug", names={"shortNames": ["cu"]}))
    path = f"{CRDS}/mugs.shop.example.com"
    refused = await eventually(
        lambda: api.get(path), lambda reply: condition(reply, "NamesAccepted")["status"] == "False"
    )

    await api.delete(f"{CRDS}/cups.shop.example.com")
    await eventually(lambda: api.get(path), lambda reply: condition(reply, "NamesAccepted")["status"] == "True")

    await api.delete(path)
    assert condition(refused, "NamesAccepted")["reason"] == "ShortNamesConflict"


async def test_a_version_added_later_is_served(api: RawApi, crd: Any, install: Any, eventually: Any) -> None:
    body = crd("vases", "Vase")
    await install(body)
    added = {**body["spec"]["versions"][0], "name": "v2", "storage": False}

    await api.patch(
        f"{CRDS}/vases.shop.example.com", [{"op": "add", "path": "/spec/versions/-", "value": added}], JSON_PATCH
    )

    await eventually(lambda: api.get("/apis/shop.example.com/v2/vases"), lambda reply: reply.status == 200)


async def test_a_new_storage_version_is_recorded(api: RawApi, crd: Any, install: Any) -> None:
    body = crd("bowls", "Bowl")
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v2", "storage": False})
    await install(body)
    path = f"{CRDS}/bowls.shop.example.com"

    changed = await api.patch(
        path,
        [
            {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
            {"op": "replace", "path": "/spec/versions/1/storage", "value": True},
        ],
        JSON_PATCH,
    )

    assert changed.status == 200
    assert changed.body["status"]["storedVersions"] == ["v1", "v2"]


async def test_a_stored_version_cannot_be_removed(api: RawApi, crd: Any, install: Any) -> None:
    body = crd("trays", "Tray")
    await install(body)

    reply = await api.patch(
        f"{CRDS}/trays.shop.example.com",
        [{"op": "replace", "path": "/spec/versions", "value": [{**body["spec"]["versions"][0], "name": "v2"}]}],
        JSON_PATCH,
    )

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "status.storedVersions[0]" in {cause["field"] for cause in reply.causes}


@pytest.mark.parametrize(
    ("pointer", "value", "field"),
    [
        pytest.param("/spec/scope", "Cluster", "spec.scope", id="the scope"),
        pytest.param("/spec/names/plural", "others", "spec.names.plural", id="the plural"),
        pytest.param("/spec/names/kind", "Other", "spec.names.kind", id="the kind"),
    ],
)
async def test_identity_is_immutable_once_established(
    api: RawApi, crd: Any, install: Any, *, pointer: str, value: str, field: str
) -> None:
    await install(crd("rings", "Ring"))

    reply = await api.patch(
        f"{CRDS}/rings.shop.example.com", [{"op": "replace", "path": pointer, "value": value}], JSON_PATCH
    )

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert field in {cause["field"] for cause in reply.causes}


async def test_deleting_a_definition_deletes_its_objects_and_path(
    api: RawApi, namespace: str, crd: Any, eventually: Any, install: Any
) -> None:
    body = crd("coins", "Coin")
    await install(body)
    collection = f"/apis/shop.example.com/v1/namespaces/{namespace}/coins"
    await api.post(collection, {"apiVersion": "shop.example.com/v1", "kind": "Coin", "metadata": {"name": "a"}})

    await api.delete(f"{CRDS}/coins.shop.example.com")
    await eventually(lambda: api.get(collection), lambda reply: reply.status == 404)
    await eventually(lambda: api.get(f"{CRDS}/coins.shop.example.com"), lambda reply: reply.status == 404)
    await install(body)

    assert (await api.get(collection)).body["items"] == []


async def test_a_deleted_definition_waits_for_finalizers_of_its_objects(
    api: RawApi, namespace: str, crd: Any, eventually: Any, install: Any
) -> None:
    await install(crd("dials", "Dial"))
    collection = f"/apis/shop.example.com/v1/namespaces/{namespace}/dials"
    kind = {"apiVersion": "shop.example.com/v1", "kind": "Dial"}
    await api.post(collection, {**kind, "metadata": {"name": "a", "finalizers": ["example.com/hold"]}})

    deleted = await api.delete(f"{CRDS}/dials.shop.example.com")
    await eventually(
        lambda: api.get(f"{CRDS}/dials.shop.example.com"),
        lambda reply: condition(reply, "Terminating")["reason"] == "InstanceDeletionInProgress",
    )
    late = await api.post(collection, {**kind, "metadata": {"name": "b"}})
    await api.patch(f"{collection}/a", {"metadata": {"finalizers": None}})

    assert deleted.body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert (late.status, late.reason) == (403, "Forbidden")
    await eventually(lambda: api.get(f"{CRDS}/dials.shop.example.com"), lambda reply: reply.status == 404)


async def test_a_group_of_kubernetes_needs_an_approval(api: RawApi, crd: Any) -> None:
    reply = await api.post(CRDS, crd("toys", "Toy", group="toys.k8s.io"))

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert [cause["field"] for cause in reply.causes] == ["metadata.annotations[api-approved.kubernetes.io]"]
