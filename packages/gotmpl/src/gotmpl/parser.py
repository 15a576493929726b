"""Tokens -> tree, with Go's grammar and Go's words for every mistake."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import NoReturn

from gotmpl.errors import ParseError
from gotmpl.lexer import Kind, Lexer, Token
from gotmpl.nodes import (
    Action,
    Body,
    Bool,
    Branch,
    Break,
    Chain,
    Command,
    Continue,
    Dot,
    Field,
    Identifier,
    Include,
    Nil,
    Number,
    Operand,
    Pipe,
    ShownField,
    Statement,
    String,
    Text,
    Variable,
)
from gotmpl.numbers import parse_number
from gotmpl.quoting import quote, unquote

MAX_NESTING = 60
"""Deeper trees are refused: Python's stack is shallower than Go's."""


@dataclass(slots=True)
class Tree:
    """One parsed text: its own body, and the templates it defines by name."""

    name: str
    text: str
    body: Body
    defined: dict[str, Body] = field(default_factory=dict)


def parse(name: str, text: str, functions: Container[str], *, left: str = "{{", right: str = "}}") -> Tree:
    return _Parser(name, text, functions, left or "{{", right or "}}").tree()


class _Parser:
    def __init__(self, name: str, text: str, functions: Container[str], left: str, right: str) -> None:
        self._name = name
        self._text = text
        self._functions = functions
        self._tokens = Lexer(text, left, right).tokens()
        self._at = 0
        self._end = len(self._tokens) - 1
        self._last = self._tokens[0]
        self._vars = ["$"]
        self._range_depth = 0
        self._nesting = 0
        self._defined: dict[str, Body] = {}
        self._opened: Token | None = None
        """Where the action being read starts; None between actions."""

    def tree(self) -> Tree:
        body = Body(0)
        tokens = self._tokens
        while (token := self._peek()).kind != _EOF:
            if token.kind == _LEFT_DELIM and tokens[self._at + 1].kind == Kind.DEFINE:
                self._at += 2
                self._last = tokens[self._at - 1]
                self._define()
                continue
            node = self._text_or_action()
            if isinstance(node, _Stop):
                self._fail("unexpected " + node.shown)
            body.nodes.append(node)
        return Tree(self._name, self._text, body, self._defined)

    # Reading tokens.

    def _next(self) -> Token:
        token = self._tokens[self._at]
        if self._at < self._end:
            self._at += 1
        self._last = token
        return token

    def _peek(self) -> Token:
        token = self._last = self._tokens[self._at]
        return token

    def _back(self, token: Token) -> None:
        """Put one token back. At the very end the position did not move."""
        if token is not self._tokens[-1]:
            self._at -= 1

    def _expect(self, kind: int, context: str) -> Token:
        token = self._next()
        if token.kind != kind:
            self._unexpected(token, context)
        return token

    def _unexpected(self, token: Token, context: str) -> NoReturn:
        if token.kind == Kind.ERROR:
            extra = ""
            if self._opened and self._line(self._opened) != self._line(token):
                extra = " started" if token.text.endswith(" action") else " in action started"
                extra += f" at {self._name}:{self._line(self._opened)}"
            self._fail(f"{token}{extra}", token)
        self._fail(f"unexpected {token} in {context}", token)

    def _line(self, token: Token) -> int:
        return 1 + self._text.count("\n", 0, token.pos)

    def _fail(self, message: str, token: Token | None = None) -> NoReturn:
        line = self._line(token or self._last)
        raise ParseError(f"template: {self._name}:{line}: {message}", line=line)

    # Statements.

    def _define(self) -> None:
        context = "define clause"
        token = self._next()
        if token.kind not in {Kind.STRING, Kind.RAW_STRING}:
            self._unexpected(token, context)
        name = self._string(token)
        self._expect(Kind.RIGHT_DELIM, context)
        outer = self._vars, self._range_depth
        self._vars, self._range_depth = ["$"], 0
        body, stop = self._body()
        self._vars, self._range_depth = outer
        if stop.word != "end":
            self._fail(f"unexpected {stop.shown} in {context}")
        self._add(name, body)

    def _add(self, name: str, body: Body) -> None:
        """A second definition replaces only an empty one; an empty one never replaces anything."""
        existing = self._defined.get(name)
        if existing is None or existing.is_empty:
            self._defined[name] = body
        elif not body.is_empty:
            self._fail(f"template: multiple definition of template {quote(name)}")

    def _body(self) -> tuple[Body, _Stop]:
        """Statements up to {{end}} or {{else}}."""
        body = Body(self._peek().pos)
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._fail(f"nested deeper than {MAX_NESTING} levels")
        while True:
            if self._peek().kind == _EOF:
                self._fail("unexpected EOF")
            node = self._text_or_action()
            if isinstance(node, _Stop):
                self._nesting -= 1
                return body, node
            body.nodes.append(node)

    def _text_or_action(self) -> Statement | _Stop:
        token = self._next()
        kind = token.kind
        if kind == _TEXT:
            return Text(token.pos, token.text)
        if kind == _SHOWN_FIELD:
            return ShownField(token.pos, token.text[1:])
        if kind != _LEFT_DELIM:
            self._unexpected(token, "input")
        self._opened = token
        action = self._action()
        self._opened = None
        return action

    def _action(self) -> Statement | _Stop:
        token = self._peek()
        if token.kind < Kind.BLOCK:
            return Action(token.pos, self._pipeline("command", _RIGHT_DELIM))
        self._next()
        match token.kind:
            case Kind.END:
                self._expect(_RIGHT_DELIM, "end")
                return _END
            case Kind.IF | Kind.RANGE | Kind.WITH:
                return self._control(token)
            case Kind.BLOCK:
                return self._block()
            case Kind.TEMPLATE:
                return self._include()
            case Kind.BREAK | Kind.CONTINUE:
                return self._jump(token)
            case Kind.ELSE:
                return self._else()
            case _:
                self._back(token)
                first = self._peek()
                return Action(first.pos, self._pipeline("command", Kind.RIGHT_DELIM))

    def _else(self) -> _Stop:
        following = self._peek()
        if following.kind in {Kind.IF, Kind.WITH}:
            return _ELSE
        self._expect(Kind.RIGHT_DELIM, "else")
        return _ELSE

    def _control(self, token: Token) -> Branch:
        word = token.text
        depth = len(self._vars)
        pipe = self._pipeline(word, Kind.RIGHT_DELIM)
        self._range_depth += word == "range"
        body, stop = self._body()
        self._range_depth -= word == "range"
        otherwise: Body | None = None
        if stop.word == "else":
            otherwise = self._otherwise(word)
        del self._vars[depth:]
        return Branch(pipe.pos, word, pipe, body, otherwise)

    def _otherwise(self, word: str) -> Body:
        """The {{else}} part; `else if` and `else with` continue a chain of their own kind without another {{end}}."""
        following = self._peek()
        if word in {"if", "with"} and following.kind == (Kind.IF if word == "if" else Kind.WITH):
            token = self._next()
            body = Body(token.pos)
            body.nodes.append(self._control(token))
            return body
        body, stop = self._body()
        if stop.word != "end":
            self._fail(f"expected end; found {stop.shown}")
        return body

    def _block(self) -> Include:
        context = "block clause"
        token = self._next()
        if token.kind not in {Kind.STRING, Kind.RAW_STRING}:
            self._unexpected(token, context)
        name = self._string(token)
        pipe = self._pipeline(context, Kind.RIGHT_DELIM)
        outer = self._vars, self._range_depth
        self._vars, self._range_depth = ["$"], 0
        body, stop = self._body()
        self._vars, self._range_depth = outer
        if stop.word != "end":
            self._fail(f"unexpected {stop.shown} in {context}")
        self._add(name, body)
        return Include(token.pos, name, pipe)

    def _include(self) -> Include:
        context = "template clause"
        token = self._next()
        if token.kind not in {Kind.STRING, Kind.RAW_STRING}:
            self._unexpected(token, context)
        name = self._string(token)
        pipe: Pipe | None = None
        following = self._next()
        if following.kind != Kind.RIGHT_DELIM:
            self._back(following)
            pipe = self._pipeline(context, Kind.RIGHT_DELIM)
        return Include(token.pos, name, pipe)

    def _jump(self, token: Token) -> Break | Continue:
        shown = "{{" + token.text + "}}"
        following = self._next()
        if following.kind != Kind.RIGHT_DELIM:
            self._unexpected(following, shown)
        if not self._range_depth:
            self._fail(f"{shown} outside {{{{range}}}}")
        return Break(token.pos) if token.kind == Kind.BREAK else Continue(token.pos)

    # Pipelines.

    def _pipeline(self, context: str, end: int) -> Pipe:
        first = self._peek()
        pipe = Pipe(first.pos)
        if first.kind == Kind.VARIABLE:
            self._declarations(pipe, context)
        tokens = self._tokens
        while True:
            token = self._last = tokens[self._at]
            if token.kind == end:
                self._at += 1
                if len(pipe.commands) != 1:
                    self._check(pipe, context)
                return pipe
            if _TERMS[token.kind] is None:
                self._next()
                self._unexpected(token, context)
            pipe.commands.append(self._command())

    def _declarations(self, pipe: Pipe, context: str) -> None:
        while True:
            token = self._peek()
            if token.kind != Kind.VARIABLE:
                return
            mark = self._at
            self._next()
            following = self._peek()
            if following.kind in {Kind.ASSIGN, Kind.DECLARE}:
                pipe.assigns = following.kind == Kind.ASSIGN
                self._next()
                pipe.declared.append(Variable(token.pos, (token.text,)))
                self._vars.append(token.text)
                return
            if not (following.kind == Kind.CHAR and following.text == ","):
                self._at = mark
                return
            self._next()
            pipe.declared.append(Variable(token.pos, (token.text,)))
            self._vars.append(token.text)
            if not (context == "range" and len(pipe.declared) < 2):
                self._fail(f"too many declarations in {context}")
            if self._peek().kind not in {Kind.VARIABLE, Kind.RIGHT_DELIM, Kind.RIGHT_PAREN}:
                self._fail("range can only initialize variables")

    def _check(self, pipe: Pipe, context: str) -> None:
        if not pipe.commands:
            self._fail(f"missing value for {context}")
        for stage, command in enumerate(pipe.commands[1:], 2):
            if isinstance(command.args[0], _LITERALS):
                self._fail(f"non executable command in pipeline stage {stage}")

    def _command(self) -> Command:
        tokens = self._tokens
        command = Command(tokens[self._at].pos)
        args = command.args
        while True:
            token = self._last = tokens[self._at]
            read = _TERMS[token.kind]
            if read is not None:
                self._at += 1
                operand = read(self, token)
                following = tokens[self._at]
                if following.kind == _FIELD and not following.spaced:
                    operand = self._fields(operand)
                    following = tokens[self._at]
                args.append(operand)
                if following.spaced:
                    continue
                token = self._last = following
            if token.kind not in _ENDS:
                self._next()
                if token.kind != _PIPE:
                    self._unexpected(token, "operand")
            break
        if not args:
            self._fail("empty command")
        return command

    def _fields(self, node: Operand) -> Operand:
        """A term with the fields that follow it without a space."""
        first = self._peek()
        names: list[str] = []
        while (following := self._peek()).kind == _FIELD and not following.spaced:
            names.append(self._next().text[1:])
        if isinstance(node, _LITERALS):
            self._fail(f"unexpected . after term {quote(str(node))}")
        if isinstance(node, (Field, Variable)):
            return type(node)(first.pos, (*node.names, *names))
        return Chain(first.pos, node, tuple(names))

    def identifier(self, token: Token) -> Identifier:
        if token.text not in self._functions:
            self._fail(f"function {quote(token.text)} not defined")
        return Identifier(token.pos, token.text)

    def variable(self, token: Token) -> Variable:
        if token.text not in self._vars:
            self._fail(f"undefined variable {quote(token.text)}")
        return Variable(token.pos, (token.text,))

    def number(self, token: Token) -> Number:
        number = parse_number(
            token.pos,
            token.text,
            is_char=token.kind == Kind.CHAR_CONSTANT,
            is_complex=token.kind == Kind.COMPLEX,
        )
        if isinstance(number, str):
            self._fail(number)
        return number

    def parenthesis(self, _token: Token) -> Pipe:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._fail(f"nested deeper than {MAX_NESTING} levels")
        pipe = self._pipeline("parenthesized pipeline", Kind.RIGHT_PAREN)
        self._nesting -= 1
        return pipe

    def string(self, token: Token) -> String:
        return String(token.pos, token.text, self._string(token))

    def _string(self, token: Token) -> str:
        value = unquote(token.text)
        if value is None:
            self._fail("invalid syntax")
        return value


@dataclass(frozen=True, slots=True)
class _Stop:
    """{{end}} or {{else}}: where a body ends."""

    word: str
    shown: str


_END, _ELSE = _Stop("end", "{{end}}"), _Stop("else", "{{else}}")

_TEXT, _SHOWN_FIELD, _EOF = Kind.TEXT, Kind.SHOWN_FIELD, Kind.EOF
_LEFT_DELIM, _RIGHT_DELIM, _FIELD, _PIPE = Kind.LEFT_DELIM, Kind.RIGHT_DELIM, Kind.FIELD, Kind.PIPE
_ENDS = (Kind.RIGHT_DELIM, Kind.RIGHT_PAREN)
_LITERALS = (Bool, String, Number, Nil, Dot)
_READERS: dict[int, Callable[[_Parser, Token], Operand]] = {
    Kind.IDENTIFIER: _Parser.identifier,
    Kind.DOT: lambda _, token: Dot(token.pos),
    Kind.NIL: lambda _, token: Nil(token.pos),
    Kind.VARIABLE: _Parser.variable,
    Kind.FIELD: lambda _, token: Field(token.pos, (token.text[1:],)),
    Kind.BOOL: lambda _, token: Bool(token.pos, token.text == "true"),
    Kind.CHAR_CONSTANT: _Parser.number,
    Kind.COMPLEX: _Parser.number,
    Kind.NUMBER: _Parser.number,
    Kind.LEFT_PAREN: _Parser.parenthesis,
    Kind.STRING: _Parser.string,
    Kind.RAW_STRING: _Parser.string,
}
_TERMS = [_READERS.get(kind) for kind in range(Kind.SHOWN_FIELD + 1)]
"""What reads a term, by the kind of its first token."""
