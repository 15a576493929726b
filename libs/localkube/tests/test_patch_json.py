"""JSON Patch answers as kube-apiserver did to the same operations on a ConfigMap."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.errors import StatusError
from localkube.patch import json_patch

REJECTED = "the server rejected our request due to an error in our request"
DOC: JsonObject = {
    "metadata": {"finalizers": ["x.io/a", "x.io/b"]},
    "data": {"a": "1", "b.c": "2", "sl/ash": "3", "til~de": "4"},
}


def op(kind: str, path: str, *value: Any, **more: Any) -> JsonObject:
    return {"op": kind, "path": path, **({"value": value[0]} if value else {}), **more}


@pytest.mark.parametrize(
    ("ops", "path", "expected"),
    [
        pytest.param([], ["data", "a"], "1", id="no operation changes nothing"),
        pytest.param(None, ["data", "a"], "1", id="null is no operation"),
        pytest.param([op("add", "/data/c", "3")], ["data", "c"], "3", id="add a key"),
        pytest.param([op("add", "/data/c")], ["data", "c"], None, id="a missing value is null"),
        pytest.param([op("add", "/data/a", "9")], ["data", "a"], "9", id="add replaces a key"),
        pytest.param([op("add", "/data/sl~1ash", "9")], ["data", "sl/ash"], "9", id="an escaped slash"),
        pytest.param([op("add", "/data/til~0de", "9")], ["data", "til~de"], "9", id="an escaped tilde"),
        pytest.param(
            [op("add", "/metadata/finalizers/-", "c")],
            ["metadata", "finalizers"],
            ["x.io/a", "x.io/b", "c"],
            id="add at the end",
        ),
        pytest.param(
            [op("add", "/metadata/finalizers/0", "c")],
            ["metadata", "finalizers"],
            ["c", "x.io/a", "x.io/b"],
            id="add in front",
        ),
        pytest.param(
            [op("add", "/metadata/finalizers/-1", "c")],
            ["metadata", "finalizers"],
            ["x.io/a", "x.io/b", "c"],
            id="add counted from the end",
        ),
        pytest.param(
            [op("remove", "/metadata/finalizers/-1")],
            ["metadata", "finalizers"],
            ["x.io/a"],
            id="remove counted from the end",
        ),
        pytest.param([op("replace", "/data/new", "n")], ["data", "new"], "n", id="replace may add a key"),
        pytest.param([op("replace", "/data", {"q": "r"})], ["data"], {"q": "r"}, id="replace a map"),
        pytest.param([op("replace", "", {"data": 1})], ["data"], 1, id="replace the document"),
        pytest.param([op("move", "/data/z", **{"from": "/data/a"})], ["data", "z"], "1", id="move"),
        pytest.param([op("copy", "/data/z", **{"from": "/data/a"})], ["data", "z"], "1", id="copy"),
        pytest.param([op("copy", "/data/z", **{"from": "/data/none"})], ["data", "z"], None, id="copy an absent key"),
        pytest.param([op("test", "/data/a", "1")], ["data", "a"], "1", id="a test that holds"),
        pytest.param([op("test", "/data/none", None)], ["data", "a"], "1", id="an absent key tests equal to null"),
    ],
)
def test_operations_that_apply(ops: Any, path: list[str], expected: Any) -> None:
    before = copy.deepcopy(DOC)

    found = json_patch(DOC, ops)

    for step in path:
        found = found[step]
    assert found == expected
    assert before == DOC


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(op("test", "/data/a", "2"), id="a test that fails"),
        pytest.param(op("test", "/data/a", 1), id="a number is not its text"),
        pytest.param(op("test", "/none/x", 1), id="test below nothing"),
        pytest.param(op("test", "", {}), id="test of the document"),
        pytest.param(op("test", "/metadata/finalizers/9", 1), id="test past the end"),
        pytest.param(op("test", "/metadata/finalizers/x", 1), id="test at no index"),
        pytest.param(op("add", "/none/c", "3"), id="add below nothing"),
        pytest.param(op("add", "/data/a/b", "3"), id="add below a scalar"),
        pytest.param(op("add", "c", 1), id="a path without a slash"),
        pytest.param(op("add", "", {}), id="add the document"),
        pytest.param({"op": "add", "value": 1}, id="no path"),
        pytest.param(op("add", "/metadata/finalizers/3", "c"), id="add past the end"),
        pytest.param(op("add", "/metadata/finalizers/-4", "c"), id="add before the start"),
        pytest.param(op("remove", "/data/none"), id="remove an absent key"),
        pytest.param(op("remove", "/metadata/finalizers/5"), id="remove past the end"),
        pytest.param(op("replace", "/metadata/finalizers/5", "n"), id="replace past the end"),
        pytest.param(op("replace", "", 5), id="a document that is a number"),
        pytest.param(op("move", "/data/z", **{"from": "/data/none"}), id="move an absent key"),
        pytest.param(op("move", "/none/z", **{"from": "/data/a"}), id="move below nothing"),
        pytest.param(op("move", "/data/z"), id="move from nowhere"),
        pytest.param(op("copy", "/x", **{"from": "/metadata/finalizers/9"}), id="copy past the end"),
        pytest.param(op("zork", "/a"), id="an unknown operation"),
        pytest.param({"path": "/a"}, id="no operation"),
        pytest.param(None, id="a null for an operation"),
    ],
)
def test_an_operation_that_does_not_apply_ends_the_patch(operation: Any) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch(DOC, [operation])

    assert (caught.value.code, caught.value.reason, caught.value.message) == (422, "Invalid", REJECTED)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        pytest.param({"op": "add"}, "object into Go value of type []handlers.jsonPatchOp", id="a map"),
        pytest.param("x", "string into Go value of type []handlers.jsonPatchOp", id="a string"),
        pytest.param([1], "number into Go value of type handlers.jsonPatchOp", id="a number for an operation"),
        pytest.param([{"op": 1}], "number into Go struct field jsonPatchOp.op of type string", id="a number for op"),
        pytest.param(
            [{"path": []}], "array into Go struct field jsonPatchOp.path of type string", id="a list for path"
        ),
    ],
)
def test_a_body_that_is_not_a_json_patch_is_a_bad_request(ops: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch(DOC, ops)

    assert (caught.value.code, caught.value.message) == (400, f"error decoding patch: json: cannot unmarshal {message}")


def test_a_patch_has_at_most_ten_thousand_operations() -> None:
    with pytest.raises(StatusError) as caught:
        json_patch(DOC, [op("test", "/data/a", "1")] * 10_001)

    assert (caught.value.code, caught.value.reason) == (413, "RequestEntityTooLarge")
    assert caught.value.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_copies_cannot_grow_a_document_without_bound() -> None:
    doubling = [op("copy", "/data/" + "x" * (step + 1), **{"from": "/data"}) for step in range(40)]

    with pytest.raises(StatusError) as caught:
        json_patch({"data": {"a": "1" * 1000}}, doubling)

    assert caught.value.code == 422
