"""The built-in functions of Go templates."""

from __future__ import annotations

from gotmpl.errors import FuncError, Quoted
from gotmpl.formatting import sprint, sprintf, sprintln
from gotmpl.functions import STRING, VALUE, Func, Functions
from gotmpl.quoting import is_print
from gotmpl.values import (
    NIL_SLICES,
    ByteSlice,
    GoObject,
    StrMap,
    Uint8,
    Value,
    byte_length,
    byte_slice,
    go_kind,
    go_type,
    to_bytes,
    truth,
)

# --- eq, ne, lt, le, gt, ge: comparison of Go's basic kinds -----------------------------------------------------------

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


FUNCTIONS["and"] = Func("and", lambda *_: None, (VALUE,), VALUE, lazy="and")
FUNCTIONS["call"] = Func("call", lambda *_: None, (VALUE,), VALUE, lazy="call")
FUNCTIONS["or"] = Func("or", lambda *_: None, (VALUE,), VALUE, lazy="or")


@FUNCTIONS.add("not", params=(VALUE,))
def not_(value: Value) -> bool:
    return not truth(value)


@FUNCTIONS.add("len", params=(VALUE,))
def length(value: Value) -> int:
    match value:
        case str():
            return byte_length(value)
        case list() | dict():
            return len(value)
        case None:
            raise FuncError("reflect: call of reflect.Value.Type on zero Value")
        case _:
            raise FuncError(f"len of type {go_type(value).removeprefix('*')}")


@FUNCTIONS.add("index", params=(VALUE,), variadic=VALUE)
def index(container: Value, *keys: Value) -> Value:
    """Index x 1 "a" is x[1]["a"]; a missing map key gives the zero value of the element type."""
    if container is None:
        raise FuncError("index of untyped nil")
    value = container
    for key in keys:
        value = _index_one(value, key)
    return value


def _index_one(value: Value, key: Value) -> Value:
    match value:
        case dict():
            if not isinstance(key, str):
                raise FuncError(f"value has type {go_type(key)}; should be string" if key is not None else _NIL_KEY)
            return value.get(key, "" if isinstance(value, StrMap) else None)
        case str():
            return Uint8(to_bytes(value)[_inside(key, byte_length(value), "string")])
        case list():
            element = value[_inside(key, len(value), "slice")]
            return Uint8(element) if isinstance(value, ByteSlice) else element
        case None:
            raise FuncError("index of nil pointer")
        case _:
            raise FuncError(f"can't index item of type {go_type(value).removeprefix('*')}")


_NIL_KEY = "value is nil; should be of type string"


def _inside(key: Value, size: int, kind: str) -> int:
    position = _position(key, size + 1)
    if position == size:
        raise FuncError(f"reflect: {kind} index out of range")
    return position


def _position(key: Value, size: int) -> int:
    if key is None:
        raise FuncError("cannot index slice/array with nil")
    if isinstance(key, GoObject) and (number := key.go_int()) is not None:
        key = number
    if not isinstance(key, int) or isinstance(key, bool):
        raise FuncError(f"cannot index slice/array with type {go_type(key)}")
    if not 0 <= key < size:
        raise FuncError(f"index out of range: {int(key)}")
    return int(key)


@FUNCTIONS.add("slice", params=(VALUE,), variadic=VALUE)
def slice_(value: Value, *bounds: Value) -> Value:
    """Slice x 1 2 is x[1:2]; strings count bytes."""
    if value is None:
        raise FuncError("slice of untyped nil")
    if len(bounds) > 3:
        raise FuncError(f"too many slice indexes: {len(bounds)}")
    if not isinstance(value, str | list):
        raise FuncError(f"can't slice item of type {go_type(value)}")
    if isinstance(value, str) and len(bounds) == 3:
        raise FuncError("cannot 3-index slice a string")
    size = byte_length(value) if isinstance(value, str) else len(value)
    limits = [_position(bound, size + 1) for bound in bounds]
    start, end = (limits + [0, size][len(limits) :])[:2] if limits else (0, size)
    if start > end:
        raise FuncError(f"invalid slice index: {start} > {end}")
    if isinstance(value, str):
        return byte_slice(value, start, end)
    return type(value)(value[start:end])


@FUNCTIONS.add("print", variadic=VALUE)
def print_(*values: Value) -> str:
    return sprint(list(values))


@FUNCTIONS.add("println", variadic=VALUE)
def println(*values: Value) -> str:
    return sprintln(list(values))


@FUNCTIONS.add("printf", params=(STRING,), variadic=VALUE)
def printf(template: str, *values: Value) -> str:
    return sprintf(template, list(values))


_HTML = str.maketrans({"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"})


@FUNCTIONS.add("html", variadic=VALUE)
def html(*values: Value) -> str:
    return _evaluated(values).translate(_HTML)


_JS = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
}


@FUNCTIONS.add("js", variadic=VALUE)
def js(*values: Value) -> str:
    return "".join(_js_char(char) for char in _evaluated(values))


def _js_char(char: str) -> str:
    if char in _JS:
        return _JS[char]
    if "\udc80" <= char <= "\udcff":
        return char
    if char < " " or (char > "\x7f" and not is_print(char)):
        return f"\\u{ord(char):04X}"
    return char


_PLAIN_IN_QUERIES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~")
_QUERY = [chr(byte) if byte in _PLAIN_IN_QUERIES else f"%{byte:02X}" for byte in range(256)]
_QUERY[ord(" ")] = "+"


@FUNCTIONS.add("urlquery", variadic=VALUE)
def urlquery(*values: Value) -> str:
    return "".join(map(_QUERY.__getitem__, to_bytes(_evaluated(values))))


def _evaluated(values: tuple[Value, ...]) -> str:
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return sprint(["<no value>" if value is None else value for value in values])
