"""What can go wrong with a template. The only exceptions this package raises.

TemplateError
├── ParseError      the text is not a template; `line` says where
├── ExecError       the template failed on these values; `line` and `column` say where
└── LimitError      a bound was reached: output bytes, steps, depth, time
FuncError           raised inside a function; the evaluator adds where it happened and makes it an ExecError
"""

from __future__ import annotations


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


class FuncError(Exception):
    """A function refuses its arguments. The message itself never holds a data value.

    `about` is a value Go would print between the message and `rest`. It is shown only as far as the template's own
    source spells it out: then it is no secret.
    """

    def __init__(self, message: str, *, about: object = None, verb: str = "v", rest: str = "") -> None:
        super().__init__(message + rest)
        self.message = message
        self.about = about
        self.verb = verb
        self.rest = rest
