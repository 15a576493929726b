"""Macros that walk over a list or map: all, exists, existsOne, map, filter and the transforms.

A walk costs its length times the nodes of its body, paid before it starts, so nested walks cannot run away.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, assert_never

from localkube.schema.cel.errors import BudgetError, EvaluationError
from localkube.schema.cel.frame import Evaluate, Frame
from localkube.schema.cel.nodes import Expr, Fold
from localkube.schema.cel.values import hashable, less, no_overload


def compile_fold(node: Fold, compile_node: Callable[[Expr], Evaluate], cost: int) -> Evaluate:
    walk = _walker(node, compile_node(node.range), cost + 1)
    body = compile_node(node.body)
    keep = compile_node(node.keep) if node.keep is not None else None
    match node.kind:
        case "all":
            return _bound(node, lambda frame: _quantified(walk, body, frame, stop=False))
        case "exists":
            return _bound(node, lambda frame: _quantified(walk, body, frame, stop=True))
        case "existsOne":
            return _bound(node, lambda frame: _count(walk, body, frame) == 1)
        case "filter":
            return _bound(node, lambda frame: [item for item in walk(frame) if _truth(body(frame))])
        case "map" | "transformList":
            return _bound(node, lambda frame: [body(frame) for _ in walk(frame) if _kept(keep, frame)])
        case "transformMap":
            return _bound(node, lambda frame: {key: body(frame) for key in walk(frame) if _kept(keep, frame)})
        case "sortBy":
            return _bound(node, lambda frame: _sorted(walk, body, frame))
        case "transformMapEntry":
            return _bound(node, lambda frame: _entries(walk, body, keep, frame))
        case _:
            assert_never(node.kind)


_Walk = Callable[[Frame], Iterator[Any]]


def _walker(node: Fold, holder: Evaluate, cost: int) -> _Walk:
    """Sets the loop variables and yields the first of them for each item."""
    first, second = node.variables[0], node.variables[-1] if len(node.variables) == 2 else None

    def walk(frame: Frame) -> Iterator[Any]:
        value = holder(frame)
        if not isinstance(value, dict | list):
            raise no_overload(node.kind, value)
        names = frame.names
        frame.spend(cost * len(value))
        if second is None:
            for item in value:
                names[first] = item
                yield item
            return
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            names[first], names[second] = key, item
            yield key

    return walk


def _bound(node: Fold, evaluate: Evaluate) -> Evaluate:
    variables = node.variables

    def bound(frame: Frame) -> Any:
        hidden = frame.hide(variables)
        try:
            return evaluate(frame)
        finally:
            frame.show(variables, hidden)

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
            raise no_overload("exists_one", value)
    return count


def _entries(walk: _Walk, body: Evaluate, keep: Evaluate | None, frame: Frame) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for _ in walk(frame):
        if not _kept(keep, frame):
            continue
        entry = body(frame)
        if not isinstance(entry, dict):
            raise no_overload("transformMapEntry", entry)
        for key, value in entry.items():
            if hashable(key) in found:
                raise EvaluationError(f"insert failed: key {key} already exists")
            found[key] = value
    return found


def _sorted(walk: _Walk, body: Evaluate, frame: Frame) -> list[Any]:
    keyed = [(body(frame), item) for item in walk(frame)]

    def compare(one: tuple[Any, Any], two: tuple[Any, Any]) -> int:
        return -1 if less(one[0], two[0]) else int(less(two[0], one[0]))

    return [item for _, item in sorted(keyed, key=functools.cmp_to_key(compare))]


def _kept(keep: Evaluate | None, frame: Frame) -> bool:
    return keep is None or _truth(keep(frame))


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise no_overload("condition", value)
