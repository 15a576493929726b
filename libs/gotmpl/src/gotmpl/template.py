"""The public interface: a text is parsed once and rendered many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, NoReturn

from gotmpl.calls import Declaration
from gotmpl.errors import LimitError
from gotmpl.expressions import Expressions, Scope, Unparsable
from gotmpl.functions import Func
from gotmpl.lexer import Kind, Token
from gotmpl.operands import Operand
from gotmpl.quoting import quote
from gotmpl.run import MissingKey, Run, TemplateLimits
from gotmpl.statements import (
    Action,
    Body,
    Break,
    Continue,
    If,
    Include,
    Loop,
    Parsed,
    Range,
    ShownField,
    Statement,
    Template,
    Text,
    With,
    is_empty,
)
from gotmpl.values import Value, joined

# --- Tokens to statements that execute themselves, with Go's grammar and Go's error messages --------------------------
# The name of the template is not needed here: a text is parsed once for all keys that have it.


def parse(text: str, functions: Mapping[str, Func], *, left: str = "{{", right: str = "}}") -> Parsed:
    try:
        return _Parser(text, functions, left or "{{", right or "}}").parsed()
    except RecursionError:
        raise Unparsable("nested too deeply", 1) from None


class _Parser(Expressions):
    def __init__(self, text: str, functions: Mapping[str, Func], left: str, right: str) -> None:
        super().__init__(text, functions, left, right)
        self._delimiters = left, right
        self._range_depth = 0
        self._defined: dict[str, Template] = {}

    def parsed(self) -> Parsed:
        body: Body = []
        tokens = self.tokens
        while (kind := self.peek()[0]) != _EOF:
            if kind == _LEFT_DELIM and tokens[self.at + 1][0] == Kind.DEFINE:
                self.at += 2
                self.last = tokens[self.at - 1]
                self._define()
                continue
            node = self._text_or_action()
            if isinstance(node, _Stop):
                self.fail("unexpected " + self._shown(node))
            body.append(node)
        return Parsed(Template(body, self.scope.size), self._defined)

    def _shown(self, stop: _Stop) -> str:
        left, right = self._delimiters
        return left + stop.keyword + right

    def _define(self) -> None:
        context = "define clause"
        _, name = self._quoted_name(context)
        self.expect(Kind.RIGHT_DELIM, context)
        self._definition(name, context)

    def _definition(self, name: str, context: str) -> None:
        """Parse a defined template. A second one replaces only an empty one; an empty one replaces nothing."""
        outer = self.scope, self._range_depth
        self.scope, self._range_depth = Scope(), 0
        body, stop = self._body()
        size = self.scope.size
        self.scope, self._range_depth = outer
        if stop is not _END:
            self.fail(f"unexpected {self._shown(stop)} in {context}")
        existing = self._defined.get(name)
        if existing is None or is_empty(existing.body):
            self._defined[name] = Template(body, size)
        elif not is_empty(body):
            self.fail(f"template: multiple definition of template {quote(name)}")

    def _body(self) -> tuple[Body, _Stop]:
        """Parse statements up to {{end}} or {{else}}."""
        body: Body = []
        self.peek()
        self.descend()
        while True:
            if self.peek()[0] == _EOF:
                self.fail("unexpected EOF")
            node = self._text_or_action()
            if isinstance(node, _Stop):
                self.ascend()
                return body, node
            body.append(node)

    def _text_or_action(self) -> Statement | _Stop:
        token = self.next()
        kind, pos, text, _ = token
        if kind == _TEXT:
            return Text(text)
        if kind == _SHOWN_FIELD:
            return ShownField(pos, text[1:], self.scope.dot_loop)
        if kind != _LEFT_DELIM:
            self.unexpected(token, "input")
        self.opened = token
        action = self._action()
        self.opened = None
        return action

    def _action(self) -> Statement | _Stop:
        token = self.peek()
        read = _STATEMENTS.get(token[0])
        if read is not None:
            self.next()
            return read(self, token)
        pipe = self.pipeline("command", _RIGHT_DELIM)
        return pipe if isinstance(pipe, Declaration) else Action(token[1], pipe)

    def end(self, _token: Token) -> _Stop:
        self.expect(_RIGHT_DELIM, "end")
        return _END

    def else_(self, _token: Token) -> _Stop:
        if self.peek()[0] not in {Kind.IF, Kind.WITH}:
            self.expect(Kind.RIGHT_DELIM, "else")
        return _ELSE

    def if_or_with(self, token: Token) -> If:
        kind, _, word, _ = token
        scope = self.scope
        outer, loop = scope.mark(), scope.dot_loop
        pipe = self.pipeline(word, Kind.RIGHT_DELIM)
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
        scope = self.scope
        outer, outer_loop, flag = scope.mark(), scope.dot_loop, scope.slot()
        pos = self.peek()[1]
        names, operator = self.declarations("range")
        written = ", ".join(names) + operator if names else ""
        pipe = self.commands(pos, "range", Kind.RIGHT_DELIM, written=written)
        loop = Loop(flag, names, [self.bound(name, operator, flag) for name in names])
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
        """Parse the {{else}} part; `else if` and `else with` continue the chain without another {{end}}."""
        if kind != Kind.RANGE and self.peek()[0] == kind:
            return [self.if_or_with(self.next())]
        body, stop = self._body()
        if stop is not _END:
            self.fail(f"expected end; found {self._shown(stop)}")
        return body

    def block(self, _token: Token) -> Include:
        context = "block clause"
        pos, name = self._quoted_name(context)
        pipe = self.pipeline(context, Kind.RIGHT_DELIM)
        self._definition(name, context)
        return Include(pos, name, pipe, self._defined, self._delimiters)

    def include(self, _token: Token) -> Include:
        context = "template clause"
        pos, name = self._quoted_name(context)
        pipe: Operand | None = None
        if self.peek()[0] == Kind.RIGHT_DELIM:
            self.next()
        else:
            pipe = self.pipeline(context, Kind.RIGHT_DELIM)
        return Include(pos, name, pipe, self._defined, self._delimiters)

    def _quoted_name(self, context: str) -> tuple[int, str]:
        token = self.next()
        if token[0] not in {Kind.STRING, Kind.RAW_STRING}:
            self.unexpected(token, context)
        return token[1], self.unquoted(token[2])

    def jump(self, token: Token) -> Break | Continue:
        source = "{{" + token[2] + "}}"
        self.expect(Kind.RIGHT_DELIM, source)
        if not self._range_depth:
            self.fail(f"{source} outside {{{{range}}}}")
        return Break() if token[0] == Kind.BREAK else Continue()


class _Stop(NamedTuple):
    """{{end}} or {{else}}: where a body ends."""

    keyword: str


_END, _ELSE = _Stop("end"), _Stop("else")
_TEXT, _SHOWN_FIELD, _EOF = Kind.TEXT, Kind.SHOWN_FIELD, Kind.EOF
_LEFT_DELIM, _RIGHT_DELIM = Kind.LEFT_DELIM, Kind.RIGHT_DELIM
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


MAX_CACHED = 2048
MAX_TEXT = 2**20
"""Longer texts are not cached: they would use too much memory."""


class Engine:
    """Templates with one set of functions, parsed once for each text and its delimiters."""

    def __init__(
        self,
        functions: Mapping[str, Func],
        limits: TemplateLimits | None = None,
        *,
        missing: MissingKey = MissingKey.ERROR,
    ) -> None:
        self._functions = functions
        self._missing = missing
        self._limits = limits or TemplateLimits()
        self._cached = lru_cache(maxsize=MAX_CACHED)(self._parse)

    def render(self, text: str, data: Value, *, name: str = "tpl", left: str = "{{", right: str = "}}") -> str:
        """Render one text with one value; `name` is its name in messages."""
        try:
            parsed = (self._parse if len(text) > MAX_TEXT else self._cached)(text, left, right)
            root = (parsed.named(name) or _defined_twice(name, text)) if parsed.defined else parsed.body
        except Unparsable as exc:
            raise exc.in_template(name) from None
        run = Run(name, text, self._limits, data, root.execute)
        run.missing = self._missing
        try:
            root.execute(run, data)
        except RecursionError:
            raise LimitError(f"template: {name}: exceeded maximum template depth") from None
        return joined(run.out)

    def _parse(self, text: str, left: str, right: str) -> Parsed:
        return parse(text, self._functions, left=left, right=right)


def _defined_twice(name: str, text: str) -> NoReturn:
    """Raise Go's error for a duplicate definition, which it detects at the end of the text."""
    raise Unparsable(f"template: multiple definition of template {quote(name)}", 1 + text.count("\n"))
