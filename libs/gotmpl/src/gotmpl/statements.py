"""Statements: the actions of a template, in order.

`execute` returns a signal (None, BREAK or CONTINUE), so that loops need no exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gotmpl.errors import FuncError
from gotmpl.formatting import display, spelled_out
from gotmpl.operands import Field, Operand
from gotmpl.quoting import quote
from gotmpl.run import Execute, Run
from gotmpl.values import StrMap, Value, has_interface_elements, sorted_keys, truth

Signal = int | None
BREAK, CONTINUE = 1, 2


class Statement(Protocol):
    def execute(self, run: Run, dot: Value, /) -> Signal: ...


Body = list[Statement]


def perform(body: Body, run: Run, dot: Value) -> Signal:
    for statement in body:
        signal = statement.execute(run, dot)
        if signal is not None:
            return signal
    return None


def is_empty(body: Body) -> bool:
    """Return whether a body consists only of definitions and white space."""
    return all(isinstance(node, Text) and not node.text.strip(" \t\r\n") for node in body)


class Text:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def execute(self, run: Run, _dot: Value) -> Signal:
        run.left -= len(self.text)
        if run.left < 0:
            raise run.overflow()
        run.out.append(self.text)
        return None


class Action:
    """`{{pipeline}}`: shows its value."""

    __slots__ = ("pipe", "pos")

    def __init__(self, pos: int, pipe: Operand) -> None:
        self.pos = pos
        self.pipe = pipe

    def __str__(self) -> str:
        return "{{" + str(self.pipe) + "}}"

    def execute(self, run: Run, dot: Value) -> Signal:
        value = self.pipe.eval(run, dot)
        run.node = self
        text = value if type(value) is str else _displayed(run, value)
        run.left -= len(text)
        if run.left < 0:
            raise run.overflow()
        run.out.append(text)
        return None


class ShownField:
    """`{{.name}}`: an action in one node."""

    __slots__ = ("loop", "name", "pos")

    def __init__(self, pos: int, name: str, loop: int | None) -> None:
        self.pos = pos
        self.name = name
        self.loop = loop

    def __str__(self) -> str:
        return "{{." + self.name + "}}"

    def execute(self, run: Run, dot: Value) -> Signal:
        name = self.name
        known = type(dot) is StrMap and name in dot
        value = dot[name] if known else Field(self.pos, (name,), self.loop).eval(run, dot)
        run.node = self
        text = value if type(value) is str else _displayed(run, value)
        run.left -= len(text)
        if run.left < 0:
            raise run.overflow()
        run.out.append(text)
        return None


def _displayed(run: Run, value: Value) -> str:
    try:
        return display(value)
    except FuncError as exc:
        raise run.error(str(exc)) from None


class If:
    __slots__ = ("body", "otherwise", "pipe")

    def __init__(self, pipe: Operand, body: Body, otherwise: Body) -> None:
        self.pipe = pipe
        self.body = body
        self.otherwise = otherwise

    def execute(self, run: Run, dot: Value) -> Signal:
        value = self.pipe.eval(run, dot)
        return perform(self.body if truth(value) else self.otherwise, run, dot)


class With(If):
    """Like If, but the value becomes the dot of the body."""

    __slots__ = ()

    def execute(self, run: Run, dot: Value) -> Signal:
        value = self.pipe.eval(run, dot)
        return perform(self.body, run, value) if truth(value) else perform(self.otherwise, run, dot)


class Loop:
    """The variables of a {{range}}. A slot is None if it assigns to a name that is not bound here."""

    __slots__ = ("flag", "names", "slots")

    def __init__(self, flag: int, names: list[str], slots: list[int | None]) -> None:
        self.flag = flag
        """The slot that says whether the elements have the type interface {}."""
        self.names = names
        self.slots = slots

    def bind(self, run: Run, container: Value) -> None:
        """Set each variable to the container until the first element, as in Go."""
        for name, slot in zip(self.names, self.slots, strict=True):
            if slot is None:
                raise run.error(f"undefined variable: {name}")
            run.vars[slot] = container


class Range:
    __slots__ = ("body", "loop", "otherwise", "pipe")

    def __init__(self, pipe: Operand, loop: Loop, body: Body, otherwise: Body) -> None:
        self.pipe = pipe
        self.loop = loop
        self.body = body
        self.otherwise = otherwise

    def execute(self, run: Run, dot: Value) -> Signal:
        container = self.pipe.eval(run, dot)
        loop, body, slots = self.loop, self.body, self.loop.slots
        loop.bind(run, container)
        key_slot = slots[0] if len(slots) == 2 else None
        value_slot = slots[-1] if slots else None
        in_interface = has_interface_elements(container)
        ran = False
        for key, value in range_entries(run, container, len(slots)):
            ran = True
            run.step()
            variables = run.vars
            variables[loop.flag] = in_interface
            if key_slot is not None:
                variables[key_slot] = key
            if value_slot is not None:
                variables[value_slot] = value
            if perform(body, run, value) == BREAK:
                break
        return None if ran else perform(self.otherwise, run, dot)


class Break:
    __slots__ = ()

    def execute(self, _run: Run, _dot: Value) -> Signal:
        return BREAK


class Continue:
    __slots__ = ()

    def execute(self, _run: Run, _dot: Value) -> Signal:
        return CONTINUE


class Template:
    """The body of a text, or of a template it defines, with the number of slots for its variables."""

    __slots__ = ("body", "size")

    def __init__(self, body: Body, size: int) -> None:
        self.body = body
        self.size = size

    def execute(self, run: Run, dot: Value) -> None:
        run.vars = [dot, *[None] * (self.size - 1)]
        perform(self.body, run, dot)


class Parsed(NamedTuple):
    """A parsed text: its own body, and the templates it defines."""

    body: Template
    defined: Mapping[str, Template]

    def named(self, name: str) -> Template | None:
        """Return the template with the text's own name. None if the text has a body and also defines that name."""
        own = self.defined.get(name)
        if own is None or is_empty(own.body):
            return self.body
        return own if is_empty(self.body.body) else None


