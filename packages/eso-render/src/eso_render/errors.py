"""What rendering raises.

RenderError      a template did not parse, did not execute, or reached a bound; str() is the message users see
└── TargetError  the template of an object cannot become that object; `place` says which part of it is to blame
"""

from __future__ import annotations

from typing import NamedTuple


class RenderError(Exception):
    """`phase` is "parse" or "execute"; `line` and `column` are 0 where they are not known."""

    is_bound = False
    """Whether a bound was reached: time, steps, depth or output."""

    def __init__(self, message: str, *, phase: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.phase = phase
        self.line = line
        self.column = column


class Place(NamedTuple):
    """Where a template stands: the field below `template`, and the object it is kept in if that is another one."""

    field: tuple[str | int, ...]
    kind: str = ""
    name: str = ""
    key: str = ""


class TargetError(RenderError):
    def __init__(self, message: str, place: Place, *, phase: str = "execute", line: int = 0, column: int = 0) -> None:
        super().__init__(message, phase=phase, line=line, column=column)
        self.place = place
