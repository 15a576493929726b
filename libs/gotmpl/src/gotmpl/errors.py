"""The errors of templates, the only exceptions of this package.

TemplateError
├── ParseError      the text is not a template; `line` says where
├── ExecError       the template failed on these values; `line` and `column` say where
└── LimitError      a limit was exceeded: output bytes, steps, depth, time
FuncError           raised inside a function; its call adds the place and turns it into an ExecError
"""

from __future__ import annotations

from typing import NamedTuple


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
