"""Go values in Python.

| Go | Python |
|---|---|
| string | str; a byte that is not UTF-8 stands as a lone surrogate, so any bytes survive |
| int, float64, bool, complex128 | int, float, bool, complex |
| int64, int32, uint8, … | the subclasses of int below |
| []interface {}, []string, []int, … | list, and the subclasses of list below |
| map[string]interface {}, map[string]string | dict, StrMap |
| nil | None |
| time.Time, *semver.Version, … | subclasses of GoObject, with tables of methods and fields |

Nothing else may reach a template: there is no attribute access to Python objects, only GoObject's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

Value = Any
"""A Go value in one of the forms above; Any, because templates are dynamically typed."""


class Int64(int):
    __slots__ = ()


class Int32(int):
    __slots__ = ()


class Uint8(int):
    __slots__ = ()


class Uint32(int):
    __slots__ = ()


class Uint64(int):
    __slots__ = ()


class StrSlice(list[str]):
    __slots__ = ()


class IntSlice(list[int]):
    __slots__ = ()


class ByteSlice(list[int]):
    __slots__ = ()


class ListSlice(list[list[Value]]):
    """[][]interface {}, as chunk returns it."""

    __slots__ = ()


class NilSlice(list[Value]):
    """A nil []interface {}: prints like an empty one, and is null in JSON."""

    __slots__ = ()


class NilStrSlice(StrSlice):
    """A nil []string."""

    __slots__ = ()


NIL_SLICES = (NilSlice, NilStrSlice)


class StrMap(dict[str, str]):
    """map[string]string, the type of the data a template is rendered with."""

    __slots__ = ()


class GoObject:
    """A Go struct or pointer. Templates can access only what these tables name."""

    __slots__ = ()
    go_type: ClassVar[str] = "struct {}"
    kind: ClassVar[str] = "struct"
    methods: ClassVar[Mapping[str, Any]] = {}
    """Name -> Func (see signatures.py); the receiver is passed first."""
    fields: ClassVar[Mapping[str, Callable[[Any], Value]]] = {}
    refusals: ClassVar[Mapping[str, str]] = {}
    """Methods without parameters that a template must not call, and why."""
    unexported: ClassVar[frozenset[str]] = frozenset()
    """Unexported fields of the struct."""

    def go_string(self) -> str:
        """Return what fmt prints with %v."""
        return "{}"

    def go_syntax(self) -> str:
        """Return what fmt prints with %#v."""
        return self.go_string()

    def copied(self) -> GoObject:
        """Return what deepCopy makes of it."""
        return self

    def json_value(self) -> Value:
        """Return what encoding/json makes of it."""
        return self.go_string()

    def go_int(self) -> int | None:
        """Return its number if its kind is numeric: a time.Month or time.Duration compares as a number."""
        number = self.json_value() if self.kind in {"int", "int64"} else None
        return number if isinstance(number, int) else None


_TYPES: dict[type, tuple[str, str]] = {
    str: ("string", "string"),
    int: ("int", "int"),
    bool: ("bool", "bool"),
    float: ("float64", "float64"),
    complex: ("complex128", "complex128"),
    Int64: ("int64", "int64"),
    Int32: ("int32", "int32"),
    Uint8: ("uint8", "uint8"),
    Uint32: ("uint32", "uint32"),
    Uint64: ("uint64", "uint64"),
    list: ("[]interface {}", "slice"),
    NilSlice: ("[]interface {}", "slice"),
    StrSlice: ("[]string", "slice"),
    NilStrSlice: ("[]string", "slice"),
    IntSlice: ("[]int", "slice"),
    ByteSlice: ("[]uint8", "slice"),
    ListSlice: ("[][]interface {}", "slice"),
    dict: ("map[string]interface {}", "map"),
    StrMap: ("map[string]string", "map"),
}


def go_type(value: Value) -> str:
    """Return the dynamic type, as %T prints it."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known[0]
    return value.go_type if isinstance(value, GoObject) else "<nil>"


def go_kind(value: Value) -> str:
    """Return reflect.Kind as text."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known[1]
    return value.kind if isinstance(value, GoObject) else "invalid"


def truth(value: Value) -> bool:
    """Return whether `if` accepts the value: anything but the zero value of its type; a struct is always true."""
    if isinstance(value, GoObject):
        return value.go_int() != 0
    return bool(value)


def has_interface_elements(container: Value) -> bool:
    """Return whether the static type of the elements is interface {}: error messages then name that type."""
    return type(container) in {list, dict, NilSlice}


def wrap64(number: int) -> int:
    """Two's complement at 64 bits, as Go's integer arithmetic."""
    return (number + 2**63) % 2**64 - 2**63


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def to_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def byte_length(text: str) -> int:
    """Return Go's len of a string."""
    return len(text) if text.isascii() else len(to_bytes(text))


def byte_slice(text: str, start: int, end: int) -> str:
    """Return text[start:end] in bytes; a cut inside a character leaves its bytes."""
    return text[start:end] if text.isascii() else to_text(to_bytes(text)[start:end])


def sorted_keys(mapping: Mapping[str, Value]) -> list[str]:
    """Sort by bytes, which is the order of characters unless there are lone bytes."""
    return sorted(mapping) if "".join(mapping).isascii() else sorted(mapping, key=to_bytes)


def joined(parts: list[str]) -> str:
    """Concatenate. Bytes that form a character only together become that character again."""
    text = "".join(parts)
    if text.isascii() or not any("\udc80" <= char <= "\udcff" for char in text):
        return text
    return to_text(to_bytes(text))
