"""The errors of templates, the only exceptions of this package, and the limits of what one function may create.

TemplateError
├── ParseError      the text is not a template; `line` says where
├── ExecError       the template failed on these values; `line` and `column` say where
└── LimitError      a limit was exceeded: output bytes, steps, depth, time
FuncError           raised inside a function; its call adds the place and turns it into an ExecError
"""

from __future__ import annotations

from typing import Any, NamedTuple


class TemplateError(Exception):
    """`str()` is the message in Go's words; `hint` is what the author may have meant, or empty."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.hint = hint


class ParseError(TemplateError):
    pass


class ExecError(TemplateError):
    pass


class LimitError(TemplateError):
    pass


class Quoted(NamedTuple):
    """A data value in a message. It is shown only if the template's own source contains it."""

    value: object
    verb: str = "v"
    origin: object = None
    """The value from which this one was derived: if the source contains it, this one may be shown."""


class Authored(NamedTuple):
    """A message composed by the template's author. At most one literal of the template's source is shown."""

    text: str


class FuncError(Exception):
    """A function refuses its arguments. Data values are in the message only as Quoted, never as text."""

    def __init__(self, *parts: str | Quoted | Authored, hint: str = "") -> None:
        super().__init__("".join(part if isinstance(part, str) else "<redacted>" for part in parts))
        self.parts = parts
        self.hint = hint


# --- Limits of what one function may create or traverse. The limits of a whole render are in run.py -------------------

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
