"""A checked expression compiled to closures, run under a step budget.

    source -> parser -> checker -> Program.run(values)

Logic follows CEL: `&&`, `||`, `all` and `exists` give an answer if one operand decides it, even when another one
failed. JSON values are turned into CEL values where a name, field or item with a static type is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from localkube.schema.cel.checker import Scope, check
from localkube.schema.cel.functions import LIBRARY
from localkube.schema.cel.parser import Call, Constant, Expr, Fold, Has, ListOf, MapOf, Name, Select, names, parse, size
from localkube.schema.cel.types import (
    BOOL,
    DOUBLE,
    INT,
    STRING,
    BudgetError,
    CompileError,
    EvaluationError,
    ObjectType,
    SetListType,
    Type,
    hashable,
    merged,
    no_overload,
    unordered_equal,
)

# --- The variables of a running expression, and the steps it may still take -------------------------------------------


@dataclass(slots=True)
class Frame:
    names: dict[str, Any]
    budget: int

    def spend(self, steps: int) -> None:
        self.budget -= steps
        if self.budget < 0:
            raise BudgetError("operation cancelled: actual cost limit exceeded")


Evaluate = Callable[[Frame], Any]


# --- Macros that walk over a list or the keys of a map: all, exists, existsOne, map and filter ------------------------
# A walk costs its length times the nodes of its body, paid before it starts, so nested walks cannot run away.


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


STEP_LIMIT: Final = 1_000_000
"""Steps of one expression; about half a second."""


@dataclass(slots=True)
class Program:
    """One expression, ready to run."""

    source: str
    type: Type
    variables: frozenset[str]
    cost: int
    _evaluate: Evaluate = field(repr=False)

    def run(self, values: Mapping[str, Any], budget: int = STEP_LIMIT) -> tuple[Any, int]:
        """Evaluate the expression; return its value and the remaining steps. EvaluationError if it fails."""
        frame = Frame(dict(values), budget)
        frame.spend(self.cost)
        try:
            return self._evaluate(frame), frame.budget
        except RecursionError:
            raise EvaluationError("expression is nested too deeply") from None


def compile_program(source: str, scope: Scope) -> Program:
    """Parse, check and compile; CompileError gives the reason and the place."""
    try:
        tree = parse(source)
        kind = check(tree, scope, source)
        return Program(source, kind, frozenset(names(tree)), size(tree), _compile(tree))
    except RecursionError:
        raise CompileError("expression recursion limit exceeded", source, 0) from None


def _compile(node: Expr) -> Evaluate:
    match node:
        case Constant():
            value = node.value
            return lambda _frame: value
        case Name():
            return _name(node)
        case Select():
            return _adapted(_select(node), node.type)
        case Has():
            return _has(node)
        case Call():
            return _call(node)
        case ListOf():
            return _list(node)
        case MapOf():
            return _map(node)
        case Fold():
            return compile_fold(node, _compile, size(node.body) + (size(node.condition) if node.condition else 0))
        case _:
            assert_never(node)


def _name(node: Name) -> Evaluate:
    name = node.name
    return _adapted(lambda frame: frame.names[name], node.type)


def _adapted(evaluate: Evaluate, kind: Type) -> Evaluate:
    """Turn JSON numbers into doubles where the schema says `number`."""
    return (lambda frame: _to_double(evaluate(frame))) if kind == DOUBLE else evaluate


def _to_double(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _select(node: Select) -> Evaluate:
    operand, name = _compile(node.operand), node.field
    null_is_missing = isinstance(node.operand.type, ObjectType)

    def evaluate(frame: Frame) -> Any:
        value = operand(frame)
        if not isinstance(value, dict):
            raise no_overload("select")
        found = value.get(name, _ABSENT)
        if found is _ABSENT or (found is None and null_is_missing):
            raise EvaluationError(f"no such key: {name}")
        return found

    return evaluate


def _has(node: Has) -> Evaluate:
    operand, name = _compile(node.operand), node.field
    null_is_missing = isinstance(node.operand.type, ObjectType)

    def evaluate(frame: Frame) -> bool:
        value = operand(frame)
        if isinstance(value, dict):
            return name in value and not (null_is_missing and value[name] is None)
        raise no_overload("has")

    return evaluate


def _call(node: Call) -> Evaluate:
    arguments = [_compile(argument) for argument in node.arguments]
    match node.function:
        case "_&&_":
            return lambda frame: _decided(arguments, frame, stop=False)
        case "_||_":
            return lambda frame: _decided(arguments, frame, stop=True)
        case "_?_:_":
            return _conditional(*arguments)
        case "_==_" | "_!=_" | "_+_" if (special := _set_operation(node, arguments)) is not None:
            return special
        case "_==_" if all(argument.type == STRING for argument in node.arguments):
            first, second = arguments
            return lambda frame: bool(first(frame) == second(frame))
    return _adapted(_paid(_applied(LIBRARY[node.function].run, arguments), node.type), node.type)


def _applied(run: Callable[..., Any], arguments: list[Evaluate]) -> Evaluate:
    """Call a function; a TypeError for a dyn value of the wrong type becomes a missing overload."""
    if len(arguments) == 2:
        first, second = arguments

        def apply_two(frame: Frame) -> Any:
            try:
                return run(first(frame), second(frame))
            except (TypeError, AttributeError, ValueError):
                raise EvaluationError("no such overload") from None

        return apply_two

    def apply(frame: Frame) -> Any:
        try:
            return run(*[argument(frame) for argument in arguments])
        except (TypeError, AttributeError, ValueError):
            raise EvaluationError("no such overload") from None

    return apply


def _paid(evaluate: Evaluate, kind: Type) -> Evaluate:
    """Charge steps for a long text or list."""
    if kind in _FREE:
        return evaluate

    def paid(frame: Frame) -> Any:
        value = evaluate(frame)
        if isinstance(value, _SIZED):
            frame.spend(len(value) // 10)
        return value

    return paid


_FREE: Final = (BOOL, INT, STRING, DOUBLE)
_SIZED: Final = (str, list)


def _decided(arguments: list[Evaluate], frame: Frame, *, stop: bool) -> bool:
    failure: EvaluationError | None = None
    for argument in arguments:
        try:
            value: Any = argument(frame)
        except BudgetError:
            raise
        except EvaluationError as problem:
            failure = failure or problem
            continue
        if not isinstance(value, bool):
            failure = failure or no_overload("_||_" if stop else "_&&_")
        elif value == stop:
            return stop
    if failure is not None:
        raise failure
    return not stop


def _conditional(condition: Evaluate, yes: Evaluate, no: Evaluate) -> Evaluate:
    def evaluate(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        raise no_overload("_?_:_")

    return evaluate


def _set_operation(node: Call, arguments: list[Evaluate]) -> Evaluate | None:
    """Compile == and + of lists that are sets or maps in the schema: order does not matter."""
    kinds = [argument.type for argument in node.arguments]
    unordered = next((kind for kind in kinds if isinstance(kind, SetListType)), None)
    if unordered is None:
        return None
    first, second = arguments
    match node.function:
        case "_==_":
            return lambda frame: unordered_equal(first(frame), second(frame))
        case "_!=_":
            return lambda frame: not unordered_equal(first(frame), second(frame))
        case _:
            return lambda frame: merged(first(frame), second(frame), unordered.keys)


def _list(node: ListOf) -> Evaluate:
    items = [_compile(item) for item in node.items]
    return lambda frame: [item(frame) for item in items]


def _map(node: MapOf) -> Evaluate:
    entries = [(_compile(key), _compile(value)) for key, value in node.entries]
    return lambda frame: {hashable(key(frame)): value(frame) for key, value in entries}
