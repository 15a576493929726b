"""Operators and the functions every CEL has: size, in, conversions of type, and the parts of a list or map."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.function import Library, checked_int, function, method, plain
from localkube.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    A,
    B,
    list_of,
    map_of,
)
from localkube.schema.cel.values import (
    Duration,
    TypeValue,
    Uint,
    contains,
    equal,
    hashable,
    less,
    no_overload,
    type_name,
)

_UINT_MAX: Final = 2**64 - 1


def _number(like: Any, value: int) -> int:
    if isinstance(like, Uint):
        if not 0 <= value <= _UINT_MAX:
            raise EvaluationError("unsigned integer overflow")
        return Uint(value)
    return checked_int(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _add(left: Any, right: Any) -> Any:
    if _is_int(left) and _is_int(right):
        return _number(left, left + right)
    if isinstance(left, datetime) and isinstance(right, Duration):
        return _moved(left, right.nanoseconds)
    if isinstance(left, Duration) and isinstance(right, datetime):
        return _moved(right, left.nanoseconds)
    if isinstance(left, Duration) and isinstance(right, Duration):
        return Duration(checked_int(left.nanoseconds + right.nanoseconds))
    if _both(left, right, str, bytes, list) or (_is_number(left) and _is_number(right)):
        return left + right
    raise no_overload("_+_", left, right)


def _subtract(left: Any, right: Any) -> Any:
    if _is_int(left) and _is_int(right):
        return _number(left, left - right)
    if isinstance(left, datetime) and isinstance(right, datetime):
        return Duration(round((left - right) / timedelta(microseconds=1)) * 1000)
    if isinstance(left, datetime) and isinstance(right, Duration):
        return _moved(left, -right.nanoseconds)
    if isinstance(left, Duration) and isinstance(right, Duration):
        return Duration(checked_int(left.nanoseconds - right.nanoseconds))
    if _is_number(left) and _is_number(right):
        return left - right
    raise no_overload("_-_", left, right)


def _multiply(left: Any, right: Any) -> Any:
    if _is_int(left) and _is_int(right):
        return _number(left, left * right)
    if _is_number(left) and _is_number(right):
        return left * right
    raise no_overload("_*_", left, right)


def _divide(left: Any, right: Any) -> Any:
    if _is_int(left) and _is_int(right):
        if right == 0:
            raise EvaluationError("division by zero")
        quotient = abs(left) // abs(right)
        return _number(left, quotient if (left < 0) == (right < 0) else -quotient)
    if _is_number(left) and _is_number(right):
        if right == 0:
            return (
                math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left * math.copysign(1, right))
            )
        return left / right
    raise no_overload("_/_", left, right)


def _modulo(left: Any, right: Any) -> Any:
    if not (_is_int(left) and _is_int(right)):
        raise no_overload("_%_", left, right)
    if right == 0:
        raise EvaluationError("modulus by zero")
    remainder = abs(left) % abs(right)
    return _number(left, -remainder if left < 0 else remainder)


def _negate(value: Any) -> Any:
    if isinstance(value, float):
        return -value
    if _is_int(value) and not isinstance(value, Uint):
        return checked_int(-value)
    raise no_overload("-_", value)


def _not(value: Any) -> bool:
    if isinstance(value, bool):
        return not value
    raise no_overload("!_", value)


def _in(value: Any, holder: Any) -> bool:
    if isinstance(holder, dict):
        return hashable(value) in holder
    if isinstance(holder, list):
        return contains(holder, value)
    raise no_overload("@in", value, holder)


def _index(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        if key not in holder:
            raise EvaluationError(f"no such key: {key}")
        return holder[hashable(key)]
    if isinstance(holder, list) and _is_number(key) and key == int(key):
        if not 0 <= key < len(holder):
            raise EvaluationError(f"index out of bounds: {int(key)}")
        return holder[int(key)]
    raise no_overload("_[_]", holder, key)


def _size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_overload("size", value)


def _moved(moment: datetime, nanoseconds: int) -> datetime:
    try:
        return moment + timedelta(microseconds=nanoseconds / 1000)
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _both(left: Any, right: Any, *kinds: type) -> bool:
    return any(isinstance(left, kind) and isinstance(right, kind) for kind in kinds)


def _type(value: Any) -> TypeValue:
    return TypeValue(type_name(value))


def _dyn(value: Any) -> Any:
    return value


def seconds_of(value: datetime) -> int:
    """The whole seconds since 1970 of a timestamp."""
    return math.floor((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())


_ORDERED: Final = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_NUMBERS: Final = (INT, UINT, DOUBLE)
_ORDER: Final = (
    *(plain(kind, kind, gives=BOOL) for kind in _ORDERED),
    *(plain(one, two, gives=BOOL) for one in _NUMBERS for two in _NUMBERS if one != two),
)
_ARITHMETIC: Final = tuple(plain(kind, kind, gives=kind) for kind in _NUMBERS)
_SIZED: Final = (STRING, BYTES, list_of(A), map_of(A, B))

FUNCTIONS: Final[Library] = {
    "_+_": function(
        _add,
        *_ARITHMETIC,
        plain(STRING, STRING, gives=STRING),
        plain(BYTES, BYTES, gives=BYTES),
        plain(list_of(A), list_of(A), gives=list_of(A)),
        plain(TIMESTAMP, DURATION, gives=TIMESTAMP),
        plain(DURATION, TIMESTAMP, gives=TIMESTAMP),
        plain(DURATION, DURATION, gives=DURATION),
    ),
    "_-_": function(
        _subtract,
        *_ARITHMETIC,
        plain(TIMESTAMP, TIMESTAMP, gives=DURATION),
        plain(TIMESTAMP, DURATION, gives=TIMESTAMP),
        plain(DURATION, DURATION, gives=DURATION),
    ),
    "_*_": function(_multiply, *_ARITHMETIC),
    "_/_": function(_divide, *_ARITHMETIC),
    "_%_": function(_modulo, plain(INT, INT, gives=INT), plain(UINT, UINT, gives=UINT)),
    "-_": function(_negate, plain(INT, gives=INT), plain(DOUBLE, gives=DOUBLE)),
    "!_": function(_not, plain(BOOL, gives=BOOL)),
    "_==_": function(equal, plain(A, A, gives=BOOL)),
    "_!=_": function(lambda left, right: not equal(left, right), plain(A, A, gives=BOOL)),
    "_<_": function(less, *_ORDER),
    "_<=_": function(lambda left, right: not less(right, left), *_ORDER),
    "_>_": function(lambda left, right: less(right, left), *_ORDER),
    "_>=_": function(lambda left, right: not less(left, right), *_ORDER),
    "@in": function(_in, plain(A, list_of(A), gives=BOOL), plain(A, map_of(A, B), gives=BOOL)),
    "_[_]": function(_index, plain(list_of(A), INT, gives=A), plain(map_of(A, B), A, gives=B)),
    "size": function(
        _size, *(plain(kind, gives=INT) for kind in _SIZED), *(method(kind, gives=INT) for kind in _SIZED)
    ),
    "type": function(_type, plain(A, gives=TYPE)),
    "dyn": function(_dyn, plain(A, gives=DYN)),
}
