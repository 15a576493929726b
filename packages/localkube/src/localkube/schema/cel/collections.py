"""Functions of lists, sets and optional values."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.function import Library, function, method, plain
from localkube.schema.cel.operators import FUNCTIONS as OPERATORS
from localkube.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    list_of,
    optional_of,
)
from localkube.schema.cel.values import MISSING, Duration, Optional, contains, equal, less

_SIZE_LIMIT: Final = 100_000


def _sum(items: list[Any]) -> Any:
    if not items:
        return 0
    return functools.reduce(OPERATORS["_+_"].run, items)


def _lowest(items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("min called on empty list")
    return functools.reduce(lambda best, item: item if less(item, best) else best, items)


def _highest(items: list[Any]) -> Any:
    if not items:
        raise EvaluationError("max called on empty list")
    return functools.reduce(lambda best, item: item if less(best, item) else best, items)


def _is_sorted(items: list[Any]) -> bool:
    return not any(less(after, before) for before, after in itertools.pairwise(items))


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=functools.cmp_to_key(lambda one, two: -1 if less(one, two) else int(less(two, one))))


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not contains(found, item):
            found.append(item)
    return found


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            found += _flatten(item, depth - 1)
        else:
            found.append(item)
    return found


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _range(count: int) -> list[int]:
    if count > _SIZE_LIMIT:
        raise EvaluationError(f"lists.range is limited to {_SIZE_LIMIT} items")
    return list(range(count))


def _reverse(value: Any) -> Any:
    return value[::-1]


def _covers(left: list[Any], right: list[Any]) -> bool:
    return all(contains(left, item) for item in right)


def _equivalent(left: list[Any], right: list[Any]) -> bool:
    return _covers(left, right) and _covers(right, left)


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(contains(left, item) for item in right)


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Any) -> Optional:
    zero = value is None or value in (False, 0, "", b"") or value in ([], {}) or value == Duration(0)
    return MISSING if zero else Optional(value)


def _end(index: int) -> Callable[[list[Any]], Optional]:
    return lambda items: Optional(items[index]) if items else MISSING


_SUMMABLE: Final = (INT, UINT, DOUBLE, DURATION)
_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def _each(kinds: tuple[Type, ...], result: Callable[[Type], Type]) -> Any:
    return (method(list_of(kind), gives=result(kind)) for kind in kinds)


FUNCTIONS: Final[Library] = {
    "sum": function(_sum, *_each(_SUMMABLE, lambda kind: kind)),
    "min": function(_lowest, *_each(_COMPARABLE, lambda kind: kind)),
    "max": function(_highest, *_each(_COMPARABLE, lambda kind: kind)),
    "isSorted": function(_is_sorted, *_each(_COMPARABLE, lambda _kind: BOOL)),
    "sort": function(_sorted, *_each(_COMPARABLE, list_of)),
    "distinct": function(_distinct, method(list_of(A), gives=list_of(A))),
    "flatten": function(
        _flatten,
        method(list_of(list_of(A)), gives=list_of(A)),
        method(list_of(DYN), gives=list_of(DYN)),
        method(list_of(DYN), INT, gives=list_of(DYN)),
    ),
    "slice": function(_slice, method(list_of(A), INT, INT, gives=list_of(A))),
    "reverse": function(_reverse, method(list_of(A), gives=list_of(A))),
    "first": function(_end(0), method(list_of(A), gives=optional_of(A))),
    "last": function(_end(-1), method(list_of(A), gives=optional_of(A))),
    "lists.range": function(_range, plain(INT, gives=list_of(INT))),
    "sets.contains": function(_covers, plain(list_of(A), list_of(A), gives=BOOL)),
    "sets.equivalent": function(_equivalent, plain(list_of(A), list_of(A), gives=BOOL)),
    "sets.intersects": function(_intersects, plain(list_of(A), list_of(A), gives=BOOL)),
    "optional.of": function(Optional, plain(A, gives=optional_of(A))),
    "optional.none": function(lambda: MISSING, plain(gives=optional_of(DYN))),
    "optional.ofNonZeroValue": function(_of_non_zero, plain(A, gives=optional_of(A))),
    "hasValue": function(lambda optional: optional.present, method(optional_of(A), gives=BOOL)),
    "value": function(_value, method(optional_of(A), gives=A)),
    "orValue": function(
        lambda optional, other: optional.value if optional.present else other,
        method(optional_of(A), A, gives=A),
    ),
    "or": function(
        lambda optional, other: optional if optional.present else other,
        method(optional_of(A), optional_of(A), gives=optional_of(A)),
    ),
}


def unordered_equal(left: list[Any], right: list[Any]) -> bool:
    """Equality of set and map lists: order does not matter."""
    return len(left) == len(right) and _covers(left, right) and _covers(right, left)


def merged(left: list[Any], right: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """`left + right` of set and map lists: items of the right replace or follow those of the left."""
    if not keys:
        return [*left, *(item for item in right if not contains(left, item))]

    def same(one: Any, two: Any) -> bool:
        return all(equal(one.get(key), two.get(key)) for key in keys)

    found = [next((new for new in right if same(new, item)), item) for item in left]
    return [*found, *(item for item in right if not any(same(item, other) for other in left))]
