"""Pointers into a configuration: relative ones, and the conditions that kinds state about configurations."""

from __future__ import annotations

import pytest

from eso_wire.pointers import at, depends_on_caller, expand, relative, stands_for
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
    assert dict(expand(SPEC, "/auth/*/audiences")) == {"/auth/jwt/audiences": ["a"]}
    assert at(SPEC, "/auth/none") is None


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
