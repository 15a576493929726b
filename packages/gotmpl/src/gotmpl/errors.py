"""What can go wrong with a template. The only exceptions this package raises.

TemplateError
├── ParseError      the text is not a template; `line` says where
├── ExecError       the template failed on these values; `line` and `column` say where
└── LimitError      a bound was reached: output bytes, steps, depth, time
FuncError           raised inside a function; its call adds where it happened and makes it an ExecError
"""

from __future__ import annotations

from typing import NamedTuple


class TemplateError(Exception):
    """`str()` is the message users see, in Go's words."""

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class ParseError(TemplateError):
    pass


class ExecError(TemplateError):
    pass


class LimitError(TemplateError):
    pass


class Quoted(NamedTuple):
    """A data value in a message. It is shown only as far as the template's own source spells it out."""

    value: object
    verb: str = "v"
    origin: object = None
    """The value this one was cut out of or rewritten from: if the source spells that out, this may be shown."""


class Authored(NamedTuple):
    """A message the template's author composed. Its words are shown as far as the template's own source has them."""

    text: str


class FuncError(Exception):
    """A function refuses its arguments. Data values are in the message as Quoted only, never as text."""

    def __init__(self, *parts: str | Quoted | Authored) -> None:
        super().__init__("".join(part if isinstance(part, str) else "<redacted>" for part in parts))
        self.parts = parts
