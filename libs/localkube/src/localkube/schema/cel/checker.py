"""Static types of an expression.

A field that the schema does not have, an unknown function or a wrong operand is reported when a
CustomResourceDefinition is created, not for the first object.

The checker writes the type of every node into the tree; the program uses them to convert JSON to CEL values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from localkube.schema.cel.functions import LIBRARY, pattern
from localkube.schema.cel.parser import Call, Constant, Expr, Fold, Has, ListOf, MapOf, Name, Select
from localkube.schema.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    CompileError,
    EvaluationError,
    ObjectType,
    SetListType,
    Type,
    fits,
    list_of,
    map_of,
    substitute,
)

Scope = Mapping[str, Type]


def check(node: Expr, scope: Scope, source: str) -> Type:
    """Infer the type of every node; CompileError if the types do not fit."""
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
            case Select() | Has():
                return self.select(node, scope)
            case Call():
                return self.call(node, scope)
            case ListOf():
                return list_of(self.common(node.items, scope))
            case MapOf():
                keys = self.common([key for key, _ in node.entries], scope)
                return map_of(keys, self.common([item for _, item in node.entries], scope))
            case Fold():
                return self.fold(node, scope)
            case _:
                assert_never(node)

    def name(self, node: Name, scope: Scope) -> Type:
        if node.name in scope:
            return scope[node.name]
        raise self.error(node, f"undeclared reference to '{node.name}' (in container '')")

    def select(self, node: Select | Has, scope: Scope) -> Type:
        found = self.field(node, self.visit(node.operand, scope))
        return BOOL if isinstance(node, Has) else found

    def field(self, node: Select | Has, operand: Type) -> Type:
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

    def call(self, node: Call, scope: Scope) -> Type:
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
        """Infer the type of an argument; only the list given to `format` may hold items of different types."""
        if node.function == "format" and isinstance(argument, ListOf):
            for item in argument.items:
                self.visit(item, scope)
            argument.type = list_of(DYN)
            return argument.type
        return self.visit(argument, scope)

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
        """Refuse a constant pattern that is invalid."""
        constant = node.arguments[-1] if node.arguments else None
        if node.function != "matches" or not isinstance(constant, Constant) or not isinstance(constant.value, str):
            return
        try:
            pattern(constant.value)
        except EvaluationError:
            raise self.error(constant, f"invalid {node.function} argument") from None

    def fold(self, node: Fold, scope: Scope) -> Type:
        holder = self.visit(node.range, scope)
        item = self.item_type(node, holder)
        inner = {**scope, node.variable: item}
        body = self.visit(node.body, inner)
        if node.condition is not None:
            self.expect_bool(node.condition, self.visit(node.condition, inner))
        if node.kind != "map":
            self.expect_bool(node.body, body)
        match node.kind:
            case "all" | "exists" | "existsOne":
                return BOOL
            case "map":
                return list_of(body)
            case "filter":
                return list_of(item)
            case _:
                assert_never(node.kind)

    def item_type(self, node: Fold, holder: Type) -> Type:
        if holder.name in {"list", "map"}:
            return holder.parameters[0]
        if holder != DYN:
            raise self.error(
                node.range,
                f"expression of type '{holder}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
        return DYN

    def expect_bool(self, node: Expr, kind: Type) -> None:
        if not fits(BOOL, kind, {}):
            raise self.error(node, f"expected type 'bool' but found '{kind}'")

    def common(self, items: list[Expr], scope: Scope) -> Type:
        """Infer the common type of all items of a literal."""
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
        case int():
            return INT
        case float():
            return DOUBLE
        case str():
            return STRING
        case _:
            return DYN
