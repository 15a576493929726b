"""The errors of rendering.

RenderError      a template did not parse, did not execute, or exceeded a limit; str() is the message for users
└── TargetError  the template of an object cannot produce that object; `path` says which part is wrong
"""

from __future__ import annotations

from typing import NamedTuple


class RenderError(Exception):
    """`phase` is "parse" or "execute"; `line` and `column` are 0 if unknown.

    `message` is the error in Go's words. `str()` adds the hint, if there is one.
    """

    is_bound = False
    """Whether a limit was exceeded: time, steps, depth or output."""

    def __init__(self, message: str, *, phase: str, line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.phase = phase
        self.line = line
        self.column = column


class TemplatePath(NamedTuple):
    """The location of a template: the field below `template`, and the object that contains it if it is another one."""

    field: tuple[str | int, ...]
    kind: str = ""
    name: str = ""
    key: str = ""


class TargetError(RenderError):
    def __init__(
        self, message: str, path: TemplatePath, *, phase: str = "execute", line: int = 0, column: int = 0
    ) -> None:
        super().__init__(message, phase=phase, line=line, column=column)
        self.path = path
