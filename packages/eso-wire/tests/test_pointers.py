"""Pointers into a configuration: relative ones, and the conditions that kinds state about configurations."""

from __future__ import annotations

import pytest

from eso_wire.pointers import TooLargeError, at, depends_on_caller, expand, relative, stands_for
from eso_wire.values import CallerDependence, SpecCondition

SPEC = {"service": "One", "tags": "None", "auth": {"jwt": {"ref": {"name": "x"}, "audiences": ["a"]}}, "list": [1]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("0/name", "/auth/jwt/ref/name", id="inside the reference"),
        pytest.param("1/audiences", "/auth/jwt/audiences", id="beside the reference"),
        pytest.param("3/service", "/service", id="at the root"),
        pytest.param("4/service", None, id="above the root"),
        pytest.param("x/service", None, id="no number of levels"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_relative_pointer_leads_from_a_reference_to_a_place(path: str, expected: str | None) -> None:
    assert relative("/auth/jwt/ref", path) == expected


def test_a_pattern_finds_every_member_and_an_absent_place_is_none() -> None:
    assert expand(SPEC, ["/auth/*/audiences"]) == [[("/auth/jwt/audiences", ["a"])]]
    assert at(SPEC, "/auth/none") is None


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("/a/*/x", ["/a/0/x", "/a/2/x"], id="entries of a list"),
        pytest.param("/a/1/y", ["/a/1/y"], id="one entry"),
        pytest.param("/a/7/y", [], id="an entry that is not there"),
        pytest.param("/*/0/x", ["/a/0/x", "/b/0/x"], id="members of a map"),
        pytest.param("/b/*/*", ["/b/0/x", "/b/*/z"], id="a name that looks like a pattern"),
        pytest.param("/c~1d/e~0f", ["/c~1d/e~0f"], id="escaped names"),
        pytest.param("/n", [], id="null is nothing"),
        pytest.param("", [""], id="the whole"),
    ],
)
def test_patterns_find_the_same_alone_and_together(pattern: str, expected: list[str]) -> None:
    document = {
        "a": [{"x": 1}, {"y": 2}, {"x": 3}],
        "b": {"0": {"x": 4}, "*": {"z": 5}},
        "c/d": {"e~f": 6},
        "n": None,
    }
    others = ["/a/*/x", "/*/*/x", "/*", "/b/0/x", "/a/1"]

    (alone,) = expand(document, [pattern])
    together = expand(document, [*others, pattern, pattern])

    assert [pointer for pointer, _ in alone] == expected
    assert together[-1] == together[-2] == alone


def test_a_document_is_walked_once_and_not_without_end() -> None:
    patterns = [f"/*/*/*/ref{number}" for number in range(200)]
    large = {f"k{number}": {"b": [{"name": "x"}] * 10} for number in range(1500)}

    assert expand(large, patterns) == [[]] * 200
    with pytest.raises(TooLargeError, match="more than 20000 places"):
        expand({f"k{number}": {"b": [{"name": "x"}] * 20} for number in range(1500)}, patterns)


@pytest.mark.parametrize(
    ("dependences", "expected"),
    [
        pytest.param((), False, id="a kind without any"),
        pytest.param((CallerDependence(),), True, id="always"),
        pytest.param((CallerDependence("/tags", ("", "None")),), False, id="unless a text that is there"),
        pytest.param((CallerDependence("/tags", ("",)),), True, id="another text is there"),
        pytest.param((CallerDependence("/absent", ("",)),), False, id="unless nothing is there"),
        pytest.param((CallerDependence("/absent", ("None",)),), True, id="nothing is there, and that does not count"),
        pytest.param((CallerDependence("/list", ("", "None")),), True, id="a value that is no text"),
    ],
)
def test_whether_results_depend_on_the_caller(dependences: tuple[CallerDependence, ...], expected: bool) -> None:
    assert depends_on_caller(dependences, SPEC) is expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param(None, True, id="no condition"),
        pytest.param(SpecCondition("/service", ("One", "Two")), True, id="one of the texts"),
        pytest.param(SpecCondition("/service", ("Two",)), False, id="another text"),
        pytest.param(SpecCondition("/none", ("",)), True, id="nothing there"),
    ],
)
def test_which_blocks_a_kind_stands_for(condition: SpecCondition | None, expected: bool) -> None:
    assert stands_for(condition, SPEC) is expected
