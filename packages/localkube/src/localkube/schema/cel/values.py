"""Run-time values of CEL that JSON does not have, and how values compare.

bool, int (64 bits), float, str, bytes, None, list and dict stand for themselves; timestamps are aware datetimes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from localkube.schema.cel.errors import EvaluationError


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    value: Any
    present: bool = True


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What type(x) gives."""

    name: str


MISSING: Final = Optional(None, present=False)

_NUMBERS: Final = (int, float)


def equal(left: Any, right: Any) -> bool:
    """CEL equality: numbers across types, everything else only within its type."""
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
    if isinstance(left, Optional) and isinstance(right, Optional):
        return left.present == right.present and equal(left.value, right.value)
    return type(left) is type(right) and bool(left == right)


def contains(items: list[Any], value: Any) -> bool:
    return any(equal(item, value) for item in items)


def less(left: Any, right: Any) -> bool:
    """Order of two values of one ordered type, or of two numbers."""
    numbers = _is_number(left) and _is_number(right)
    if numbers or (type(left) is type(right) and isinstance(left, str | bytes | bool | datetime | Duration)):
        return bool(left < right)
    raise no_overload("_<_", left, right)


def hashable(key: Any) -> Any:
    """A map key; whole doubles are the same key as their integers."""
    if isinstance(key, float) and key.is_integer():
        return int(key)
    if not isinstance(key, str | int | bool | float):
        raise EvaluationError(f"unsupported key type: {type_name(key)}")
    return key


def type_name(value: Any) -> str:
    for kind, name in _TYPE_NAMES:
        if isinstance(value, kind):
            return name
    return type(value).__name__.lower()


def no_overload(function: str, *values: Any) -> EvaluationError:
    del values  # never part of a message: it may be secret
    return EvaluationError(f"no such overload: {function}")


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


_TYPE_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (type(None), "null_type"),
    (datetime, "google.protobuf.Timestamp"),
    (Duration, "google.protobuf.Duration"),
    (TypeValue, "type"),
    (Optional, "optional_type"),
)
