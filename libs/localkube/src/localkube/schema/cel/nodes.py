"""The syntax tree of a CEL expression. Only the checker changes a node: it fills `type`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from localkube.schema.cel.types import DYN, Type

FoldKind = Literal["all", "exists", "existsOne", "map", "filter"]


@dataclass(slots=True, kw_only=True)
class _Node:
    at: int = 0
    """Offset in the source."""
    type: Type = field(default=DYN, repr=False)


@dataclass(slots=True)
class Constant(_Node):
    value: Any


@dataclass(slots=True)
class Name(_Node):
    name: str


@dataclass(slots=True)
class Select(_Node):
    operand: Expr
    field: str


@dataclass(slots=True)
class Has(_Node):
    """has(operand.field)."""

    operand: Expr
    field: str


@dataclass(slots=True)
class Call(_Node):
    """A function or an operator; operators have names such as `_+_`."""

    function: str
    arguments: list[Expr]
    member: bool = False
    """Written as a method: the first argument is the receiver."""


@dataclass(slots=True)
class ListOf(_Node):
    items: list[Expr]


@dataclass(slots=True)
class MapOf(_Node):
    entries: list[tuple[Expr, Expr]]


@dataclass(slots=True)
class Fold(_Node):
    """A macro that walks over a list or map, such as `all` or `map`."""

    kind: FoldKind
    range: Expr
    variable: str
    body: Expr
    condition: Expr | None = None
    """Condition of a three-argument `map`."""


Expr = Constant | Name | Select | Has | Call | ListOf | MapOf | Fold


def size(node: Expr) -> int:
    """Count the nodes of an expression, which is the cost of one evaluation."""
    match node:
        case Constant() | Name():
            return 1
        case Select() | Has():
            return 1 + size(node.operand)
        case Call():
            return 1 + sum(size(argument) for argument in node.arguments)
        case ListOf():
            return 1 + sum(size(item) for item in node.items)
        case MapOf():
            return 1 + sum(size(key) + size(value) for key, value in node.entries)
        case Fold():
            return 1 + size(node.range) + size(node.body) + (size(node.condition) if node.condition else 0)


def names(node: Expr) -> set[str]:
    """Collect every variable that an expression mentions, bound ones included."""
    match node:
        case Constant():
            return set()
        case Name():
            return {node.name}
        case Select() | Has():
            return names(node.operand)
        case Call():
            return set().union(*(names(argument) for argument in node.arguments))
        case ListOf():
            return set().union(*(names(item) for item in node.items))
        case MapOf():
            return set().union(*(names(key) | names(value) for key, value in node.entries))
        case Fold():
            return names(node.range) | names(node.body) | (names(node.condition) if node.condition else set())
