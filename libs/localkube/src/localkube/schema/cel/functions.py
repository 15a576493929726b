"""The operators and functions that an expression may call: overloads for the checker, code for the program.

Our CRDs and the suite shared with kube-apiserver need these. A rule that calls another function does not compile,
so its CustomResourceDefinition is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from localkube.schema import formats
from localkube.schema.causes import go_value
from localkube.schema.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    STRING,
    A,
    B,
    EvaluationError,
    Type,
    contains,
    equal,
    hashable,
    is_number,
    less,
    list_of,
    map_of,
    no_overload,
)

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function."""

    arguments: tuple[Type, ...]
    result: Type
    member: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A function with all its overloads, which share one implementation."""

    run: Callable[..., Any]
    overloads: tuple[Overload, ...]


def plain(*arguments: Type, gives: Type) -> Overload:
    """Declare a call written as f(a, b)."""
    return Overload(arguments, gives, member=False)


def method(*arguments: Type, gives: Type) -> Overload:
    """Declare a call written as a.f(b)."""
    return Overload(arguments, gives, member=True)


def _function(run: Callable[..., Any], *overloads: Overload) -> Function:
    return Function(run, overloads)


def pattern(text: str) -> Any:
    """Compile a regular expression; EvaluationError if it is invalid."""
    try:
        return formats.compiled(text)
    except formats.PatternError as failure:
        raise EvaluationError(str(failure)) from None


def _checked_int(value: int) -> int:
    if not _INT_MIN <= value <= _INT_MAX:
        raise EvaluationError("integer overflow")
    return value


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _add(left: Any, right: Any) -> Any:
    if _is_int(left) and _is_int(right):
        return _checked_int(left + right)
    if _both(left, right, str) or _both(left, right, list) or (is_number(left) and is_number(right)):
        return left + right
    raise no_overload("_+_")


def _subtract(left: Any, right: Any) -> Any:
    return _calculated("_-_", left, right, lambda one, two: one - two)


def _multiply(left: Any, right: Any) -> Any:
    return _calculated("_*_", left, right, lambda one, two: one * two)


def _calculated(name: str, left: Any, right: Any, calculate: Callable[[Any, Any], Any]) -> Any:
    if _is_int(left) and _is_int(right):
        return _checked_int(calculate(left, right))
    if is_number(left) and is_number(right):
        return calculate(left, right)
    raise no_overload(name)


def _divide(left: Any, right: Any) -> Any:
    if _is_int(left) and _is_int(right):
        if right == 0:
            raise EvaluationError("division by zero")
        quotient = abs(left) // abs(right)
        return _checked_int(quotient if (left < 0) == (right < 0) else -quotient)
    if is_number(left) and is_number(right):
        return left / right if right else _divided_by_zero(left, right)
    raise no_overload("_/_")


def _divided_by_zero(left: float, right: float) -> float:
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left * math.copysign(1, right))


def _modulo(left: Any, right: Any) -> Any:
    if not (_is_int(left) and _is_int(right)):
        raise no_overload("_%_")
    if right == 0:
        raise EvaluationError("modulus by zero")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _negate(value: Any) -> Any:
    if isinstance(value, float):
        return -value
    if _is_int(value):
        return _checked_int(-value)
    raise no_overload("-_")


def _not(value: Any) -> bool:
    if isinstance(value, bool):
        return not value
    raise no_overload("!_")


def _in(value: Any, holder: Any) -> bool:
    if isinstance(holder, dict):
        return hashable(value) in holder
    if isinstance(holder, list):
        return contains(holder, value)
    raise no_overload("@in")


def _index(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        if key not in holder:
            raise EvaluationError(f"no such key: {key}")
        return holder[hashable(key)]
    if isinstance(holder, list) and is_number(key) and key == int(key):
        if not 0 <= key < len(holder):
            raise EvaluationError(f"index out of bounds: {int(key)}")
        return holder[int(key)]
    raise no_overload("_[_]")


def _size(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise no_overload("size")


def _both(left: Any, right: Any, kind: type) -> bool:
    return isinstance(left, kind) and isinstance(right, kind)


def _to_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return go_value(value)
    raise no_overload("string")


def _format(template: str, values: list[Any]) -> str:
    """Fill %s and %d of a template; %% is a percent sign."""
    out: list[str] = []
    rest = iter(values)
    runes = iter(template)
    for rune in runes:
        if rune != "%":
            out.append(rune)
            continue
        verb = next(runes, "")
        if verb == "%":
            out.append("%")
            continue
        try:
            out.append(_formatted(verb, next(rest)))
        except StopIteration:
            raise EvaluationError(f"index {len(values)} out of range") from None
    return "".join(out)


def _formatted(verb: str, value: Any) -> str:
    if verb == "s":
        return "null" if value is None else _to_string(value)
    if verb == "d" and _is_int(value):
        return str(value)
    raise EvaluationError("could not parse formatting clause: only %s and %d are supported")


def _text_only(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Check the receiver of a string method at run time because it may be dyn."""

    def checked(value: Any, *rest: Any) -> Any:
        if not isinstance(value, str):
            raise no_overload(name)
        return run(value, *rest)

    return checked


