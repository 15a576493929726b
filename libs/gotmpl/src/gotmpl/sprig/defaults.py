"""Defaults and choices, and fail."""

from __future__ import annotations

from gotmpl.errors import Authored, FuncError
from gotmpl.functions import ANY, BOOL, STRING, Functions
from gotmpl.sprig.conversion import is_empty
from gotmpl.values import Value

FUNCTIONS = Functions()


@FUNCTIONS.add("default", params=(ANY,), variadic=ANY)
def default(fallback: Value, *given: Value) -> Value:
    return fallback if not given or is_empty(given[0]) else given[0]


@FUNCTIONS.add("empty", params=(ANY,))
def empty(value: Value) -> bool:
    return is_empty(value)


@FUNCTIONS.add("coalesce", variadic=ANY)
def coalesce(*values: Value) -> Value:
    return next((value for value in values if not is_empty(value)), None)


@FUNCTIONS.add("ternary", params=(ANY, ANY, BOOL))
def ternary(if_true: Value, if_false: Value, condition: Value) -> Value:
    return if_true if condition else if_false


@FUNCTIONS.add("fail", params=(STRING,))
def fail(message: str) -> Value:
    raise FuncError(Authored(message))
