"""Comparison of CEL values. bool, int (64 bits), float, str, None, list and dict represent themselves."""

from __future__ import annotations

from typing import Any, Final

from localkube.schema.cel.errors import EvaluationError

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
