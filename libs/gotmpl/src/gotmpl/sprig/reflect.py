"""Types and kinds of values, and deep equality."""

from __future__ import annotations

from gotmpl.functions import ANY, STRING, Functions
from gotmpl.sprig.lists import same
from gotmpl.values import Value, go_kind, go_type

FUNCTIONS = Functions()


@FUNCTIONS.add("typeOf", params=(ANY,))
def type_of(value: Value) -> str:
    return go_type(value)


@FUNCTIONS.add("typeIs", params=(STRING, ANY))
def type_is(name: str, value: Value) -> bool:
    return go_type(value) == name


@FUNCTIONS.add("typeIsLike", params=(STRING, ANY))
def type_is_like(name: str, value: Value) -> bool:
    return go_type(value) in {name, f"*{name}"}


@FUNCTIONS.add("kindOf", params=(ANY,))
def kind_of(value: Value) -> str:
    return go_kind(value)


@FUNCTIONS.add("kindIs", params=(STRING, ANY))
def kind_is(name: str, value: Value) -> bool:
    return go_kind(value) == name


@FUNCTIONS.add("deepEqual", params=(ANY, ANY))
def deep_equal(left: Value, right: Value) -> bool:
    return same(left, right)
