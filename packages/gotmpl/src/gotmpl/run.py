"""One execution of a template: its output, its variables, its bounds, and where it is.

`node` is the node visited last. Go reports errors there, so every node sets it and none names a place itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from gotmpl.errors import ExecError, LimitError
from gotmpl.quoting import quote
from gotmpl.values import Value, to_bytes

_STEPS_BETWEEN_LOOKS = 4
"""One step may be a function that works on megabytes, and a look at the clock costs less than most of them."""


class MissingKey(Enum):
    """What reading a field of a map does if the map lacks it; Go's option of that name."""

    ERROR = "error"
    NOTHING = "default"
    """There is no value: prints `<no value>`, and a function gets nil."""


class Limits(NamedTuple):
    """Bounds of one execution. A template that reaches one fails with a LimitError that names it."""

    output_bytes: int = 4 * 2**20
    steps: int = 200_000
    """Loop iterations, calls and inclusions together."""
    depth: int = 150
    """Nested {{template}} calls."""
    seconds: float = 2.0
    clock: Callable[[], float] | None = None
    """A monotonic clock; without one there is no time bound."""


class Node(Protocol):
    """A piece of a template that an error can happen at; `str()` is its source in Go's normal form."""

    @property
    def pos(self) -> int:
        """Where it begins: an index into the text."""


class Whole(Protocol):
    """A template that can be executed."""

    def execute(self, run: Run, dot: Value, /) -> None: ...


class Run:
    missing: MissingKey
    """Set by the engine, like all that is the same for each of its runs."""
    __slots__ = (
        *("_deadline", "_limits", "alarm", "data", "depth", "left", "missing", "name", "node", "out", "root", "steps"),
        *("template", "text", "vars"),
    )

    def __init__(self, name: str, text: str, limits: Limits, data: Value, root: Whole) -> None:
        self.name = name
        self.root = root
        """What has that name: an inclusion of it starts over."""
        self.text = text
        """The source: what it spells out, messages may show."""
        self.template = name
        """The template being executed: the text itself, or one that it defines."""
        self.data = data
        self.out: list[str] = []
        self.left = limits.output_bytes
        self.steps = limits.steps
        self.alarm = limits.steps
        """When fewer steps than this are left, it is time to look at the bounds."""
        self.depth = 0
        self.node: Node | None = None
        self.vars: list[Value] = []
        self._limits = limits
        self._deadline: float | None = None

    def overflow(self) -> LimitError:
        """For whoever took more than is `left`. There is no method to write: it is done where the text is made."""
        return self.over(f"output is larger than {self._limits.output_bytes} bytes")

    def step(self) -> None:
        """Count one iteration, call or inclusion. Hot places do this themselves."""
        self.steps -= 1
        if self.steps < self.alarm:
            self.tick()

    def tick(self) -> None:
        """Look at the bounds, and say when to look again."""
        if self.steps < 0:
            raise self.over(f"more than {self._limits.steps} steps")
        self._check_time()
        self.alarm = max(self.steps - _STEPS_BETWEEN_LOOKS, 0)

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

    def error(self, message: str) -> ExecError:
        text, line, column = self._located(message)
        return ExecError(text, line=line, column=column)

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
