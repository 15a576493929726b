"""Literals as arguments: converted to the type of the parameter when the template is parsed.

One that does not fit still fails only when it is reached, as in Go.
"""

from __future__ import annotations

from gotmpl.operands import Bool, Nil, Number, Operand, String
from gotmpl.run import Run
from gotmpl.signatures import GoType
from gotmpl.values import Value


class Typed:
    """A literal with the value it has for its parameter."""

    __slots__ = ("literal", "value")

    def __init__(self, literal: Operand, value: Value) -> None:
        self.literal = literal
        self.value = value

    @property
    def pos(self) -> int:
        return self.literal.pos

    def __str__(self) -> str:
        return str(self.literal)

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class Refused:
    """A literal that its parameter does not take."""

    __slots__ = ("literal", "message")

    def __init__(self, literal: Operand, message: str) -> None:
        self.literal = literal
        self.message = message

    @property
    def pos(self) -> int:
        return self.literal.pos

    def __str__(self) -> str:
        return str(self.literal)

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        raise run.error(self.message)


Constant = Bool | String | Typed
CONSTANTS = (Bool, String, Typed)
"""Nodes whose `value` is known before the template runs."""


def typed(node: Operand, kind: GoType) -> Operand:
    """What stands for a node as an argument of that type: itself, unless it is a literal that needs converting."""
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
    wanted = {"unsigned": "unsigned integer"}.get(kind.constant, kind.constant)
    return Refused(node, f"expected {wanted}; found {node}")


def _converted(number: Number, kind: GoType) -> Value:
    """The number as a value of a type, or None if it does not fit."""
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