def _text_method(name: str, run: Callable[..., Any], argument: Type, gives: Type) -> Function:
    return _function(_text_only(name, run), method(STRING, argument, gives=gives))


_NUMBERS: Final = (INT, DOUBLE)
_ORDER: Final = (
    *(plain(kind, kind, gives=BOOL) for kind in (BOOL, INT, DOUBLE, STRING)),
    plain(INT, DOUBLE, gives=BOOL),
    plain(DOUBLE, INT, gives=BOOL),
)
_ARITHMETIC: Final = tuple(plain(kind, kind, gives=kind) for kind in _NUMBERS)
_SIZED: Final = (STRING, list_of(A), map_of(A, B))

LIBRARY: Final[dict[str, Function]] = {
    "_+_": _function(
        _add,
        *_ARITHMETIC,
        plain(STRING, STRING, gives=STRING),
        plain(list_of(A), list_of(A), gives=list_of(A)),
    ),
    "_-_": _function(_subtract, *_ARITHMETIC),
    "_*_": _function(_multiply, *_ARITHMETIC),
    "_/_": _function(_divide, *_ARITHMETIC),
    "_%_": _function(_modulo, plain(INT, INT, gives=INT)),
    "-_": _function(_negate, plain(INT, gives=INT), plain(DOUBLE, gives=DOUBLE)),
    "!_": _function(_not, plain(BOOL, gives=BOOL)),
    "_==_": _function(equal, plain(A, A, gives=BOOL)),
    "_!=_": _function(lambda left, right: not equal(left, right), plain(A, A, gives=BOOL)),
    "_<_": _function(less, *_ORDER),
    "_<=_": _function(lambda left, right: not less(right, left), *_ORDER),
    "_>_": _function(lambda left, right: less(right, left), *_ORDER),
    "_>=_": _function(lambda left, right: not less(left, right), *_ORDER),
    "@in": _function(_in, plain(A, list_of(A), gives=BOOL), plain(A, map_of(A, B), gives=BOOL)),
    "_[_]": _function(_index, plain(list_of(A), INT, gives=A), plain(map_of(A, B), A, gives=B)),
    "size": _function(
        _size, *(plain(kind, gives=INT) for kind in _SIZED), *(method(kind, gives=INT) for kind in _SIZED)
    ),
    "dyn": _function(lambda value: value, plain(A, gives=DYN)),
    "string": _function(_to_string, *(plain(kind, gives=STRING) for kind in (STRING, BOOL, INT, DOUBLE))),
    "contains": _text_method("contains", lambda text, part: part in text, STRING, BOOL),
    "startsWith": _text_method("startsWith", lambda text, part: text.startswith(part), STRING, BOOL),
    "endsWith": _text_method("endsWith", lambda text, part: text.endswith(part), STRING, BOOL),
    "matches": _function(
        _text_only("matches", lambda text, expression: pattern(expression).search(text) is not None),
        method(STRING, STRING, gives=BOOL),
        plain(STRING, STRING, gives=BOOL),
    ),
    "format": _text_method("format", _format, list_of(DYN), STRING),
}
