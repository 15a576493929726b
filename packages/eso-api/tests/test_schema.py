"""From a type to its schema."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from eso_api.crd import UnsupportedTypeError, schema_of
from eso_api.shapes import (
    Fragment,
    Interval,
    JsonMap,
    Rule,
    at_most_one,
    exactly_one,
    exactly_one_of,
    one_of,
    one_rule,
    shaped,
    shaped_as,
)


class Leaf(Fragment, frozen=True, kw_only=True):
    """A leaf.

    More about it, which stays internal.
    """

    some_name: str
    """Its name, over
    two lines."""
    plain: int = 3


class Tree(Fragment, frozen=True, kw_only=True):
    """A tree."""

    RULES: ClassVar = (Rule("has(self.leaf)", "leaf is needed"),)
    SHAPE: ClassVar = exactly_one()

    leaf: Leaf | None = None
    """The only leaf."""
    leaves: Annotated[list[Leaf], shaped(maxItems=3, x_kubernetes_list_type="atomic")] = []  # noqa: RUF012 - msgspec copies it
    colour: Annotated[str, one_of("green", "red")] = "green"
    every: Interval = "1h"
    notes: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    anything: Any = None
    blob: JsonMap = {}  # noqa: RUF012 - msgspec copies it
    raw: Annotated[dict[str, Any], shaped_as(Leaf)] = {}  # noqa: RUF012 - msgspec copies it
    spelled: str = msgspec.field(default="", name="spelledID")


class Sapling(Tree, frozen=True, kw_only=True):
    """A small tree."""

    height: float = 0.0
    """Metres."""


class Odd(Fragment, frozen=True, kw_only=True):
    value: bytes | list[int] = b""


def properties(fragment: type[Fragment]) -> dict[str, Any]:
    found: dict[str, Any] = schema_of(fragment)["properties"]
    return found


def test_a_fragment_is_an_object_with_required_fields_and_the_first_paragraph_as_description() -> None:
    assert schema_of(Leaf) == {
        "description": "A leaf.",
        "type": "object",
        "required": ["someName"],
        "properties": {
            "plain": {"type": "integer"},
            "someName": {"description": "Its name, over two lines.", "type": "string"},
        },
    }


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        pytest.param("colour", {"type": "string", "enum": ["green", "red"]}, id="enumeration"),
        pytest.param("notes", {"type": "object", "additionalProperties": {"type": "string"}}, id="map"),
        pytest.param("anything", {"x-kubernetes-preserve-unknown-fields": True}, id="any JSON"),
        pytest.param("blob", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, id="any object"),
        pytest.param("raw", schema_of(Leaf), id="plain JSON in Python, typed in the schema"),
        pytest.param("spelledID", {"type": "string"}, id="name of its own"),
    ],
)
def test_a_field_has_the_schema_of_its_type(field: str, schema: dict[str, Any]) -> None:
    assert properties(Tree)[field] == schema


def test_an_interval_is_integer_or_string_R23() -> None:  # noqa: N802 - the row's name
    every = properties(Tree)["every"]

    assert every["x-kubernetes-int-or-string"] is True
    assert "type" not in every


def test_the_field_docstring_wins_over_the_type_docstring() -> None:
    assert properties(Tree)["leaf"]["description"] == "The only leaf."


def test_list_bounds_and_list_type_stand_beside_the_items() -> None:
    leaves = properties(Tree)["leaves"]

    assert (leaves["maxItems"], leaves["x-kubernetes-list-type"]) == (3, "atomic")
    assert leaves["items"] == schema_of(Leaf)


def test_rules_and_shape_belong_to_the_object() -> None:
    schema = schema_of(Tree)

    assert schema["x-kubernetes-validations"] == [{"rule": "has(self.leaf)", "message": "leaf is needed"}]
    assert (schema["minProperties"], schema["maxProperties"]) == (1, 1)


def test_a_subclass_has_the_fields_and_field_docs_of_its_base() -> None:
    fields = properties(Sapling)

    assert fields["height"] == {"description": "Metres.", "type": "number"}
    assert fields["leaf"]["description"] == "The only leaf."


def test_defaults_never_reach_the_schema() -> None:
    assert "default" not in str(schema_of(Sapling))


def test_a_type_without_structural_schema_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError):
        schema_of(Odd)


def test_one_rule_answers_with_the_message_of_the_condition_that_fails() -> None:
    class Both(Fragment, frozen=True, kw_only=True):
        RULES: ClassVar = (one_rule("has(self.a) && has(self.b)", Rule("has(self.a)", "no a"), Rule("", "no b")),)

        a: str = ""
        b: str = ""

    (rule,) = schema_of(Both)["x-kubernetes-validations"]

    assert rule == {
        "rule": "has(self.a) && has(self.b)",
        "message": "no a; no b",
        "messageExpression": "!(has(self.a)) ? 'no a' : 'no b'",
    }


def test_counting_rules_name_the_fields() -> None:
    assert at_most_one("a", "b") == Rule(
        "(has(self.a) ? 1 : 0) + (has(self.b) ? 1 : 0) <= 1", "at most one of a, b may be set"
    )
    assert exactly_one_of("a", "b").message == "exactly one of a, b must be set"
