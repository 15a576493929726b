"""Macros that walk over a list or the keys of a map: all, exists, existsOne, map and filter.

A walk costs its length times the nodes of its body, paid before it starts, so nested walks cannot run away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, assert_never

from localkube.schema.cel.errors import BudgetError, EvaluationError
from localkube.schema.cel.frame import Evaluate, Frame
from localkube.schema.cel.nodes import Expr, Fold
from localkube.schema.cel.values import no_overload


def compile_fold(node: Fold, compile_node: Callable[[Expr], Evaluate], cost: int) -> Evaluate:
    walk = _walker(node, compile_node(node.range), cost + 1)
    body = compile_node(node.body)
    condition = compile_node(node.condition) if node.condition is not None else None
    match node.kind:
        case "all":
            return _bound(node, lambda frame: _quantified(walk, body, frame, stop=False))
        case "exists":
            return _bound(node, lambda frame: _quantified(walk, body, frame, stop=True))
        case "existsOne":
            return _bound(node, lambda frame: _count(walk, body, frame) == 1)
        case "filter":
            return _bound(node, lambda frame: [item for item in walk(frame) if _truth(body(frame))])
        case "map":
            return _bound(node, lambda frame: [body(frame) for _ in walk(frame) if _is_selected(condition, frame)])
        case _:
            assert_never(node.kind)


_Walk = Callable[[Frame], Iterator[Any]]
_ABSENT: Final = object()


def _walker(node: Fold, holder: Evaluate, cost: int) -> _Walk:
    """Set the loop variable to each item in turn, and yield the item."""
    name = node.variable

    def walk(frame: Frame) -> Iterator[Any]:
        value = holder(frame)
        if not isinstance(value, dict | list):
            raise no_overload(node.kind)
        names = frame.names
        frame.spend(cost * len(value))
        for item in value:
            names[name] = item
            yield item

    return walk


def _bound(node: Fold, evaluate: Evaluate) -> Evaluate:
    variable = node.variable

    def bound(frame: Frame) -> Any:
        hidden = frame.names.get(variable, _ABSENT)
        try:
            return evaluate(frame)
        finally:
            frame.names.pop(variable, None)
            if hidden is not _ABSENT:
                frame.names[variable] = hidden

    return bound


def _quantified(walk: _Walk, body: Evaluate, frame: Frame, *, stop: bool) -> bool:
    failure: EvaluationError | None = None
    for _ in walk(frame):
        try:
            if _truth(body(frame)) is stop:
                return stop
        except BudgetError:
            raise
        except EvaluationError as problem:
            failure = failure or problem
    if failure is not None:
        raise failure
    return not stop


def _count(walk: _Walk, body: Evaluate, frame: Frame) -> int:
    count = 0
    for _ in walk(frame):
        value = body(frame)
        if value is True:
            count += 1
        elif value is not False:
            raise no_overload("exists_one")
    return count


def _is_selected(condition: Evaluate | None, frame: Frame) -> bool:
    return condition is None or _truth(condition(frame))


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise no_overload("condition")
