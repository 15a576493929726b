"""Static types of an expression.

A field that the schema does not have, an unknown function or a wrong operand is found when a CustomResourceDefinition
is created, not when the first object comes.

The checker writes the type of every node into the tree; the program reads them to turn JSON into CEL values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, assert_never

from localkube.schema.cel.conversions import to_duration, to_timestamp
from localkube.schema.cel.errors import CompileError, EvaluationError
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
)
from localkube.schema.cel.strings import pattern
from localkube.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    TYPE,
    UINT,
    ObjectType,
    SetListType,
    Type,
    fits,
    list_of,
    map_of,
    optional_of,
    substitute,
)
from localkube.schema.cel.values import Uint

Scope = Mapping[str, Type]

_LITERALS: Final[dict[str, Callable[[str], object]]] = {
    "matches": pattern,
    "duration": to_duration,
    "timestamp": to_timestamp,
}
TYPE_NAMES: Final = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})


def check(node: Expr, scope: Scope, source: str) -> Type:
    """Give every node its type; CompileError if the expression cannot be right."""
    return _Checker(source).visit(node, scope)


class _Checker:
    def __init__(self, source: str) -> None:
        self.source = source

    def visit(self, node: Expr, scope: Scope) -> Type:
        node.type = self.infer(node, scope)
        return node.type

    def infer(self, node: Expr, scope: Scope) -> Type:
        match node:
            case Constant():
                return _literal_type(node.value)
            case Name():
                return self.name(node, scope)
            case Select() | OptionalSelect() | Has():
                return self.select(node, scope)
            case OptionalIndex():
                return self.optional_index(node, scope)
            case Call():
                return self.call(node, scope)
            case ListOf():
                return list_of(self.common(node.items, scope))
            case MapOf():
                keys = self.common([key for key, _ in node.entries], scope)
                return map_of(keys, self.common([item for _, item in node.entries], scope))
            case Fold():
                return self.fold(node, scope)
            case OptionalMap():
                return self.optional_map(node, scope)
            case _:
                assert_never(node)

    def name(self, node: Name, scope: Scope) -> Type:
        if node.name in scope:
            return scope[node.name]
        if node.name in TYPE_NAMES:
            return TYPE
        raise self.error(node, f"undeclared reference to '{node.name}' (in container '')")

    def select(self, node: Select | OptionalSelect | Has, scope: Scope) -> Type:
        operand = self.visit(node.operand, scope)
        inner = operand.parameters[0] if operand.name == "optional_type" else operand
        found = self.field(node, inner)
        if isinstance(node, Has):
            return BOOL
        return optional_of(found) if isinstance(node, OptionalSelect) or inner is not operand else found

    def field(self, node: Select | OptionalSelect | Has, operand: Type) -> Type:
        if isinstance(operand, ObjectType):
            if node.field not in operand.fields:
                raise self.error(node, f"undefined field '{node.field}'")
            node.field, found = operand.fields[node.field]
            return found
        if operand.name == "map":
            return operand.parameters[1]
        if operand != DYN:
            raise self.error(node, f"type '{operand}' does not support field selection")
        return DYN

    def optional_index(self, node: OptionalIndex, scope: Scope) -> Type:
        operand = self.visit(node.operand, scope)
        self.visit(node.index, scope)
        inner = operand.parameters[0] if operand.name == "optional_type" else operand
        return optional_of(inner.parameters[-1] if inner.name in {"list", "map"} else DYN)

    def call(self, node: Call, scope: Scope) -> Type:
        self.resolve_namespace(node, scope)
        given = [self.argument(node, argument, scope) for argument in node.arguments]
        if node.function in {"_&&_", "_||_"}:
            for argument, kind in zip(node.arguments, given, strict=True):
                self.expect_bool(argument, kind)
            return BOOL
        if node.function == "_?_:_":
            if not fits(BOOL, given[0], {}):
                raise self.mismatch(node, node.function, given)
            return self.same(node, given[1], given[2])
        return self.overload(node, given)

    def argument(self, node: Call, argument: Expr, scope: Scope) -> Type:
        """The arguments of `format` are the one list whose items may be of different types."""
        if node.function == "format" and isinstance(argument, ListOf):
            for item in argument.items:
                self.visit(item, scope)
            argument.type = list_of(DYN)
            return argument.type
        return self.visit(argument, scope)

    def resolve_namespace(self, node: Call, scope: Scope) -> None:
        """`sets.contains(a, b)` is written like a method of a variable `sets`."""
        if not node.member or not isinstance(node.arguments[0], Name):
            return
        qualified = f"{node.arguments[0].name}.{node.function}"
        if node.arguments[0].name not in scope and qualified in LIBRARY:
            node.function, node.arguments, node.member = qualified, node.arguments[1:], False

    def overload(self, node: Call, given: list[Type]) -> Type:
        function = LIBRARY.get(node.function)
        if function is None:
            raise self.error(node, f"undeclared reference to '{node.function}' (in container '')")
        results: list[Type] = []
        for overload in function.overloads:
            if overload.member != node.member or len(overload.arguments) != len(given):
                continue
            bound: dict[Type, Type] = {}
            if all(fits(wanted, kind, bound) for wanted, kind in zip(overload.arguments, given, strict=True)):
                results.append(substitute(overload.result, bound))
        if not results:
            raise self.mismatch(node, node.function, given)
        self.check_literal(node)
        if node.function == "_+_" and isinstance(given[0], SetListType):
            return given[0]
        return results[0] if all(result == results[0] for result in results) else DYN

    def check_literal(self, node: Call) -> None:
        """A constant pattern, duration or timestamp must be a valid one."""
        convert = _LITERALS.get(node.function)
        constant = node.arguments[-1] if node.arguments else None
        if convert is None or not isinstance(constant, Constant) or not isinstance(constant.value, str):
            return
        try:
            convert(constant.value)
        except EvaluationError:
            raise self.error(constant, f"invalid {node.function} argument") from None

    def fold(self, node: Fold, scope: Scope) -> Type:
        holder = self.visit(node.range, scope)
        inner = dict(scope) | dict(zip(node.variables, self.item_types(node, holder), strict=True))
        body = self.visit(node.body, inner)
        if node.keep is not None:
            self.expect_bool(node.keep, self.visit(node.keep, inner))
        if node.kind in {"all", "exists", "existsOne", "filter"}:
            self.expect_bool(node.body, body)
        match node.kind:
            case "all" | "exists" | "existsOne":
                return BOOL
            case "map" | "transformList":
                return list_of(body)
            case "filter":
                return list_of(inner[node.variables[0]])
            case "transformMap":
                return map_of(inner[node.variables[0]], body)
            case "sortBy":
                return holder
            case "transformMapEntry":
                return body if body.name == "map" else map_of(DYN, DYN)
            case _:
                assert_never(node.kind)

    def item_types(self, node: Fold, holder: Type) -> tuple[Type, ...]:
        two = len(node.variables) == 2
        if holder.name == "list":
            return (INT, holder.parameters[0]) if two else (holder.parameters[0],)
        if holder.name == "map":
            return holder.parameters if two else (holder.parameters[0],)
        if holder != DYN:
            raise self.error(
                node.range,
                f"expression of type '{holder}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
        return (DYN, DYN) if two else (DYN,)

    def optional_map(self, node: OptionalMap, scope: Scope) -> Type:
        operand = self.visit(node.operand, scope)
        inner = operand.parameters[0] if operand.name == "optional_type" else DYN
        body = self.visit(node.body, {**scope, node.variable: inner})
        return body if node.flat else optional_of(body)

    def expect_bool(self, node: Expr, kind: Type) -> None:
        if not fits(BOOL, kind, {}):
            raise self.error(node, f"expected type 'bool' but found '{kind}'")

    def common(self, items: list[Expr], scope: Scope) -> Type:
        """The one type that all items of a literal have."""
        common = DYN
        for item in items:
            kind = self.visit(item, scope)
            if common != DYN and not fits(common, kind, {}):
                raise self.error(item, f"expected type '{common}' but found '{kind}'")
            common = kind if common == DYN else common
        return common

    def same(self, node: Call, yes: Type, no: Type) -> Type:
        if fits(yes, no, {}):
            return no if yes == DYN else yes
        if fits(no, yes, {}):
            return no
        raise self.mismatch(node, node.function, [BOOL, yes, no])

    def mismatch(self, node: Expr, function: str, given: list[Type]) -> CompileError:
        if isinstance(node, Call) and node.member and given:
            shown = f"{given[0]}.({', '.join(str(kind) for kind in given[1:])})"
        else:
            shown = f"({', '.join(str(kind) for kind in given)})"
        return self.error(node, f"found no matching overload for '{function}' applied to '{shown}'")

    def error(self, node: Expr, message: str) -> CompileError:
        return CompileError(message, self.source, node.at)


def _literal_type(value: object) -> Type:
    match value:
        case None:
            return NULL
        case bool():
            return BOOL
        case Uint():
            return UINT
        case int():
            return INT
        case float():
            return DOUBLE
        case str():
            return STRING
        case bytes():
            return BYTES
        case _:
            return DYN
