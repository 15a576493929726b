"""Limits of what one function may create or traverse. The limits of a whole render are in run.py."""

from __future__ import annotations

from typing import Any

from gotmpl.errors import FuncError

MAX_TEXT = 4 * 2**20
"""No function returns more than this many characters."""
MAX_ITEMS = 100_000
"""Longest list that a function creates from scratch."""
MAX_VALUES = 500_000
"""Most values a list or map may hold; shared values count each time, because `list $x $x` in a loop grows fast."""
MAX_DEPTH = 200
"""Deepest nesting of lists and maps that is traversed."""


def bounded(size: int) -> None:
    if size > MAX_TEXT:
        raise FuncError(f"the result would be larger than {MAX_TEXT} bytes")


def bounded_items(count: int) -> None:
    if count > MAX_ITEMS:
        raise FuncError(f"a list of {count} items is longer than {MAX_ITEMS}")


def bounded_value(value: Any) -> None:
    """Refuse a value that would take too long to traverse. Each part is counted once, without a full traversal."""
    if isinstance(value, (list, dict)):
        _size(value, {}, 0)


def _size(value: list[Any] | dict[str, Any], known: dict[int, int], depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FuncError(f"a value is nested deeper than {MAX_DEPTH} levels, or contains itself")
    total = len(value)
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (list, dict)):
            total += known[id(item)] if id(item) in known else _size(item, known, depth + 1)
    if total > MAX_VALUES:
        raise FuncError(f"a value holds more than {MAX_VALUES} values")
    known[id(value)] = total
    return total
