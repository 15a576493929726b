"""Lenient conversion, as in Sprig and the cast library: values that do not convert become zero."""

from __future__ import annotations

import math
import re

from gotmpl.floats import format_float
from gotmpl.formatting import Spec, format_value
from gotmpl.numbers import integer, real
from gotmpl.values import GoObject, StrSlice, Value, truth

_PLAIN = Spec()
_ZERO_FRACTION = re.compile(r"\.[0-9_]*\Z")


def text_of(value: Value) -> str:
    """Convert like Sprig's strval: %v, with nil as `<nil>`."""
    if isinstance(value, str):
        return value
    if isinstance(value, GoObject):
        return value.go_string()
    return format_value(value, _PLAIN)


def texts_of(value: Value) -> StrSlice:
    """Convert like Sprig's strslice: list elements as text without nils; anything else becomes a list of one."""
    if value is None:
        return StrSlice()
    if isinstance(value, list):
        return StrSlice(text_of(item) for item in value if item is not None)
    return StrSlice([text_of(value)])


def to_int(value: Value) -> int:
    """Convert as cast.ToInt64."""
    match value:
        case bool() | int():
            return int(value)
        case float():
            return int(value) if math.isfinite(value) and abs(value) < 2**63 else -(2**63)
        case GoObject():
            return value.go_int() or 0
        case str():
            exact = integer(_ZERO_FRACTION.sub("", value))
            return exact if exact is not None and -(2**63) <= exact < 2**63 else 0
        case _:
            return 0


def to_float(value: Value) -> float:
    """Convert as cast.ToFloat64."""
    match value:
        case bool() | int() | float():
            return float(value)
        case GoObject():
            return float(value.go_int() or 0)
        case str():
            return _parsed_float(value)
        case _:
            return 0.0


def _parsed_float(text: str) -> float:
    lowered = text.lower().lstrip("+-")
    if lowered in {"inf", "infinity", "nan"}:
        return float(text)
    if text.lstrip("+-").lower().startswith(("0x", "0o", "0b")) and "p" not in text.lower():
        return 0.0
    value = real(text)
    return 0.0 if value is None else value


def is_empty(value: Value) -> bool:
    """Return Sprig's empty: whether it is the zero value of anything but a struct."""
    return not truth(value)


def decimal_text(value: Value) -> str:
    """Return the number as exact decimal text, for decimal arithmetic."""
    return format_float(to_float(value), "f")
