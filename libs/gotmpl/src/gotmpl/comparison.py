"""eq, ne, lt, le, gt, ge: comparison of Go's basic kinds."""

from __future__ import annotations

from gotmpl.errors import FuncError, Quoted
from gotmpl.signatures import VALUE, Functions
from gotmpl.values import NIL_SLICES, GoObject, Value, go_kind, go_type, to_bytes

FUNCTIONS = Functions()


def _basic_kind(value: Value) -> str:
    """Return the basic kind; empty for values without one: nil, lists, maps, objects."""
    match value:
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
        case GoObject() if value.go_int() is not None:
            return "int"
        case _:
            return ""


def _plain(value: Value) -> Value:
    """Return the number of a named number; other values unchanged."""
    number = value.go_int() if isinstance(value, GoObject) else None
    return value if number is None else number


def _incompatible(left: Value, right: Value) -> FuncError:
    return FuncError(f"incompatible types for comparison: {go_type(left)} and {go_type(right)}")


@FUNCTIONS.add("eq", params=(VALUE,), variadic=VALUE)
def equal(first: Value, *others: Value) -> bool:
    """Return whether the first argument equals any of the others."""
    if not others:
        raise FuncError("missing argument for comparison")
    kind = _basic_kind(first)
    return any(_equal_one(first, other, kind) for other in others)


def _equal_one(first: Value, other: Value, kind: str) -> bool:
    other_kind = _basic_kind(other)
    if kind == other_kind:
        return bool(_plain(first) == _plain(other)) if kind else _same_object(first, other)
    if {kind, other_kind} == {"int", "uint"}:
        return int(_plain(first)) == int(_plain(other))
    if first is not None and other is not None:
        raise _incompatible(first, other)
    return False


def _same_object(first: Value, other: Value) -> bool:
    """Compare two values without a basic kind. Objects behind a pointer are equal only if they are identical."""
    if first is not None and other is not None and go_kind(first) != go_kind(other):
        types = go_type(first), go_type(other)
        raise FuncError("non-comparable types ", Quoted(first, "s"), f": {types[0]}, {types[1]}: ", Quoted(other, "v"))
    if _is_nil(first) or _is_nil(other):
        return _is_nil(first) == _is_nil(other)
    if isinstance(other, list | dict):
        raise FuncError("non-comparable type ", Quoted(other, "s"), f": {go_type(other)}")
    return first is other if go_kind(first) == "ptr" else bool(first == other)


def _is_nil(value: Value) -> bool:
    return value is None or isinstance(value, NIL_SLICES)


@FUNCTIONS.add("ne", params=(VALUE, VALUE))
def not_equal(left: Value, right: Value) -> bool:
    return not equal(left, right)


@FUNCTIONS.add("lt", params=(VALUE, VALUE))
def less(left: Value, right: Value) -> bool:
    kind, other = _basic_kind(left), _basic_kind(right)
    if not kind or not other:
        raise FuncError("invalid type for comparison")
    if kind != other:
        if {kind, other} == {"int", "uint"}:
            return bool(int(_plain(left)) < int(_plain(right)))
        raise _incompatible(left, right)
    match kind:
        case "string":
            return to_bytes(left) < to_bytes(right)
        case "int" | "uint" | "float":
            return bool(_plain(left) < _plain(right))
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
