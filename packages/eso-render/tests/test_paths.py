"""Dotted paths: their syntax, and writes along them."""

from __future__ import annotations

from typing import Any

import pytest

from eso_render import paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("spec", ("spec",), id="one name"),
        pytest.param("spec.a.b", ("spec", "a", "b"), id="names"),
        pytest.param("spec.rules[0].x", ("spec", "rules", 0, "x"), id="an index"),
        pytest.param("a[1][2]", ("a", 1, 2), id="two indexes"),
        pytest.param("a.[3]", ("a", 3), id="a segment of an index alone"),
        pytest.param("a[10000]", ("a", 10000), id="the largest index"),
        pytest.param(
            "metadata.my-name/x", ("metadata", "my-name/x"), id="a name may hold anything but dots and brackets"
        ),
    ],
)
def test_a_path_is_names_and_indexes(text: str, expected: paths.Path) -> None:
    assert paths.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("a..b", id="G8: an empty segment"),
        pytest.param(".a", id="a dot at the start"),
        pytest.param("a.", id="a dot at the end"),
        pytest.param("[0].x", id="G8: an index first"),
        pytest.param("a[-1]", id="G8: a negative index"),
        pytest.param("a[10001]", id="G8: an index beyond the bound"),
        pytest.param("a[99999999999999999999999]", id="an index beyond all bounds"),
        pytest.param("a[x]", id="G8: an index that is no number"),
        pytest.param("a[]", id="an empty index"),
        pytest.param("a[0", id="a bracket that stays open"),
        pytest.param("a[0]b", id="text behind a bracket"),
        pytest.param("a]0[", id="brackets the wrong way round"),
        pytest.param("a[[0]]", id="brackets in brackets"),
    ],
)
def test_a_malformed_path_is_refused_by_name(text: str) -> None:
    with pytest.raises(paths.PathError, match="path"):
        paths.parse(text)


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        pytest.param({}, "a.b", {"a": {"b": 1}}, id="maps are made on the way"),
        pytest.param({}, "a[0].x", {"a": [{"x": 1}]}, id="G7: lists are made on the way"),
        pytest.param({}, "a[1].x", {"a": [None, {"x": 1}]}, id="G7: a list is filled with nulls"),
        pytest.param({"a": {"c": 2}}, "a.b", {"a": {"c": 2, "b": 1}}, id="siblings stay"),
        pytest.param({"a": None}, "a.b", {"a": {"b": 1}}, id="null counts as missing"),
        pytest.param({"a": [None, 2]}, "a[0]", {"a": [1, 2]}, id="an element is replaced"),
        pytest.param({"a": {"b": {"c": 2}}}, "a.b", {"a": {"b": 1}}, id="what was there is replaced"),
    ],
)
def test_putting_a_value_makes_the_way_and_can_be_repeated(root: dict[str, Any], path: str, expected: Any) -> None:
    paths.put(root, paths.parse(path), 1)
    paths.put(root, paths.parse(path), 1)

    assert root == expected


@pytest.mark.parametrize(
    ("root", "path"),
    [
        pytest.param({"a": "text"}, "a.b", id="a name in text"),
        pytest.param({"a": {}}, "a[0]", id="an index in a map"),
        pytest.param({"a": []}, "a.b", id="a name in a list"),
        pytest.param({"a": 1}, "a.b.c", id="a way through a number"),
    ],
)
def test_a_way_through_a_value_that_holds_nothing_is_refused(root: dict[str, Any], path: str) -> None:
    with pytest.raises(paths.PathError) as refused:
        paths.put(root, paths.parse(path), 1)

    assert path in str(refused.value)


@pytest.mark.parametrize(
    ("root", "path", "value", "expected"),
    [
        pytest.param({"s": {"a": {"x": 1}}}, "s.a", {"y": 2}, {"s": {"a": {"x": 1, "y": 2}}}, id="G6: maps are joined"),
        pytest.param({"s": {"x": 1}}, "s", {"y": 2}, {"s": {"y": 2}}, id="G5: a single name is replaced"),
        pytest.param({"s": {"a": [1]}}, "s.a", {"y": 2}, {"s": {"a": {"y": 2}}}, id="a list gives way to a map"),
        pytest.param({"s": {"a": {"x": 1}}}, "s.a", [2], {"s": {"a": [2]}}, id="a map gives way to a list"),
        pytest.param(
            {"s": {"a": {"x": {"p": 1}}}},
            "s.a",
            {"x": {"q": 2}},
            {"s": {"a": {"x": {"q": 2}}}},
            id="only one level is joined",
        ),
    ],
)
def test_merging_joins_maps_below_the_top(root: dict[str, Any], path: str, value: Any, expected: Any) -> None:
    paths.merge(root, paths.parse(path), value)

    assert root == expected


def test_reading_a_path_that_leads_nowhere_gives_nothing() -> None:
    assert paths.get({"a": {}}, ("a", "b", "c")) is None
    assert paths.get({"a": {"b": [1]}}, ("a", "b", 0)) == 1
