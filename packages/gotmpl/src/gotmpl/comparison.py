"""eq, ne, lt, le, gt, ge: comparison between Go's basic kinds."""

from __future__ import annotations

from gotmpl.errors import FuncError, Quoted
from gotmpl.signatures import VALUE, Functions
from gotmpl.values import Value, go_type, to_bytes

FUNCTIONS = Functions()


def _basic_kind(value: Value) -> str:
    match value:
        case None:
            return "invalid"
        case bool():
            return "bool"
        case int():
            return "uint" if go_type(value).startswith("uint") else "int"
        case float():
            return "float"
        case complex():
            return "complex"
        case str():
            return "string"
        case _:
            return "other"


def _incompatible(left: Value, right: Value) -> FuncError:
    return FuncError(f"incompatible types for comparison: {_static(left)} and {_static(right)}")


def _static(value: Value) -> str:
    return "nil" if value is None else go_type(value)


def _comparable(value: Value) -> bool:
    return not isinstance(value, list | dict)


def _refuse_incomparable(value: Value) -> None:
    if not _comparable(value):
        raise FuncError("non-comparable type ", Quoted(value, "s"), f": {go_type(value)}")


@FUNCTIONS.add("eq", params=(VALUE,), variadic=VALUE)
def equal(first: Value, *others: Value) -> bool:
    """True if the first argument equals any of the others."""
    if not others:
        raise FuncError("missing argument for comparison")
    if any(other is not None for other in others):
        _refuse_incomparable(first)
    kind = _basic_kind(first)
    return any(_equal_one(first, other, kind) for other in others)


def _equal_one(first: Value, other: Value, kind: str) -> bool:
    other_kind = _basic_kind(other)
    if kind != other_kind:
        if {kind, other_kind} == {"int", "uint"}:
            return int(first) == int(other)
        if first is not None and other is not None:
            raise _incompatible(first, other)
        return False
    if kind == "other":
        _refuse_incomparable(other)
        if go_type(first) != go_type(other):
            raise _incompatible(first, other)
        return bool(first == other)
    return bool(first == other)


@FUNCTIONS.add("ne", params=(VALUE, VALUE))
def not_equal(left: Value, right: Value) -> bool:
    return not equal(left, right)


@FUNCTIONS.add("lt", params=(VALUE, VALUE))
def less(left: Value, right: Value) -> bool:
    kind, other = _basic_kind(left), _basic_kind(right)
    if kind != other:
        if {kind, other} == {"int", "uint"}:
            return bool(int(left) < int(right))
        raise _incompatible(left, right)
    match kind:
        case "string":
            return to_bytes(left) < to_bytes(right)
        case "int" | "uint" | "float":
            return bool(left < right)
        case _:
            raise FuncError("invalid type for comparison")


@FUNCTIONS.add("le", params=(VALUE, VALUE))
def less_or_equal(left: Value, right: Value) -> bool:
    return bool(less(left, right) or equal(left, right))


@FUNCTIONS.add("gt", params=(VALUE, VALUE))
def greater(left: Value, right: Value) -> bool:
    return not less_or_equal(left, right)


@FUNCTIONS.add("ge", params=(VALUE, VALUE))
def greater_or_equal(left: Value, right: Value) -> bool:
    return not less(left, right)
