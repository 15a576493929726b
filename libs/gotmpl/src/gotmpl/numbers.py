"""Number and character constants, parsed as in Go."""

from __future__ import annotations

import re

from gotmpl.operands import Number
from gotmpl.quoting import quote, unquote_char

_DECIMAL = re.compile(r"[+-]?[0-9]+\Z")
_UNDERSCORED = re.compile(r"[+-]?0[xXoObB]_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*\Z|[+-]?[0-9]+(?:_[0-9]+)*\Z")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:_[0-9]+)*)?(?:\.(?:[0-9]+(?:_[0-9]+)*)?)?(?:[eE][+-]?[0-9]+(?:_[0-9]+)*)?\Z")
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?=_?[0-9a-fA-F]|\.[0-9a-fA-F])[0-9a-fA-F_]*\.?[0-9a-fA-F_]*[pP][+-]?[0-9]+\Z")


def parse_number(pos: int, text: str, *, is_char: bool = False, is_complex: bool = False) -> Number | str:
    """Return the constant with every type it can take, or the message of the parse error."""
    if is_char:
        code, whole = unquote_char(text)
        if code is None:
            return "invalid syntax"
        if not whole:
            return f"malformed character constant: {text}"
        number = Number(pos, text)
        number.int_value = number.uint_value = code
        number.float_value = float(code)
        number.is_rune = True
        return number
    if is_complex:
        value = _complex(text)
        return _simplified(pos, text, value) if value is not None else "syntax error scanning complex number"
    if text.endswith("i"):
        imaginary = real(text[:-1])
        if imaginary is not None:
            return _simplified(pos, text, complex(0, imaginary))
    return _real(pos, text)


def _real(pos: int, text: str) -> Number | str:
    number = Number(pos, text)
    exact = integer(text)
    if exact is not None:
        if -(2**63) <= exact < 2**63:
            number.int_value = exact
        if 0 <= exact < 2**64 and text[0] not in "+-":
            number.uint_value = exact
        if exact == 0:
            number.uint_value = 0
    if number.int_value is not None or number.uint_value is not None:
        number.float_value = float(number.int_value if number.int_value is not None else exact or 0)
        return number
    value = real(text)
    if value is None:
        return f"illegal number syntax: {quote(text)}"
    if not any(mark in text for mark in ".eEpP"):
        return f"integer overflow: {quote(text)}"
    number.float_value = value
    if value == int(value):
        number.int_value = int(value) if -(2**63) <= value < 2**63 else None
        number.uint_value = int(value) if 0 <= value < 2**64 else None
    return number


MAX_DIGITS = 200
"""Longer numbers are far beyond 64 bits, and Python refuses to convert very long ones."""


def integer(text: str) -> int | None:
    """Parse like strconv.ParseInt with base 0: prefixes, a leading 0 is octal, underscores only between digits."""
    if len(text) > MAX_DIGITS:
        return None
    if _DECIMAL.match(text):
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits[0] == "0":
            return None if set(digits) & {"8", "9"} else int(text, 8)
        return int(text)
    if not _UNDERSCORED.match(text):
        return None
    digits = text.lstrip("+-")
    if digits[0] == "0" and digits[1:2] in "_01234567" and len(digits) > 1:
        return None if set(digits) & {"8", "9"} else int(text.replace("_", ""), 8)
    try:
        return int(text, 0)
    except ValueError:
        return None


def real(text: str) -> float | None:
    """Parse like strconv.ParseFloat: decimal, or hexadecimal with an exponent."""
    try:
        if _HEX_FLOAT.match(text):
            return float.fromhex(text.replace("_", ""))
        if _FLOAT.match(text) and any(char.isdigit() for char in text):
            value = float(text.replace("_", ""))
            return None if value in {float("inf"), float("-inf")} else value
    except (ValueError, OverflowError):
        return None
    return None


def _complex(text: str) -> complex | None:
    found = re.match(r"(.*[^eEpP+-])([+-].+)i\Z", text)
    if found is None:
        return None
    first, second = real(found[1]), real(found[2])
    return None if first is None or second is None else complex(first, second)


def _simplified(pos: int, text: str, value: complex) -> Number:
    """Treat a complex constant without imaginary part as a real one, too."""
    number = Number(pos, text)
    number.complex_value = value
    if value.imag == 0:
        number.float_value = value.real
        if value.real == int(value.real):
            number.int_value = int(value.real)
            if value.real >= 0:
                number.uint_value = int(value.real)
    return number
