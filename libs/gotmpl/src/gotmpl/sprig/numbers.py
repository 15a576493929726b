"""Numbers. Integers wrap at 64 bits; the functions ending in f use decimal arithmetic."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation, Overflow

from gotmpl.errors import FuncError
from gotmpl.floats import format_float
from gotmpl.functions import ANY, FLOAT64, INT, STRING, Functions
from gotmpl.numbers import MAX_DIGITS
from gotmpl.sprig.conversion import decimal_text, text_of, to_float, to_int
from gotmpl.values import Int64, Value, wrap64

FUNCTIONS = Functions()
_OCTAL = re.compile(r"[+-]?[0-7]+")
_DECIMALS = Context(prec=400, rounding=ROUND_HALF_UP, traps=[InvalidOperation, DivisionByZero, Overflow])


@FUNCTIONS.add("int", params=(ANY,))
def int_(value: Value) -> int:
    return to_int(value)


@FUNCTIONS.add("int64", params=(ANY,))
def int64(value: Value) -> Int64:
    return Int64(to_int(value))


@FUNCTIONS.add("float64", params=(ANY,))
def float64(value: Value) -> float:
    return to_float(value)


@FUNCTIONS.add("atoi", params=(STRING,))
def atoi(text: str) -> int:
    body = text[1:] if text[:1] in "+-" and text else text
    if not (body.isascii() and body.isdigit()) or len(body) > MAX_DIGITS:
        return 0
    return max(-(2**63), min(2**63 - 1, int(text)))


@FUNCTIONS.add("toDecimal", params=(ANY,))
def to_decimal(value: Value) -> Int64:
    """Parse the printed value as an octal number; zero if it is none."""
    text = text_of(value)
    if len(text) > MAX_DIGITS or not _OCTAL.fullmatch(text):
        return Int64(0)
    number = int(text, 8)
    return Int64(number) if -(2**63) <= number < 2**63 else Int64(0)


def _whole(name: str, step: Callable[[int, int], int], params: int) -> None:
    def fold(*values: Value) -> Int64:
        total = to_int(values[0])
        for value in values[1:]:
            total = wrap64(step(total, to_int(value)))
        return Int64(total)

    FUNCTIONS.add(name, params=(ANY,) * params, variadic=ANY if name in {"mul", "max", "biggest", "min"} else None)(
        fold
    )


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise FuncError("runtime error: integer divide by zero")
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


_whole("sub", lambda a, b: a - b, 2)
_whole("div", _divided, 2)
_whole("mod", lambda a, b: a - b * _divided(a, b), 2)
_whole("mul", lambda a, b: a * b, 1)
_whole("max", max, 1)
_whole("biggest", max, 1)
_whole("min", min, 1)


@FUNCTIONS.add("add", variadic=ANY)
def add(*values: Value) -> Int64:
    return Int64(wrap64(sum(map(to_int, values))))


@FUNCTIONS.add("add1", params=(ANY,))
def add1(value: Value) -> Int64:
    return Int64(wrap64(to_int(value) + 1))


def _decimal(name: str, step: Callable[[Decimal, Decimal], Decimal], start: Decimal | None) -> None:
    def fold(*values: Value) -> float:
        numbers = [_as_decimal(value) for value in values]
        total, rest = (start, numbers) if start is not None else (numbers[0], numbers[1:])
        for number in rest:
            try:
                total = step(total, number)
            except DivisionByZero:
                raise FuncError("decimal division by 0") from None
            except InvalidOperation:
                raise FuncError("decimal division by 0") from None
        return float(total) or 0.0  # decimals have no negative zero

    params = () if name == "addf" else (ANY,)
    FUNCTIONS.add(name, params=params, variadic=ANY)(fold)


def _as_decimal(value: Value) -> Decimal:
    number = to_float(value)
    if not math.isfinite(number):
        raise FuncError(f"Cannot create a Decimal from {format_float(number)}")
    return Decimal(decimal_text(value))


_decimal("addf", _DECIMALS.add, Decimal(0))
_decimal("subf", _DECIMALS.subtract, None)
_decimal("mulf", _DECIMALS.multiply, None)
_decimal("divf", lambda a, b: _quantised(_DECIMALS.divide(a, b)), None)


def _quantised(value: Decimal) -> Decimal:
    """Round to sixteen decimal places, the Go library's default for division."""
    return value.quantize(Decimal("1e-16"), context=_DECIMALS)


@FUNCTIONS.add("add1f", params=(ANY,))
def add1f(value: Value) -> float:
    return float(_DECIMALS.add(_as_decimal(value), Decimal(1)))


@FUNCTIONS.add("maxf", params=(ANY,), variadic=ANY)
def maxf(*values: Value) -> float:
    return _extreme(max, values)


@FUNCTIONS.add("minf", params=(ANY,), variadic=ANY)
def minf(*values: Value) -> float:
    return _extreme(min, values)


def _extreme(pick: Callable[[list[float]], float], values: tuple[Value, ...]) -> float:
    numbers = [to_float(value) for value in values]
    return math.nan if any(map(math.isnan, numbers)) else pick(numbers)


def _rounded(value: float, how: Callable[[float], int]) -> float:
    """Round; a zero result keeps the sign of the input."""
    return math.copysign(how(value), value) if math.isfinite(value) else value


@FUNCTIONS.add("ceil", params=(ANY,))
def ceil(value: Value) -> float:
    return _rounded(to_float(value), math.ceil)


@FUNCTIONS.add("floor", params=(ANY,))
def floor(value: Value) -> float:
    return _rounded(to_float(value), math.floor)


@FUNCTIONS.add("round", params=(ANY, INT), variadic=FLOAT64)
def round_(value: Value, places: int, *threshold: float) -> float:
    """Round up if the fraction reaches the threshold, else down: negative numbers round down."""
    edge = threshold[0] if threshold else 0.5
    try:
        power = math.pow(10, places)
    except OverflowError:
        power = math.inf
    digit = power * to_float(value)
    if not math.isfinite(digit):
        return math.nan if math.isinf(power) or math.isnan(digit) else digit
    whole = math.copysign(math.ceil(digit) if math.modf(digit)[0] >= edge else math.floor(digit), digit)
    if power == 0:
        return math.nan if whole == 0 else math.copysign(math.inf, whole)
    return whole / power


@FUNCTIONS.add("randInt", params=(INT, INT))
def rand_int(low: int, high: int) -> int:
    if high <= low:
        raise FuncError("invalid argument to Intn")
    return low + secrets.randbelow(high - low)
