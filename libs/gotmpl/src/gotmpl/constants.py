"""Literals as arguments: converted to the type of the parameter when the template is parsed.

As in Go, an unsuitable literal still fails only when it is executed.
"""

from __future__ import annotations

from gotmpl.operands import Bool, Nil, Number, Operand, String
from gotmpl.run import Run
from gotmpl.signatures import GoType
from gotmpl.values import Value


class _Literal:
    """A node that stands for a literal of the template."""

    __slots__ = ("literal",)

    def __init__(self, literal: Operand) -> None:
        self.literal = literal

    @property
    def pos(self) -> int:
        return self.literal.pos

    def __str__(self) -> str:
        return str(self.literal)


class Typed(_Literal):
    """A literal, converted for its parameter."""

    __slots__ = ("value",)

    def __init__(self, literal: Operand, value: Value) -> None:
        super().__init__(literal)
        self.value = value

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class Refused(_Literal):
    """A literal that its parameter does not accept."""

    __slots__ = ("message",)

    def __init__(self, literal: Operand, message: str) -> None:
        super().__init__(literal)
        self.message = message

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        raise run.error(self.message)


Constant = Bool | String | Typed
CONSTANTS = (Bool, String, Typed)
"""Nodes whose `value` is known before the template runs."""


def typed(node: Operand, kind: GoType) -> Operand:
    """Return the node for an argument of that type: unchanged unless it is a literal that needs converting."""
    match node:
        case String():
            return node if kind.constant in _TAKE_STRINGS else _refused(node, kind)
        case Bool():
            return node if kind.constant in _TAKE_BOOLS else _refused(node, kind)
        case Number():
            value = _converted(node, kind)
            if value is not None:
                return Typed(node, value)
            return Refused(node, f"{node} overflows int") if kind.constant == "any" else _refused(node, kind)
        case Nil():
            return Typed(node, None) if kind.nilable else Refused(node, f"cannot assign nil to {kind.name}")
        case _:
            return node


_TAKE_STRINGS = ("string", "any")
_TAKE_BOOLS = ("bool", "any")


def _refused(node: Operand, kind: GoType) -> Refused:
    if kind.constant == "none":
        return Refused(node, f"can't handle {node} for arg of type {kind.name}")
    expected = {"unsigned": "unsigned integer"}.get(kind.constant, kind.constant)
    return Refused(node, f"expected {expected}; found {node}")


def _converted(number: Number, kind: GoType) -> Value:
    """Convert the number to a type; None if it does not fit."""
    match kind.constant:
        case "any":
            return number.ideal
        case "integer":
            value: Value = number.int_value
        case "unsigned":
            value = number.uint_value
        case "float":
            value = number.float_value
        case _:
            return None
    return kind.box(value) if kind.box is not None and value is not None else value
