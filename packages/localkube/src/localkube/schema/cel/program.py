"""A checked expression compiled to closures, run under a step budget.

    source -> parser -> checker -> Program.run(values)

Logic follows CEL: `&&`, `||`, `all` and `exists` give an answer if one operand decides it, even when another one
failed. JSON values are turned into CEL values where a name, field or item with a static type is read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from localkube.schema.cel import folds
from localkube.schema.cel.checker import Scope, check
from localkube.schema.cel.collections import merged, unordered_equal
from localkube.schema.cel.conversions import to_duration, to_timestamp
from localkube.schema.cel.errors import BudgetError, CompileError, EvaluationError
from localkube.schema.cel.frame import Evaluate, Frame
from localkube.schema.cel.library import LIBRARY
from localkube.schema.cel.nodes import (
    Call,
    Constant,
    Expr,
    Fold,
    Has,
    ListOf,
    MapOf,
    Name,
    OptionalIndex,
    OptionalMap,
    OptionalSelect,
    Select,
    names,
    size,
)
from localkube.schema.cel.parser import parse
from localkube.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    ObjectType,
    SetListType,
    Type,
)
from localkube.schema.cel.values import MISSING, Optional, TypeValue, hashable, no_overload

_ABSENT: Final = object()
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
        """The value of the expression, and how many steps are left. EvaluationError if it has none."""
        frame = Frame(dict(values), budget)
        frame.spend(self.cost)
        try:
            return self._evaluate(frame), frame.budget
        except RecursionError:
            raise EvaluationError("expression is nested too deeply") from None


def compile_program(source: str, scope: Scope) -> Program:
    """Parse, check and compile; CompileError says what is wrong and where."""
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
        case OptionalSelect():
            return _optional(_compile(node.operand), _constant(node.field))
        case OptionalIndex():
            return _optional(_compile(node.operand), _compile(node.index))
        case Call():
            return _call(node)
        case ListOf():
            return _list(node)
        case MapOf():
            return _map(node)
        case Fold():
            return folds.compile_fold(node, _compile, size(node.body) + (size(node.keep) if node.keep else 0))
        case OptionalMap():
            return _optional_map(node)
        case _:
            assert_never(node)


def _constant(value: Any) -> Evaluate:
    return lambda _frame: value


def _name(node: Name) -> Evaluate:
    name = node.name

    def evaluate(frame: Frame) -> Any:
        try:
            return frame.names[name]
        except KeyError:
            return TypeValue(name)

    return _adapted(evaluate, node.type)


def _adapted(evaluate: Evaluate, kind: Type) -> Evaluate:
    """JSON has no doubles, bytes, timestamps or durations of its own."""
    change = _ADAPTERS.get(kind)
    if change is None:
        return evaluate
    return lambda frame: change(evaluate(frame))


def _to_double(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _to_bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError("invalid base64 in bytes field") from None


def _unless_null(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


_ADAPTERS: Final[dict[Type, Callable[[Any], Any]]] = {
    DOUBLE: _to_double,
    BYTES: _to_bytes,
    TIMESTAMP: _unless_null(to_timestamp),
    DURATION: _unless_null(to_duration),
}


def _select(node: Select) -> Evaluate:
    operand, name = _compile(node.operand), node.field
    null_is_missing = isinstance(node.operand.type, ObjectType)

    def evaluate(frame: Frame) -> Any:
        value = operand(frame)
        if isinstance(value, Optional):
            return _looked_up(value, name)
        if not isinstance(value, dict):
            raise no_overload("select", value)
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
        if isinstance(value, Optional):
            return _looked_up(value, name).present
        if isinstance(value, dict):
            return name in value and not (null_is_missing and value[name] is None)
        raise no_overload("has", value)

    return evaluate


def _optional(operand: Evaluate, key: Evaluate) -> Evaluate:
    return lambda frame: _looked_up(operand(frame), key(frame))


def _looked_up(holder: Any, key: Any) -> Optional:
    value = holder.value if isinstance(holder, Optional) else holder
    if isinstance(value, dict):
        return Optional(value[key]) if value.get(key) is not None else MISSING
    if isinstance(value, list) and isinstance(key, int):
        return Optional(value[key]) if 0 <= key < len(value) else MISSING
    if isinstance(holder, Optional) and not holder.present:
        return MISSING
    raise no_overload("optional select", value)


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
    """A dyn value of the wrong kind ends in Python's own error; CEL calls that a missing overload."""
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
    """Making a long text or list costs steps."""
    if kind in _FREE:
        return evaluate

    def paid(frame: Frame) -> Any:
        value = evaluate(frame)
        if isinstance(value, _SIZED):
            frame.spend(len(value) // 10)
        return value

    return paid


_FREE: Final = (BOOL, INT, STRING, DOUBLE)
_SIZED: Final = (str, list, bytes)


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
            failure = failure or no_overload("_||_" if stop else "_&&_", value)
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
        raise no_overload("_?_:_", value)

    return evaluate


def _set_operation(node: Call, arguments: list[Evaluate]) -> Evaluate | None:
    """Lists that are sets or maps in the schema compare and add without regard to order."""
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
    items = [(index in node.optional, _compile(item)) for index, item in enumerate(node.items)]
    return lambda frame: list(_present((optional, item(frame)) for optional, item in items))


def _present(values: Iterable[tuple[bool, Any]]) -> Iterator[Any]:
    for optional, value in values:
        if not optional:
            yield value
        elif value.present:
            yield value.value


def _map(node: MapOf) -> Evaluate:
    entries = [
        (index in node.optional, _compile(key), _compile(value)) for index, (key, value) in enumerate(node.entries)
    ]

    def evaluate(frame: Frame) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for optional, key, value in entries:
            item = value(frame)
            if optional and not item.present:
                continue
            found[hashable(key(frame))] = item.value if optional else item
        return found

    return evaluate


def _optional_map(node: OptionalMap) -> Evaluate:
    operand, body = _compile(node.operand), _compile(node.body)

    def evaluate(frame: Frame) -> Any:
        value = operand(frame)
        if not value.present:
            return MISSING
        hidden = frame.hide((node.variable,))
        try:
            frame.names[node.variable] = value.value
            result = body(frame)
        finally:
            frame.show((node.variable,), hidden)
        return result if node.flat else Optional(result)

    return evaluate
