"""Tokens -> nodes that execute themselves, with Go's grammar and Go's words for every mistake.

Names of functions and slots of variables are resolved on the way. The name of the template is not needed here: a text
is parsed once for all keys that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from gotmpl.calls import Call, Identifier, call
from gotmpl.errors import ParseError
from gotmpl.lexer import Kind, Token, shown, tokens
from gotmpl.numbers import parse_number
from gotmpl.operands import LITERALS, Bool, Chain, Dot, Field, Group, Nil, Number, Operand, String, Variable
from gotmpl.pipelines import Application, Command, Declaration, Pipe
from gotmpl.quoting import quote, unquote
from gotmpl.scope import Scope
from gotmpl.signatures import Func
from gotmpl.statements import (
    Action,
    Body,
    Break,
    Continue,
    If,
    Include,
    Loop,
    Range,
    ShownField,
    Statement,
    Template,
    Text,
    With,
    is_empty,
)

MAX_NESTING = 60
"""Deeper trees are refused: Python's stack is shallower than Go's."""


class Unparsable(Exception):  # noqa: N818 becomes a ParseError when the name is known
    """The text is not a template."""

    def __init__(self, message: str, line: int, *, opened: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.opened = opened
        """The line where the action in question started, if that is another one."""

    def in_template(self, name: str) -> ParseError:
        started = "" if self.opened is None else f" at {name}:{self.opened}"
        return ParseError(f"template: {name}:{self.line}: {self.message}{started}", line=self.line)


def parse(text: str, functions: Mapping[str, Func], *, left: str = "{{", right: str = "}}") -> Template:
    try:
        return _Parser(text, functions, left or "{{", right or "}}").template()
    except RecursionError:
        raise Unparsable("nested too deeply", 1) from None


class _Parser:
    def __init__(self, text: str, functions: Mapping[str, Func], left: str, right: str) -> None:
        self._text = text
        self._functions = functions
        self._tokens = tokens(text, left, right)
        self._at = 0
        self._end = len(self._tokens) - 1
        self._last = self._tokens[0]
        self._scope = Scope()
        self._range_depth = 0
        self._nesting = 0
        self._defined: dict[str, Template] = {}
        self._opened: Token | None = None
        """Where the action being read starts; None between actions."""

    def template(self) -> Template:
        body: Body = []
        tokens = self._tokens
        while (kind := self._peek()[0]) != _EOF:
            if kind == _LEFT_DELIM and tokens[self._at + 1][0] == Kind.DEFINE:
                self._at += 2
                self._last = tokens[self._at - 1]
                self._define()
                continue
            node = self._text_or_action()
            if isinstance(node, _Stop):
                self._fail("unexpected " + node.shown)
            body.append(node)
        return Template(body, self._scope.size)

    # Reading tokens.

    def _next(self) -> Token:
        token = self._last = self._tokens[self._at]
        if self._at < self._end:
            self._at += 1
        return token

    def _peek(self) -> Token:
        token = self._last = self._tokens[self._at]
        return token

    def _expect(self, kind: int, context: str) -> None:
        token = self._next()
        if token[0] != kind:
            self._unexpected(token, context)

    def _unexpected(self, token: Token, context: str) -> NoReturn:
        kind, _, text, _ = token
        if kind != Kind.ERROR:
            self._fail(f"unexpected {shown(token)} in {context}", token)
        line = self._line(token)
        opened = self._line(self._opened) if self._opened else line
        if opened == line:
            raise Unparsable(text, line)
        started = " started" if text.endswith(" action") else " in action started"
        raise Unparsable(text + started, line, opened=opened)

    def _line(self, token: Token) -> int:
        return 1 + self._text.count("\n", 0, token[1])

    def _fail(self, message: str, token: Token | None = None) -> NoReturn:
        raise Unparsable(message, self._line(token or self._last))

    # Statements.

    def _define(self) -> None:
        context = "define clause"
        _, name = self._quoted_name(context)
        self._expect(Kind.RIGHT_DELIM, context)
        self._definition(name, context)

    def _definition(self, name: str, context: str) -> None:
        """The body of a template of its own. A second one replaces only an empty one; an empty one replaces nothing."""
        outer = self._scope, self._range_depth
        self._scope, self._range_depth = Scope(), 0
        body, stop = self._body()
        size = self._scope.size
        self._scope, self._range_depth = outer
        if stop is not _END:
            self._fail(f"unexpected {stop.shown} in {context}")
        existing = self._defined.get(name)
        if existing is None or is_empty(existing.body):
            self._defined[name] = Template(body, size)
        elif not is_empty(body):
            self._fail(f"template: multiple definition of template {quote(name)}")

    def _body(self) -> tuple[Body, _Stop]:
        """Statements up to {{end}} or {{else}}."""
        body: Body = []
        self._peek()
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._fail(f"nested deeper than {MAX_NESTING} levels")
        while True:
            if self._peek()[0] == _EOF:
                self._fail("unexpected EOF")
            node = self._text_or_action()
            if isinstance(node, _Stop):
                self._nesting -= 1
                return body, node
            body.append(node)

    def _text_or_action(self) -> Statement | _Stop:
        token = self._next()
        kind, pos, text, _ = token
        if kind == _TEXT:
            return Text(text)
        if kind == _SHOWN_FIELD:
            return ShownField(pos, text[1:], self._scope.dot_loop)
        if kind != _LEFT_DELIM:
            self._unexpected(token, "input")
        self._opened = token
        action = self._action()
        self._opened = None
        return action

    def _action(self) -> Statement | _Stop:
        token = self._peek()
        read = _STATEMENTS.get(token[0])
        if read is not None:
            self._next()
            return read(self, token)
        pipe = self._pipeline("command", _RIGHT_DELIM)
        return pipe if isinstance(pipe, Declaration) else Action(token[1], pipe)

    def end(self, _token: Token) -> _Stop:
        self._expect(_RIGHT_DELIM, "end")
        return _END

    def else_(self, _token: Token) -> _Stop:
        if self._peek()[0] not in {Kind.IF, Kind.WITH}:
            self._expect(Kind.RIGHT_DELIM, "else")
        return _ELSE

    def if_or_with(self, token: Token) -> If:
        kind, _, word, _ = token
        scope = self._scope
        outer, loop = scope.mark(), scope.dot_loop
        pipe = self._pipeline(word, Kind.RIGHT_DELIM)
        inner = scope.mark()
        if kind == Kind.WITH:
            scope.dot_loop = None
        body, stop = self._body()
        scope.unbind(inner)
        scope.dot_loop = loop
        otherwise = self._otherwise(kind) if stop is _ELSE else []
        scope.forget(outer)
        return (With if kind == Kind.WITH else If)(pipe, body, otherwise)

    def range_(self, token: Token) -> Range:
        scope = self._scope
        outer, outer_loop, flag = scope.mark(), scope.dot_loop, scope.slot()
        pos = self._peek()[1]
        names, operator = self._declarations("range")
        written = ", ".join(names) + operator if names else ""
        pipe = self._commands(pos, "range", Kind.RIGHT_DELIM, written=written)
        loop = Loop(flag, names, [self._bound(name, operator, flag) for name in names])
        inner = scope.mark()
        scope.dot_loop = flag
        self._range_depth += 1
        body, stop = self._body()
        self._range_depth -= 1
        scope.unbind(inner)
        scope.dot_loop = outer_loop
        otherwise = self._otherwise(token[0]) if stop is _ELSE else []
        scope.forget(outer)
        return Range(pipe, loop, body, otherwise)

    def _otherwise(self, kind: int) -> Body:
        """The {{else}} part; `else if` and `else with` continue a chain of their own kind without another {{end}}."""
        if kind != Kind.RANGE and self._peek()[0] == kind:
            return [self.if_or_with(self._next())]
        body, stop = self._body()
        if stop is not _END:
            self._fail(f"expected end; found {stop.shown}")
        return body

    def block(self, _token: Token) -> Include:
        context = "block clause"
        pos, name = self._quoted_name(context)
        pipe = self._pipeline(context, Kind.RIGHT_DELIM)
        self._definition(name, context)
        return Include(pos, name, pipe, self._defined)

    def include(self, _token: Token) -> Include:
        context = "template clause"
        pos, name = self._quoted_name(context)
        pipe: Operand | None = None
        if self._peek()[0] == Kind.RIGHT_DELIM:
            self._next()
        else:
            pipe = self._pipeline(context, Kind.RIGHT_DELIM)
        return Include(pos, name, pipe, self._defined)

    def _quoted_name(self, context: str) -> tuple[int, str]:
        token = self._next()
        if token[0] not in {Kind.STRING, Kind.RAW_STRING}:
            self._unexpected(token, context)
        return token[1], self._unquoted(token[2])

    def jump(self, token: Token) -> Break | Continue:
        words = "{{" + token[2] + "}}"
        self._expect(Kind.RIGHT_DELIM, words)
        if not self._range_depth:
            self._fail(f"{words} outside {{{{range}}}}")
        return Break() if token[0] == Kind.BREAK else Continue()

    # Pipelines.

    def _pipeline(self, context: str, end: int) -> Operand:
        kind, pos, _, _ = self._peek()
        if kind != Kind.VARIABLE:
            return self._commands(pos, context, end)
        names, operator = self._declarations(context)
        if not names:
            return self._commands(pos, context, end)
        pipe = self._commands(pos, context, end, written=names[0] + operator)
        pipe = pipe if isinstance(pipe, Pipe) else Pipe(pos, pipe, [], names[0] + operator)
        return Declaration(pipe, names[0], self._bound(names[0], operator))

    def _bound(self, name: str, operator: str, loop: int | None = None) -> int | None:
        """The slot of a variable that is declared or assigned to; None if there is none."""
        binding = self._scope.find(name) if operator == _ASSIGNS else self._scope.declare(name, loop)
        return binding.slot if binding is not None else None

    def _commands(self, pos: int, context: str, end: int, *, written: str = "") -> Operand:
        """One command stands for itself; one in parentheses, or several, make a pipe."""
        tokens = self._tokens
        first: Operand | None = None
        later: list[Command] = []
        while True:
            token = self._last = tokens[self._at]
            kind = token[0]
            if kind == end:
                self._at += 1
                break
            if _TERMS[kind] is None:
                self._next()
                self._unexpected(token, context)
            if first is None:
                first = self._first_command()
            else:
                later.append(self._later_command())
        if first is None:
            self._fail(f"missing value for {context}")
        if not later and not _is_group(first):
            return first
        for stage, command in enumerate(later, 2):
            if isinstance(command, Application) and isinstance(command.word, LITERALS):
                self._fail(f"non executable command in pipeline stage {stage}")
        return Pipe(pos, first, later, written)

    def _declarations(self, context: str) -> tuple[list[str], str]:
        """The names before := or =, and that operator."""
        names: list[str] = []
        while True:
            kind, _, name, _ = self._peek()
            if kind != Kind.VARIABLE:
                return names, _DECLARES
            mark = self._at
            self._next()
            kind, _, text, _ = self._peek()
            if kind in {Kind.ASSIGN, Kind.DECLARE}:
                self._next()
                self._scope.mention(name)
                return [*names, name], _ASSIGNS if kind == Kind.ASSIGN else _DECLARES
            if not (kind == Kind.CHAR and text == ","):
                self._at = mark
                return names, _DECLARES
            self._next()
            names.append(name)
            self._scope.mention(name)
            if not (context == "range" and len(names) < 2):
                self._fail(f"too many declarations in {context}")
            if self._peek()[0] not in {Kind.VARIABLE, Kind.RIGHT_DELIM, Kind.RIGHT_PAREN}:
                self._fail("range can only initialize variables")

    def _first_command(self) -> Operand:
        word, args = self._terms()
        if isinstance(word, Identifier):
            return call(word, args, piped=0)
        return Application(word, args) if args else word

    def _later_command(self) -> Call | Application:
        word, args = self._terms()
        return call(word, args, piped=1) if isinstance(word, Identifier) else Application(word, args)

    def _terms(self) -> tuple[Operand, list[Operand]]:
        """The terms of one command: what it begins with, and its arguments."""
        tokens = self._tokens
        terms: list[Operand] = []
        while True:
            token = self._last = tokens[self._at]
            read = _TERMS[token[0]]
            if read is not None:
                self._at += 1
                operand = read(self, token)
                following = tokens[self._at]
                if following[0] == _FIELD and not following[3]:
                    operand = self._fields(operand)
                    following = tokens[self._at]
                terms.append(operand)
                if following[3]:
                    continue
                token = self._last = following
            if token[0] not in _ENDS:
                self._next()
                if token[0] != _PIPE:
                    self._unexpected(token, "operand")
            break
        if not terms:
            self._fail("empty command")
        return terms[0], terms[1:]

    def _fields(self, node: Operand) -> Operand:
        """A term with the fields that follow it without a space."""
        first = self._peek()
        names: list[str] = []
        while (following := self._peek())[0] == _FIELD and not following[3]:
            names.append(self._next()[2][1:])
        if isinstance(node, LITERALS):
            self._fail(f"unexpected . after term {quote(str(node))}")
        pos = first[1]
        match node:
            case Field():
                return Field(pos, (*node.names, *names), node.loop)
            case Variable():
                return Variable(pos, (*node.names, *names), node.slot, node.loop)
            case _:
                return Chain(pos, node, tuple(names))

    # Terms.

    def identifier(self, token: Token) -> Identifier:
        _, pos, name, _ = token
        if name not in self._functions:
            self._fail(f"function {quote(name)} not defined")
        return Identifier(pos, name, self._functions[name])

    def variable(self, token: Token) -> Variable:
        _, pos, name, _ = token
        if name not in self._scope.names:
            self._fail(f"undefined variable {quote(name)}")
        binding = self._scope.find(name)
        return Variable(pos, (name,), *((binding.slot, binding.loop) if binding else (None, None)))

    def field(self, token: Token) -> Field:
        return Field(token[1], (token[2][1:],), self._scope.dot_loop)

    def number(self, token: Token) -> Number:
        kind, pos, text, _ = token
        number = parse_number(pos, text, is_char=kind == Kind.CHAR_CONSTANT, is_complex=kind == Kind.COMPLEX)
        if isinstance(number, str):
            self._fail(number)
        return number

    def parenthesis(self, token: Token) -> Group:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self._fail(f"nested deeper than {MAX_NESTING} levels")
        pipe = self._pipeline("parenthesized pipeline", Kind.RIGHT_PAREN)
        self._nesting -= 1
        return Group(token[1], pipe)

    def string(self, token: Token) -> String:
        _, pos, text, _ = token
        return String(pos, text, self._unquoted(text))

    def _unquoted(self, text: str) -> str:
        value = unquote(text)
        if value is None:
            self._fail("invalid syntax")
        return value


def _is_group(command: Operand) -> bool:
    return isinstance(command.word if isinstance(command, Application) else command, Group)


@dataclass(frozen=True, slots=True)
class _Stop:
    """{{end}} or {{else}}: where a body ends."""

    shown: str


_END, _ELSE = _Stop("{{end}}"), _Stop("{{else}}")
_DECLARES, _ASSIGNS = " := ", " = "

_TEXT, _SHOWN_FIELD, _EOF = Kind.TEXT, Kind.SHOWN_FIELD, Kind.EOF
_LEFT_DELIM, _RIGHT_DELIM, _FIELD, _PIPE = Kind.LEFT_DELIM, Kind.RIGHT_DELIM, Kind.FIELD, Kind.PIPE
_ENDS = (Kind.RIGHT_DELIM, Kind.RIGHT_PAREN)
_STATEMENTS: dict[int, Callable[[_Parser, Token], Statement | _Stop]] = {
    Kind.BLOCK: _Parser.block,
    Kind.BREAK: _Parser.jump,
    Kind.CONTINUE: _Parser.jump,
    Kind.ELSE: _Parser.else_,
    Kind.END: _Parser.end,
    Kind.IF: _Parser.if_or_with,
    Kind.RANGE: _Parser.range_,
    Kind.TEMPLATE: _Parser.include,
    Kind.WITH: _Parser.if_or_with,
}
_READERS: dict[int, Callable[[_Parser, Token], Operand]] = {
    Kind.IDENTIFIER: _Parser.identifier,
    Kind.DOT: lambda _, token: Dot(token[1]),
    Kind.NIL: lambda _, token: Nil(token[1]),
    Kind.VARIABLE: _Parser.variable,
    Kind.FIELD: _Parser.field,
    Kind.BOOL: lambda _, token: Bool(token[1], token[2] == "true"),
    Kind.CHAR_CONSTANT: _Parser.number,
    Kind.COMPLEX: _Parser.number,
    Kind.NUMBER: _Parser.number,
    Kind.LEFT_PAREN: _Parser.parenthesis,
    Kind.STRING: _Parser.string,
    Kind.RAW_STRING: _Parser.string,
}
_TERMS = [_READERS.get(kind) for kind in range(Kind.SHOWN_FIELD + 1)]
"""What reads a term, by the kind of its first token."""
