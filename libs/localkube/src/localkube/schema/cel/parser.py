"""The parser: tokens to a syntax tree, by recursive descent. Macros (has, all, exists, map, ...) are expanded here.

expression  = or [ "?" or ":" expression ]
or, and, relation, addition, multiplication = binary operators, loosest first
unary       = { "!" } member | { "-" } member
member      = primary { "." name [ arguments ] | "[" expression "]" }
"""

from __future__ import annotations

from typing import Final, cast

from localkube.schema.cel.errors import CompileError
from localkube.schema.cel.lexer import Token, tokens
from localkube.schema.cel.nodes import (
    Call,
    Constant,
    Expr,
    Fold,
    FoldKind,
    Has,
    ListOf,
    MapOf,
    Name,
    Select,
)
from localkube.schema.cel.types import RESERVED

DEPTH_LIMIT: Final = 40
CHAIN_LIMIT: Final = 100
_LOGICAL: Final = 2
"""The first levels of _BINARY are || and &&."""
_BINARY: Final = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_FOLDS: Final[dict[tuple[str, int], FoldKind]] = {
    ("all", 2): "all",
    ("exists", 2): "exists",
    ("exists_one", 2): "existsOne",
    ("existsOne", 2): "existsOne",
    ("map", 2): "map",
    ("map", 3): "map",
    ("filter", 2): "filter",
}
_OPERAND_EXPECTED: Final = (
    " expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)


def parse(source: str) -> Expr:
    """Parse an expression; CompileError if it is not CEL."""
    return _Parser(source).whole()


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokens(source)
        self.position = 0
        self.depth = 0

    def whole(self) -> Expr:
        found = self.expression()
        if self.peek.kind != "end":
            raise self.unexpected()
        return found

    @property
    def peek(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.peek
        self.position += 1
        return token

    def at_mark(self, *marks: str) -> bool:
        return self.peek.kind == "mark" and self.peek.value in marks

    def skip(self, mark: str) -> bool:
        if self.at_mark(mark):
            self.position += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.skip(mark):
            raise CompileError(f"Syntax error: missing '{mark}' at '{self.peek.value}'", self.source, self.peek.at)

    def unexpected(self, hint: str = "") -> CompileError:
        token = self.peek
        shown = token.value if token.kind in {"mark", "name", "end"} else self.source[token.at : token.at + 20]
        return CompileError(f"Syntax error: mismatched input '{shown}'{hint}", self.source, token.at)

    def expression(self) -> Expr:
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            raise CompileError("expression recursion limit exceeded", self.source, self.peek.at)
        condition = self.binary(0)
        if self.at_mark("?"):
            at = self.take().at
            yes = self.binary(0)
            self.expect(":")
            condition = Call("_?_:_", [condition, yes, self.expression()], at=at)
        self.depth -= 1
        return condition

    def binary(self, level: int) -> Expr:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        length = 0
        while self.at_mark(*_BINARY[level]):
            token = self.take()
            name = "@in" if token.value == "in" else f"_{token.value}_"
            right = self.binary(level + 1)
            if level < _LOGICAL and isinstance(left, Call) and left.function == name and length:
                left.arguments.append(right)  # one flat node for a && b && c keeps long chains shallow
            else:
                left = Call(name, [left, right], at=token.at)
            length += 1
            if level >= _LOGICAL and length > CHAIN_LIMIT:
                raise CompileError("expression recursion limit exceeded", self.source, token.at)
        return left

    def unary(self) -> Expr:
        marks: list[Token] = []
        while self.at_mark("!", "-") and (not marks or marks[0].value == self.peek.value):
            marks.append(self.take())
        if marks and marks[-1].value == "-" and self.peek.kind == "literal" and _is_number(self.peek.value):
            token = self.take()
            found = self.members(Constant(-token.value, at=marks.pop().at))
        else:
            found = self.members(self.primary())
        if isinstance(found, Constant) and found.value == 2**63:
            raise CompileError("invalid int literal", self.source, found.at)
        for mark in reversed(marks):
            found = Call("!_" if mark.value == "!" else "-_", [found], at=mark.at)
        return found

    def members(self, found: Expr) -> Expr:
        while True:
            if self.at_mark("."):
                found = self.after_dot(found, self.take().at)
            elif self.at_mark("["):
                at = self.take().at
                index = self.expression()
                self.expect("]")
                found = Call("_[_]", [found, index], at=at)
            else:
                return found

    def after_dot(self, operand: Expr, at: int) -> Expr:
        name = self.name()
        if not self.at_mark("("):
            return Select(operand, name, at=at)
        call_at = self.take().at
        arguments = self.arguments()
        return self.macro(operand, name, arguments, call_at) or Call(
            name, [operand, *arguments], member=True, at=call_at
        )

    def macro(self, operand: Expr, name: str, arguments: list[Expr], at: int) -> Expr | None:
        kind = _FOLDS.get((name, len(arguments)))
        if kind is None:
            return None
        condition = arguments[1] if len(arguments) == 3 else None
        return Fold(kind, operand, self.variable(arguments[0]), arguments[-1], condition, at=at)

    def variable(self, argument: Expr) -> str:
        if not isinstance(argument, Name):
            raise CompileError("argument is not an identifier", self.source, argument.at)
        return argument.name

    def arguments(self) -> list[Expr]:
        found: list[Expr] = []
        while not self.at_mark(")"):
            found.append(self.expression())
            if not self.skip(","):
                break
        self.expect(")")
        return found

    def name(self, hint: str = "") -> str:
        if self.peek.kind != "name" and not self.at_mark("in"):
            raise self.unexpected(hint)
        token = self.take()
        return cast("str", token.value)

    def primary(self) -> Expr:
        token = self.peek
        if token.kind == "literal":
            return Constant(self.take().value, at=token.at)
        if self.skip("("):
            found = self.expression()
            self.expect(")")
            return found
        if self.skip("["):
            return self.list(token.at)
        if self.skip("{"):
            return self.map(token.at)
        self.skip(".")
        name_token = self.peek
        name = self.name(hint=_OPERAND_EXPECTED)
        if name in RESERVED:
            raise CompileError(f"reserved identifier: {name}", self.source, name_token.at)
        if not self.at_mark("("):
            return Name(name, at=name_token.at)
        return self.call(name, self.take().at)

    def call(self, name: str, at: int) -> Expr:
        arguments = self.arguments()
        if name != "has":
            return Call(name, arguments, at=at)
        if len(arguments) == 1 and isinstance(arguments[0], Select):
            return Has(arguments[0].operand, arguments[0].field, at=at)
        place = arguments[0].at if arguments else at
        raise CompileError("invalid argument to has() macro", self.source, place)

    def list(self, at: int) -> Expr:
        items: list[Expr] = []
        while not self.at_mark("]"):
            items.append(self.expression())
            if not self.skip(","):
                break
        self.expect("]")
        return ListOf(items, at=at)

    def map(self, at: int) -> Expr:
        entries: list[tuple[Expr, Expr]] = []
        while not self.at_mark("}"):
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self.skip(","):
                break
        self.expect("}")
        return MapOf(entries, at=at)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
