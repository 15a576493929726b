"""The comparisons of gjson queries: `#(age>40)`, `#(name%"J*")`, `#(active==~true)`."""

from __future__ import annotations

from typing import TypeVar

from eso_sdk.gjson_matching import matches
from eso_sdk.gjson_paths import Query
from eso_sdk.gjson_values import MISSING, Kind, Value, parsed_float

T = TypeVar("T", bytes, float)


def answers(value: Value, query: Query) -> bool:
    """Return whether a value satisfies the comparison of a query; without a comparison it only has to exist."""
    wanted = query.value
    if wanted.startswith(b"~"):
        value, wanted = _as_truth(value, wanted[1:])
    if not value.exists or not query.operator:
        return value.exists
    match value.kind:
        case Kind.STRING if query.operator in (b"%", b"!%"):
            return matches(value.text, wanted) == (query.operator == b"%")
        case Kind.STRING:
            return _compare(value.text, query.operator, wanted)
        case Kind.NUMBER:
            return _compare(value.number, query.operator, parsed_float(wanted))
        case Kind.TRUE:
            return _compare_truth(query.operator, wanted, same=b"true", beyond=b">", other=b"false")
        case Kind.FALSE:
            return _compare_truth(query.operator, wanted, same=b"false", beyond=b"<", other=b"true")
        case Kind.NULL | Kind.JSON:
            return False


def _as_truth(value: Value, wanted: bytes) -> tuple[Value, bytes]:
    """Evaluate `~true` and its variants: turn the value into a boolean to compare with true."""
    match wanted:
        case b"*":
            holds = value.exists
        case b"null":
            holds = value.kind is Kind.NULL
        case b"true":
            holds = value.truth
        case b"false":
            holds = _is_falsy(value)
        case _:
            return MISSING, b""
    return Value(Kind.TRUE if holds else Kind.FALSE, b""), b"true"


def _is_falsy(value: Value) -> bool:
    match value.kind:
        case Kind.NULL | Kind.FALSE:
            return True
        case Kind.STRING:
            return value.text.lower() in {b"0", b"f", b"false"}
        case Kind.NUMBER:
            return value.number == 0
        case Kind.TRUE | Kind.JSON:
            return False


def _compare(ours: T, operator: bytes, theirs: T) -> bool:
    match operator:
        case b"=":
            return ours == theirs
        case b"!=":
            return ours != theirs
        case b"<":
            return ours < theirs
        case b"<=":
            return ours <= theirs
        case b">":
            return ours > theirs
        case b">=":
            return ours >= theirs
        case _:
            return False


def _compare_truth(operator: bytes, wanted: bytes, *, same: bytes, beyond: bytes, other: bytes) -> bool:
    """Compare a boolean with a text; false orders before true."""
    if operator == b"=":
        return wanted == same
    if operator == b"!=":
        return wanted != same
    if operator == beyond:
        return wanted == other
    return operator == beyond + b"="