class Include:
    """`{{template "name" pipeline}}`: includes another template."""

    __slots__ = ("delimiters", "name", "pipe", "pos", "templates")

    def __init__(
        self,
        pos: int,
        name: str,
        pipe: Operand | None,
        templates: Mapping[str, Template],
        delimiters: tuple[str, str],
    ) -> None:
        self.delimiters = delimiters
        self.pos = pos
        self.name = name
        self.pipe = pipe
        self.templates = templates
        """Every template that the text defines, before or after this."""

    def __str__(self) -> str:
        left, right = self.delimiters
        return f"{left}template {quote(self.name)}" + (f" {self.pipe}" if self.pipe else "") + right

    def execute(self, run: Run, dot: Value) -> Signal:
        run.node = self
        if self.name == run.name:
            execute: Execute = run.root
        elif target := self.templates.get(self.name):
            execute = target.execute
        else:
            raise run.error(f"template {quote(self.name)} not defined")
        run.enter()
        inner = self.pipe.eval(run, dot) if self.pipe is not None else None
        outer_template, outer_vars = run.template, run.vars
        run.template = self.name
        execute(run, inner)
        run.template, run.vars = outer_template, outer_vars
        run.depth -= 1
        return None


def range_entries(run: Run, container: Value, variables: int) -> list[tuple[Value, Value]] | enumerate[Value]:
    """Return index or key, and element. Maps are sorted by key."""
    if isinstance(container, list):
        return enumerate(container)
    if isinstance(container, dict):
        return [(key, container[key]) for key in sorted_keys(container)]
    if isinstance(container, int) and not isinstance(container, bool):
        if variables > 1:
            raise run.error(f"can't use {container} to iterate over more than one variable")
        if container > run.steps:
            raise run.over(f"a range over {container} is too long")
        kind = type(container)
        return [(kind(i), kind(i)) for i in range(container)]
    if container is None:
        return []
    raise run.error(f"range can't iterate over {spelled_out(container, run.text)}")
