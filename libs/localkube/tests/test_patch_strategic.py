"""Strategic merge patch on the shape of a Deployment: lists that merge by key, directives, order, refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.errors import StatusError
from localkube.patch import strategic_merge

S = {"type": "string"}
STRINGS = {"type": "object", "additionalProperties": S}


def merging(items: JsonObject, key: str = "", strategy: str = "merge") -> JsonObject:
    result: JsonObject = {"type": "array", "items": items, "x-kubernetes-patch-strategy": strategy}
    return {**result, "x-kubernetes-patch-merge-key": key} if key else result


ENV = merging({"type": "object", "properties": {"name": S, "value": S}}, "name")
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "finalizers": merging(S),
        "labels": STRINGS,
        "strategy": {
            "type": "object",
            "properties": {"type": S, "rollingUpdate": STRINGS},
            "x-kubernetes-patch-strategy": "retainKeys",
        },
        "containers": merging({"type": "object", "properties": {"name": S, "image": S, "env": ENV}}, "name"),
        "volumes": merging(
            {"type": "object", "properties": {"name": S, "emptyDir": STRINGS}}, "name", "merge,retainKeys"
        ),
        "tolerations": {"type": "array", "items": {"type": "object"}},
        "nested": merging({"type": "array"}),
    },
}


def named(*names: str) -> list[JsonObject]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        pytest.param(
            {"labels": {"a": "1", "b": "2"}},
            {"labels": {"a": "9", "b": None}},
            {"labels": {"a": "9"}},
            id="maps merge and null removes",
        ),
        pytest.param({"tolerations": [1]}, {"tolerations": [2]}, {"tolerations": [2]}, id="plain lists are replaced"),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]},
            {"containers": [{"name": "a", "image": "2"}, {"name": "c"}, {"name": "b"}]},
            id="lists with a key merge item by item",
        ),
        pytest.param(
            {"containers": named("a", "b", "c")},
            {"containers": [{"name": "b", "$patch": "delete"}]},
            {"containers": named("a", "c")},
            id="an item can be deleted",
        ),
        pytest.param(
            {"containers": named("a", "b")},
            {"containers": [{"name": "c"}, {"$patch": "replace"}]},
            {"containers": named("c")},
            id="a list can be replaced",
        ),
        pytest.param(
            {"labels": {"a": "1"}},
            {"labels": {"$patch": "replace", "z": "1"}},
            {"labels": {"z": "1"}},
            id="a map can be replaced",
        ),
        pytest.param(
            {"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, {"labels": {}}, id="a map can be emptied"
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"x": "1"}}},
            {"strategy": {"type": "Recreate", "$retainKeys": ["type"]}},
            {"strategy": {"type": "Recreate"}},
            id="retainKeys drops the other keys",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"finalizers": ["c", "a"]},
            {"finalizers": ["c", "a", "b"]},
            id="scalars are a set",
        ),
        pytest.param(
            {"finalizers": ["a", "b", "c"]},
            {"$deleteFromPrimitiveList/finalizers": ["b", "x"]},
            {"finalizers": ["a", "c"]},
            id="scalars can be deleted",
        ),
        pytest.param(
            {"containers": named("a", "b", "c")},
            {"$setElementOrder/containers": named("c", "a")},
            {"containers": named("b", "c", "a")},
            id="order without content",
        ),
        pytest.param(
            {"containers": named("a", "b")},
            {"$setElementOrder/containers": named("c", "b", "a"), "containers": named("c")},
            {"containers": named("c", "b", "a")},
            id="order with content",
        ),
        pytest.param(
            {"containers": named("D", "C", "A")},
            {
                "$setElementOrder/containers": named("B", "D"),
                "containers": [{"name": "B"}, {"name": "C", "$patch": "delete"}],
            },
            {"containers": named("A", "B", "D")},
            id="a new item moves into the place of a deleted one",
        ),
        pytest.param(
            {"containers": [{"name": "a", "env": named("X", "Y")}]},
            {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "$patch": "delete"}]}]},
            {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]},
            id="lists in lists merge as well",
        ),
        pytest.param(
            {},
            {"containers": [{"name": "a"}, {"name": "b", "$patch": "delete"}], "labels": {"a": None, "b": "1"}},
            {"containers": named("a"), "labels": {"b": "1"}},
            id="directives and nulls mean nothing where nothing is",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "$retainKeys": ["name"]}]},
            {"volumes": named("v")},
            id="retainKeys works inside items",
        ),
    ],
)
def test_a_strategic_merge_patch(doc: JsonObject, patch: JsonObject, expected: JsonObject) -> None:
    before = copy.deepcopy((doc, patch))

    assert strategic_merge(doc, patch, SCHEMA) == expected
    assert (doc, patch) == before


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        pytest.param(
            [1], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}", id="a list"
        ),
        pytest.param(
            {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}},
            400,
            "invalid patch format of retainKeys",
            id="a key that is not retained",
        ),
        pytest.param(
            {"$deleteFromPrimitiveList": ["x"]},
            400,
            "invalid patch format of primitive list",
            id="a deletion from no list",
        ),
        pytest.param(
            {"labels": {"$patch": "zork"}},
            500,
            "unknown patch type: zork in map: map[$patch:zork]",
            id="a made-up directive",
        ),
        pytest.param(
            {"containers": [{"image": "x"}]},
            500,
            "map: map[image:x] does not contain declared merge key: name",
            id="an item without its key",
        ),
        pytest.param(
            {"containers": [{"name": "a", "$patch": "merge"}]},
            500,
            "merging lists cannot yet be specified in the patch",
            id="an explicit merge",
        ),
        pytest.param(
            {"$setElementOrder/containers": named("b", "a"), "containers": named("a", "b")},
            500,
            "The order in patch list:\n[map[name:a] map[name:b]]\n doesn't match $setElementOrder list:\n"
            "[map[name:b] map[name:a]]\n",
            id="items in another order than announced",
        ),
        pytest.param(
            {"nested": [[1]]},
            422,
            "the server rejected our request due to an error in our request",
            id="lists of lists",
        ),
    ],
)
def test_a_strategic_merge_patch_that_cannot_be(patch: Any, code: int, message: str) -> None:
    doc: JsonObject = {
        "labels": {"a": "1"},
        "strategy": {"type": "x"},
        "containers": named("a"),
        "nested": [[0]],
    }

    with pytest.raises(StatusError) as caught:
        strategic_merge(doc, patch, SCHEMA)

    assert (caught.value.code, caught.value.message) == (code, message)
