"""Operands: literals, the dot, fields, variables, chains.

A node of a template evaluates itself: the parser's result is the program; there is no separate compilation. `eval`
takes the run and the dot. It sets `run.node` exactly where Go would, so that the place in an error message is Go's;
`str(node)` is the source in Go's normal form, which error messages quote as `at <…>`.

All node modules use plain classes: a tree is built for every text, and plain classes are faster than dataclasses.
"""

from __future__ import annotations

from typing import Protocol

from gotmpl.fields import CallMethod, read_chain
from gotmpl.run import Node, Run
from gotmpl.values import StrMap, Value


class Operand(Node, Protocol):
    """A node that has a value."""

    def eval(self, run: Run, dot: Value, /) -> Value: ...


class Bool:
    __slots__ = ("pos", "value")

    def __init__(self, pos: int, value: bool) -> None:  # noqa: FBT001 the value is a bool
        self.pos = pos
        self.value = value

    def __str__(self) -> str:
        return "true" if self.value else "false"

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class String:
    __slots__ = ("pos", "quoted", "value")

    def __init__(self, pos: int, quoted: str, value: str) -> None:
        self.pos = pos
        self.quoted = quoted
        self.value = value

    def __str__(self) -> str:
        return self.quoted

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class Number:
    """A constant; the forms that are set say which Go types it can become."""

    __slots__ = ("complex_value", "float_value", "int_value", "is_rune", "pos", "text", "uint_value")

    def __init__(self, pos: int, text: str) -> None:
        self.pos = pos
        self.text = text
        self.int_value: int | None = None
        self.uint_value: int | None = None
        self.float_value: float | None = None
        self.complex_value: complex | None = None
        self.is_rune = False

    def __str__(self) -> str:
        return self.text

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        value = self.ideal
        if value is None:
            raise run.error(f"{self} overflows int")
        return value

    @property
    def ideal(self) -> Value:
        """Return the value of an untyped constant: int, else float64 or complex128. None if it overflows int."""
        if self.complex_value is not None:
            return self.complex_value
        if self.is_rune:
            return self.int_value
        if self.float_value is not None and not _is_hex(self.text) and set(self.text) & set(".eEpP"):
            return self.float_value
        return self.int_value


def _is_hex(text: str) -> bool:
    return len(text) > 2 and text[0] == "0" and text[1] in "xX" and not set(text) & set("pP")


class Nil:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "nil"

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        raise run.error("nil is not a command")


class Dot:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "."

    def eval(self, run: Run, dot: Value) -> Value:
        run.node = self
        return dot


class Field:
    """`.a.b`: fields of the dot. `loop` is the slot that says how the dot's type reads in messages (see scope.py)."""

    __slots__ = ("loop", "names", "pos")

    def __init__(self, pos: int, names: tuple[str, ...], loop: int | None) -> None:
        self.pos = pos
        self.names = names
        self.loop = loop

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)

    def eval(self, run: Run, dot: Value) -> Value:
        run.node = self
        names = self.names
        if type(dot) is StrMap and len(names) == 1 and names[0] in dot:
            return dot[names[0]]
        return self.read(run, dot, None)

    def read(self, run: Run, dot: Value, call: CallMethod | None) -> Value:
        """Return the value; the last name may be a method with arguments."""
        run.node = self
        in_interface = self.loop is not None and bool(run.vars[self.loop])
        return read_chain(run, dot, self.names, in_interface=in_interface, call=call)


class Variable:
    """`$x.a.b`; the first name includes the dollar sign. `slot` is None if the name is not bound here."""

    __slots__ = ("loop", "names", "pos", "slot")

    def __init__(self, pos: int, names: tuple[str, ...], slot: int | None, loop: int | None) -> None:
        self.pos = pos
        self.names = names
        self.slot = slot
        self.loop = loop

    def __str__(self) -> str:
        return ".".join(self.names)

    def eval(self, run: Run, dot: Value) -> Value:
        if self.slot is not None and len(self.names) == 1:
            run.node = self
            return run.vars[self.slot]
        return self.read(run, dot, None)

    def read(self, run: Run, _dot: Value, call: CallMethod | None) -> Value:
        """Return the value; the last name may be a method with arguments."""
        run.node = self
        if self.slot is None:
            raise run.error(f"undefined variable: {self.names[0]}")
        value = run.vars[self.slot]
        if len(self.names) == 1:
            return value
        in_interface = self.loop is not None and bool(run.vars[self.loop])
        return read_chain(run, value, self.names[1:], in_interface=in_interface, call=call)


class Chain:
    """`(pipeline).a.b`, or a term followed by fields."""

    __slots__ = ("names", "node", "pos")

    def __init__(self, pos: int, node: Operand, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.node = node
        self.names = names

    def __str__(self) -> str:
        return str(self.node) + "".join(f".{name}" for name in self.names)

    def eval(self, run: Run, dot: Value) -> Value:
        return self.read(run, dot, None)

    def read(self, run: Run, dot: Value, call: CallMethod | None) -> Value:
        """Return the value; the last name may be a method with arguments."""
        run.node = self
        if isinstance(self.node, Nil):
            raise run.error(f"indirection through explicit nil in {self}")
        return read_chain(run, self.node.eval(run, dot), self.names, in_interface=False, call=call)


class Group:
    """`(pipeline)` as a value."""

    __slots__ = ("inner", "pos")

    def __init__(self, pos: int, inner: Operand) -> None:
        self.pos = pos
        self.inner = inner

    def __str__(self) -> str:
        return f"({self.inner})"

    def eval(self, run: Run, dot: Value) -> Value:
        return self.inner.eval(run, dot)


def as_command(node: Node) -> str:
    """Format the head of a command like Go: a group without its parentheses."""
    return str(node.inner if isinstance(node, Group) else node)


Literal = Bool | String | Number | Nil | Dot
LITERALS = (Bool, String, Number, Nil, Dot)
Path = Field | Variable | Chain
PATHS = (Field, Variable, Chain)
