"""How a function of the library is declared: its overloads for the checker and one implementation for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.types import Type


@dataclass(frozen=True, slots=True)
class Overload:
    arguments: tuple[Type, ...]
    result: Type
    member: bool


@dataclass(frozen=True, slots=True)
class Function:
    run: Callable[..., Any]
    overloads: tuple[Overload, ...]


Library = dict[str, Function]


def plain(*arguments: Type, gives: Type) -> Overload:
    """Called as f(a, b)."""
    return Overload(arguments, gives, member=False)


def method(*arguments: Type, gives: Type) -> Overload:
    """Called as a.f(b)."""
    return Overload(arguments, gives, member=True)


def function(run: Callable[..., Any], *overloads: Overload) -> Function:
    return Function(run, overloads)


_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


def checked_int(value: int) -> int:
    """An int, if it fits into 64 bits."""
    if not _INT_MIN <= value <= _INT_MAX:
        raise EvaluationError("integer overflow")
    return value
