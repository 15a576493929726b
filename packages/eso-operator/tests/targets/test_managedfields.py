"""Ownership of fields, by managedFields."""

from eso_operator.targets.metadata import beginning, conversion, fields_of
from kubebase.meta import JsonObject

OURS = "externalsecrets.external-secrets.io/db"


def entry(fields: JsonObject, manager: str = OURS, operation: str = "Apply", **more: str) -> JsonObject:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


def secret(*entries: JsonObject) -> JsonObject:
    return {"metadata": {"resourceVersion": "7", "managedFields": list(entries)}}


def data(*keys: str) -> JsonObject:
    return {"f:data": {".": {}, **{f"f:{key}": {} for key in keys}}}


def test_parts_are_told_apart_by_manager_whatever_the_operation() -> None:
    obj = secret(
        entry(data("a")),
        entry(data("b"), operation="Update"),
        entry(data("b", "c"), manager="kubectl", operation="Update"),
    )

    fields = fields_of(obj, OURS)

    assert fields.ours == {("data", "a"), ("data", "b")}
    assert fields.others == {("data", "b"), ("data", "c")}
    assert fields.only_ours(("data", "a"))
    assert not fields.only_ours(("data", "b"))


def test_metadata_counts_too_lists_by_what_tells_their_elements_apart() -> None:
    metadata: JsonObject = {
        "f:labels": {"f:app.kubernetes.io/name": {}},
        "f:annotations": {"f:note": {}},
        "f:finalizers": {".": {}, 'v:"example.com/hold"': {}},
        "f:ownerReferences": {".": {}, 'k:{"uid":"1-2-3"}': {}},
    }

    assert fields_of(secret(entry({"f:metadata": metadata})), OURS).ours == {
        ("metadata", "labels", "app.kubernetes.io/name"),
        ("metadata", "annotations", "note"),
        ("metadata", "finalizers", "example.com/hold"),
        ("metadata", "ownerReferences", "1-2-3"),
    }


def test_an_entry_of_a_subresource_is_not_ours() -> None:
    assert fields_of(secret(entry(data("a"), subresource="status")), OURS).ours == frozenset()


def test_an_object_without_managed_fields_has_no_managers() -> None:
    odd: list[JsonObject] = [{}, {"metadata": {}}, secret(), secret({}), secret(entry({"f:data": None}))]
    for obj in odd:
        fields = fields_of(obj, OURS)
        assert (fields.ours, fields.others) == (frozenset(), frozenset())


def test_there_is_nothing_to_convert_in_what_we_applied() -> None:
    assert conversion(secret(entry(data("a"))), OURS) == []
    assert conversion(secret(entry(data("a"), manager="kubectl", operation="Update")), OURS) == []


def test_an_entry_of_an_update_becomes_one_of_apply_and_nothing_else_changes() -> None:
    theirs = entry(data("x"), manager="kubectl", operation="Update")
    ours = entry(data("a"), operation="Update", time="2030-01-01T00:00:00Z")

    version, entries = conversion(secret(theirs, ours), OURS)

    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert entries["op"] == "replace"
    assert entries["value"] == [theirs, {**ours, "operation": "Apply"}]


def test_several_entries_become_one_with_the_fields_of_all() -> None:
    first = entry(data("a"))
    second = entry({**data("b"), "f:metadata": {"f:labels": {"f:x": {}}}}, operation="Update")

    _, entries = conversion(secret(first, second), OURS)

    [only] = entries["value"]
    assert only["operation"] == "Apply"
    assert only["fieldsV1"] == {**data("a", "b"), "f:metadata": {"f:labels": {"f:x": {}}}}


def test_an_account_is_begun_where_there_is_none() -> None:
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    path = ("metadata", "annotations", "hash")

    begun = beginning(empty, OURS, path)

    assert begun == [entry({"f:metadata": {"f:annotations": {"f:hash": {}}}}, operation="Update")]
    assert fields_of({"metadata": {"managedFields": begun}}, OURS).ours == {path}
    assert beginning(secret(entry(data("a"))), OURS, path) == []
