"""Merge patches: applying the difference gives the new document, and no more is sent than needed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubebase.mergepatch import difference, patched


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, id="nothing changed"),
        pytest.param({}, {"a": 1}, {"a": 1}, id="added"),
        pytest.param({"a": 1, "b": 2}, {"b": 2}, {"a": None}, id="removed"),
        pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}, id="only what differs inside"),
        pytest.param({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}, id="emptied"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, id="a list is replaced"),
        pytest.param({"a": [{"b": 1}]}, {"a": [{"b": 1}]}, {}, id="an equal list is not"),
        pytest.param({"a": 1}, {"a": True}, {"a": True}, id="true is not one"),
        pytest.param({"a": [1, {"b": 0}]}, {"a": [1, {"b": False}]}, {"a": [1, {"b": False}]}, id="not even inside"),
        pytest.param({"a": 1}, {"a": None}, {"a": None}, id="null is absence"),
        pytest.param({"a": None}, {}, {}, id="absence is null"),
        pytest.param({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}, id="a new object carries no nulls"),
        pytest.param({"a": "x"}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="another type"),
    ],
)
def test_difference(old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]) -> None:
    assert difference(old, new) == patch


def values(nulls: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    scalars = st.booleans() | st.integers(-2, 2) | st.text("ab", max_size=2) | nulls
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=1), inner, max_size=3),
        max_leaves=8,
    )


DOCUMENTS = st.dictionaries(st.text("abc", max_size=1), values(st.nothing()), max_size=3)


@settings(deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_applying_the_difference_gives_the_new_document(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert repr(_sorted(patched(old, difference(old, new)))) == repr(_sorted(new))


@settings(deadline=None)
@given(DOCUMENTS)
def test_a_document_does_not_differ_from_itself(document: dict[str, Any]) -> None:
    assert difference(document, document) == {}


def _sorted(value: Any) -> Any:
    """With sorted names, so that the repr tells true from one and nothing else."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
