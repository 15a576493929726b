"""Lexer, syntax tree and parser, by recursive descent. Macros (has, all, exists, map, ...) are expanded here.

expression  = or [ "?" or ":" expression ]
or, and, relation, addition, multiplication = binary operators, loosest first
unary       = { "!" } member | { "-" } member
member      = primary { "." name [ arguments ] | "[" expression "]" }
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from localkube.schema.cel.types import DYN, RESERVED, CompileError, Type

# --- The lexer: CEL source to tokens ----------------------------------------------------------------------------------

TokenKind = Literal["literal", "name", "mark", "end"]

SOURCE_LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    value: Any
    at: int


def tokens(source: str) -> list[Token]:
    """Return all tokens; the last one has the kind `end`."""
    if len(source) > SOURCE_LIMIT:
        raise CompileError(f"expression is longer than {SOURCE_LIMIT} characters", source, 0)
    found: list[Token] = []
    at = 0
    while at < len(source):
        matched = _TOKEN.match(source, at)
        if matched is None:
            raise CompileError(f"Syntax error: token recognition error at: '{source[at]}'", source, at)
        token = _token(matched, source)
        if token is not None:
            found.append(token)
        at = matched.end()
    found.append(Token("end", "<EOF>", len(source)))
    return found


def _token(matched: re.Match[str], source: str) -> Token | None:
    at, text = matched.start(), matched[0]
    match matched.lastgroup:
        case "blank":
            return None
        case "number":
            return Token("literal", _number(text, source, at), at)
        case "string":
            return Token("literal", _string(text, source, at), at)
        case "name":
            if text in _CONSTANTS:
                return Token("literal", _CONSTANTS[text], at)
            return Token("mark" if text == "in" else "name", text, at)
        case _:
            return Token("mark", text, at)


def _number(text: str, source: str, at: int) -> int | float:
    try:
        if text[:2].lower() == "0x":
            value = int(text, 16)
        elif set(text) & set(".eE"):
            return float(text)
        else:
            value = int(text, 10)
    except (ValueError, OverflowError):
        raise CompileError(f"invalid number literal {text}", source, at) from None
    if value > 2**63:  # 2**63 itself may still be negated
        raise CompileError("invalid int literal", source, at)
    return value


def _string(text: str, source: str, at: int) -> str:
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    width = 3 if body[:3] in ('"""', "'''") else 1
    body = body[width:-width]
    if raw:
        return body
    try:
        return _ESCAPE.sub(_unescape, body)
    except (KeyError, ValueError, OverflowError):
        raise CompileError("unable to unescape string", source, at) from None


def _unescape(matched: re.Match[str]) -> str:
    text = matched[1]
    if text in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[text]
    if text[0] in "xXuU":
        return chr(int(text[1:], 16))
    if text[0] in "0123":
        return chr(int(text, 8))
    raise ValueError(text)


_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_SIMPLE_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "?": "?",
    '"': '"',
    "'": "'",
    "`": "`",
}
_ESCAPE: Final = re.compile(
    r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.|$)", re.DOTALL
)
_TOKEN: Final = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f]+|//[^\n]*)
  | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.[0-9]+|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+)
  | (?P<string>
        [rR](?:\"{3}(?:.|\n)*?\"{3}|'{3}(?:.|\n)*?'{3}|\"[^\"\r\n]*\"|'[^'\r\n]*')
      | (?:\"{3}(?:[^\\]|\\(?:.|\n))*?\"{3}|'{3}(?:[^\\]|\\(?:.|\n))*?'{3}
               |\"(?:[^\"\\\r\n]|\\.)*\"|'(?:[^'\\\r\n]|\\.)*'))
  | (?P<name>[a-zA-Z_][a-zA-Z0-9_]*)
  | (?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)


# --- The syntax tree of a CEL expression. Only the checker changes a node: it fills `type` ----------------------------

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
