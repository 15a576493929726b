"""One execution of a template: its output, variables, limits and position.

`node` is the node visited last. Go reports errors there, so every node sets it and none names a place itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from gotmpl.errors import ExecError, LimitError
from gotmpl.quoting import quote
from gotmpl.values import Value, to_bytes

_STEPS_BETWEEN_CHECKS = 4
"""One step may be a function that works on megabytes, and checking the clock costs less than most steps."""


class MissingKey(Enum):
    """How reading an absent field of a map behaves; Go's option of that name."""

    ERROR = "error"
    NOTHING = "default"
    """There is no value: prints `<no value>`, and a function receives nil."""


class TemplateLimits(NamedTuple):
    """Limits of one execution. A template that exceeds one fails with a LimitError that names it."""

    output_bytes: int = 4 * 2**20
    steps: int = 200_000
    """Loop iterations, calls and inclusions together."""
    depth: int = 150
    """Nested {{template}} calls."""
    seconds: float = 2.0
    clock: Callable[[], float] | None = None
    """A monotonic clock; without one there is no time limit."""


class Node(Protocol):
    """A part of a template where an error can occur; `str()` is its source in Go's normal form."""

    @property
    def pos(self) -> int:
        """Return the start position: an index into the text."""


Execute = Callable[["Run", Value], None]
"""Executes a template with a value as the dot."""


class Run:
    missing: MissingKey
    """Set by the engine, like everything that all its runs share."""
    __slots__ = (
        *("_deadline", "_limits", "alarm", "data", "depth", "left", "missing", "name", "node", "out", "root", "steps"),
        *("template", "text", "vars"),
    )

    def __init__(self, name: str, text: str, limits: TemplateLimits, data: Value, root: Execute) -> None:
        self.name = name
        self.root = root
        """The template of that name; including it starts over."""
        self.text = text
        """The source; messages may show what it contains."""
        self.template = name
        """The template being executed: the text itself, or one that it defines."""
        self.data = data
        self.out: list[str] = []
        self.left = limits.output_bytes
        self.steps = limits.steps
        self.alarm = limits.steps
        """The limits are checked when fewer steps than this are left."""
        self.depth = 0
        self.node: Node | None = None
        self.vars: list[Value] = []
        self._limits = limits
        self._deadline: float | None = None

    def overflow(self) -> LimitError:
        """Return the error for output beyond `left`. Nodes append their output themselves."""
        return self.over(f"output is larger than {self._limits.output_bytes} bytes")

    def step(self) -> None:
        """Count one iteration, call or inclusion. Performance-critical code does this inline."""
        self.steps -= 1
        if self.steps < self.alarm:
            self.tick()

    def tick(self) -> None:
        """Check the limits, and schedule the next check."""
        if self.steps < 0:
            raise self.over(f"more than {self._limits.steps} steps")
        self._check_time()
        self.alarm = max(self.steps - _STEPS_BETWEEN_CHECKS, 0)

    def _check_time(self) -> None:
        clock = self._limits.clock
        if clock is None:
            return
        if self._deadline is None:
            self._deadline = clock() + self._limits.seconds
        elif clock() > self._deadline:
            raise self.over(f"took longer than {self._limits.seconds:g} seconds")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > self._limits.depth:
            raise self.over(f"exceeded maximum template depth ({self._limits.depth})")
        self.step()

    def error(self, message: str, hint: str = "") -> ExecError:
        text, line, column = self._located(message)
        return ExecError(text, line=line, column=column, hint=hint)

    def over(self, message: str) -> LimitError:
        text, line, column = self._located(message)
        return LimitError(text, line=line, column=column)

    def _located(self, message: str) -> tuple[str, int, int]:
        node = self.node
        if node is None:
            return f"template: {self.name}: {message}", 0, 0
        before = self.text[: node.pos]
        line = before.count("\n") + 1
        column = len(to_bytes(before[before.rfind("\n") + 1 :]))
        where = f"{self.name}:{line}:{column}"
        return f"template: {where}: executing {quote(self.template)} at <{node}>: {message}", line, column
