"""Errors, static types and values of CEL, and the types that a schema's fields have in an expression.

A type is a name with parameters (`list(string)`) or an object with the fields of a schema. `dyn` fits everything.
Bytes, timestamps and durations can only be tested for presence and equality.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubebase.meta import JsonObject

# --- Errors of an expression ------------------------------------------------------------------------------------------
# CelError
# |- CompileError      the source is not CEL, or its types do not fit; carries the offset
# `- EvaluationError   the expression failed on these values
#    `- BudgetError    it would take too many steps


class CelError(Exception):
    pass


class CompileError(CelError):
    def __init__(self, message: str, source: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.at = at

    def __str__(self) -> str:
        """Return message, line and a mark under the position, as kube-apiserver shows it."""
        before = self.source[: self.at]
        row = before.count("\n")
        column = len(before) - (before.rfind("\n") + 1)
        line = self.source.split("\n")[row] if self.source else ""
        return f"ERROR: <input>:{row + 1}:{column + 1}: {self.message}\n | {line}\n | {'.' * column}^"


class EvaluationError(CelError):
    pass


class BudgetError(EvaluationError):
    pass


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(str(item) for item in self.parameters)})"


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(Type):
    """A schema with named fields; equal only to itself."""

    fields: Mapping[str, tuple[str, Type]] = field(default_factory=dict)
    """Name in an expression -> name in the object, type."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SetListType(Type):
    """A list whose order does not matter; compared and merged by item, or by key fields if it has some."""

    keys: tuple[str, ...] = ()


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
A: Final = Type("<A>")
B: Final = Type("<B>")

_PARAMETERS: Final = (A, B)
_NULLABLE: Final = frozenset({"timestamp", "duration"})


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def fits(wanted: Type, given: Type, bound: dict[Type, Type]) -> bool:
    """Return whether a value of type `given` fits where `wanted` is expected; binds the type parameters of `wanted`."""
    if wanted in _PARAMETERS:
        if wanted not in bound or (bound[wanted] == DYN and given != DYN):
            bound[wanted] = given
            return True
        if fits(bound[wanted], given, bound):
            return True
        if fits(given, bound[wanted], bound):
            bound[wanted] = given
            return True
        return False
    if DYN in (wanted, given):
        return True
    if given == NULL:
        return wanted == NULL or isinstance(wanted, ObjectType) or wanted.name in _NULLABLE
    if isinstance(wanted, ObjectType) or isinstance(given, ObjectType):
        return wanted is given
    if wanted.name != given.name or len(wanted.parameters) != len(given.parameters):
        return False
    return all(fits(one, two, bound) for one, two in zip(wanted.parameters, given.parameters, strict=True))


def substitute(type_: Type, bound: Mapping[Type, Type]) -> Type:
    if type_ in _PARAMETERS:
        return bound.get(type_, DYN)
    if not type_.parameters:
        return type_
    return Type(type_.name, tuple(substitute(item, bound) for item in type_.parameters))


def type_of_schema(schema: JsonObject, *, root: bool = False, name: str = "object") -> Type | None:
    """Return the type of values of a structural schema; None if expressions may not see them."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    match schema.get("type"):
        case "array":
            return _list_type(schema, name)
        case "object":
            return _object_type(schema, root=root, name=name)
        case "string":
            return _STRING_FORMATS.get(str(schema.get("format", "")), STRING)
        case "boolean":
            return BOOL
        case "number":
            return DOUBLE
        case "integer":
            return INT
        case _:
            return None


def _list_type(schema: JsonObject, name: str) -> Type | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    item = type_of_schema(items, name=f"{name}.@idx")
    if item is None:
        return None
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return SetListType("list", (item,))
        case "map":
            return SetListType("list", (item,), tuple(schema.get("x-kubernetes-list-map-keys") or ()))
        case _:
            return list_of(item)


def _object_type(schema: JsonObject, *, root: bool, name: str) -> Type | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        value = type_of_schema(extra, name=f"{name}.@elem")
        return None if value is None else map_of(STRING, value)
    properties = dict(schema.get("properties") or {})
    if root:
        properties |= _RESOURCE_FIELDS
    fields: dict[str, tuple[str, Type]] = {}
    for field_name, part in properties.items():
        escaped = escape(field_name)
        if escaped is not None:
            part_type = type_of_schema(part, name=f"{name}.{escaped}")
            if part_type is not None:
                fields[escaped] = (field_name, part_type)
    return ObjectType(name, (), fields)


_RESOURCE_FIELDS: Final[JsonObject] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
}
_STRING_FORMATS: Final = {"byte": BYTES, "duration": DURATION, "date": TIMESTAMP, "date-time": TIMESTAMP}


def escape(name: str) -> str | None:
    """Return a property name as an expression writes it (`a-b` is `a__dash__b`); None if that is not possible."""
    if name in RESERVED:
        return f"__{name}__"
    if re.fullmatch("[a-zA-Z_./-][a-zA-Z0-9_./-]*", name) is None:
        return None
    return re.sub(r"__|[./-]", lambda found: _ESCAPES[found[0]], name)


RESERVED: Final = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"}
    | {"let", "loop", "package", "namespace", "return", "var", "void", "while"}
)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


# --- Comparison of CEL values. bool, int (64 bits), float, str, None, list and dict represent themselves --------------

_NUMBERS: Final = (int, float)


def equal(left: Any, right: Any) -> bool:
    """Return CEL equality: numbers across types, everything else only within its type."""
    if left.__class__ is str and right.__class__ is str:
        return bool(left == right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(equal(one, two) for one, two in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(key in right and equal(value, right[key]) for key, value in left.items())
    return type(left) is type(right) and bool(left == right)


def contains(items: list[Any], value: Any) -> bool:
    """Return whether a list holds an item that equals the value."""
    return any(equal(item, value) for item in items)


def less(left: Any, right: Any) -> bool:
    """Order of two values of one ordered type, or of two numbers."""
    numbers = is_number(left) and is_number(right)
    if numbers or (type(left) is type(right) and isinstance(left, str | bool)):
        return bool(left < right)
    raise no_overload("_<_")


def unordered_equal(left: list[Any], right: list[Any]) -> bool:
    """Return equality of set and map lists, where order does not matter."""
    return len(left) == len(right) and _covers(left, right) and _covers(right, left)


def merged(left: list[Any], right: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Return `left + right` of set and map lists: items of the right replace or follow those of the left."""
    if not keys:
        return [*left, *(item for item in right if not contains(left, item))]

    def same(one: Any, two: Any) -> bool:
        return all(equal(one.get(key), two.get(key)) for key in keys)

    found = [next((new for new in right if same(new, item)), item) for item in left]
    return [*found, *(item for item in right if not any(same(item, other) for other in left))]


def hashable(key: Any) -> Any:
    """Return a map key; whole doubles are the same key as their integers."""
    if isinstance(key, float) and key.is_integer():
        return int(key)
    if not isinstance(key, str | int | bool | float):
        raise EvaluationError("unsupported key type")
    return key


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a double."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def no_overload(function: str) -> EvaluationError:
    """Return the error for arguments of wrong types; it never shows them, because they may be secret."""
    return EvaluationError(f"no such overload: {function}")


def _covers(left: list[Any], right: list[Any]) -> bool:
    return all(contains(left, item) for item in right)
