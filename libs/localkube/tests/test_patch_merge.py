"""JSON Merge Patch: the examples of RFC 7386, its laws, and where the API server goes its own way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubebase.meta import JsonObject
from localkube.errors import StatusError
from localkube.patch import merge_patch

documents: st.SearchStrategy[JsonObject] = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.one_of(st.integers(0, 3), st.sampled_from("xyz"), st.lists(st.integers(0, 3), max_size=2)),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="remove"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="remove one of two"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="a scalar for a list"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="a list for a scalar"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="below"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="lists are replaced"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="a null that was there stays"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls of something new mean nothing"),
        pytest.param({}, {"a": [{"b": None}, None]}, {"a": [{}, None]}, id="nor do those of maps in new lists"),
        pytest.param({"a": 1}, {"a": [{"b": None}]}, {"a": [{}]}, id="nor in lists that replace a scalar"),
        pytest.param(
            {"a": {"x": 1}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}, id="a list for a map is kept as sent"
        ),
    ],
)
def test_a_merge_patch(doc: JsonObject, patch: JsonObject, expected: JsonObject) -> None:
    assert merge_patch(doc, patch) == expected


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param(
            [1],
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            id="a list",
        ),
        pytest.param(
            "x",
            "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
            id="a string",
        ),
        pytest.param(None, "Invalid JSON Patch", id="null"),
    ],
)
def test_only_a_map_is_a_merge_patch(patch: Any, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        merge_patch({}, patch)

    assert (caught.value.code, caught.value.message) == (400, message)


@given(documents, documents)
def test_merging_twice_is_merging_once(doc: JsonObject, patch: JsonObject) -> None:
    once = merge_patch(doc, patch)

    assert merge_patch(once, patch) == once


@given(documents)
def test_a_patch_on_nothing_is_the_patch(patch: JsonObject) -> None:
    assert merge_patch({}, patch) == patch


@given(documents)
def test_an_empty_patch_changes_nothing(doc: JsonObject) -> None:
    assert merge_patch(doc, {}) == doc


@given(documents, documents)
def test_every_change_has_a_patch(old: JsonObject, new: JsonObject) -> None:
    assert merge_patch(old, difference(old, new)) == new


def difference(old: JsonObject, new: JsonObject) -> JsonObject:
    patch: JsonObject = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        patch[name] = difference(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return patch
