"""Tokens to pipelines: commands, terms, and the variables they declare.

Function names and variable slots are resolved on the way. Statements are in template.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from gotmpl import operands
from gotmpl.calls import Application, Call, Command, Declaration, Identifier, Pipe, call
from gotmpl.errors import ParseError
from gotmpl.functions import Func
from gotmpl.lexer import Kind, Token, shown, tokens
from gotmpl.numbers import parse_number
from gotmpl.operands import LITERALS, Bool, Chain, Dot, Field, Group, Nil, Number, Operand, String, Variable
from gotmpl.quoting import quote, unquote

# --- Variables, resolved to slots when a template is parsed -----------------------------------------------------------
# Go keeps a stack of names at run time; scoping is lexical, so the slot of every use is known in advance. Go's parser
# is more lenient than its execution: in {{else}} it still accepts variables of the body before. So there are two lists.


class Binding:
    __slots__ = ("loop", "name", "slot")

    def __init__(self, name: str, slot: int, loop: int | None = None) -> None:
        self.name = name
        self.slot = slot
        self.loop = loop
        """The slot that says whether the loop that binds this name has elements of type interface {}."""


_ROOT = Binding("$", 0)


class Scope:
    """The variables of one template body while it is parsed."""

    __slots__ = ("bindings", "dot_loop", "names", "size")

    def __init__(self) -> None:
        self.bindings = [_ROOT]
        self.names = ["$"]
        """The names that the parser accepts as variables, bound or not."""
        self.size = 1
        self.dot_loop: int | None = None
        """Like Binding.loop, for the dot."""

    def slot(self) -> int:
        self.size += 1
        return self.size - 1

    def mention(self, name: str) -> None:
        self.names.append(name)

    def declare(self, name: str, loop: int | None = None) -> Binding:
        binding = Binding(name, self.slot(), loop)
        self.bindings.append(binding)
        return binding

    def find(self, name: str) -> Binding | None:
        for binding in reversed(self.bindings):
            if binding.name == name:
                return binding
        return None

    def mark(self) -> tuple[int, int]:
        return len(self.bindings), len(self.names)

    def unbind(self, mark: tuple[int, int]) -> None:
        """End a body: unbind its variables."""
        del self.bindings[mark[0] :]

    def forget(self, mark: tuple[int, int]) -> None:
        """End a statement: forget its variables."""
        del self.bindings[mark[0] :]
        del self.names[mark[1] :]


MAX_NESTING = 60
"""Deeper trees are refused: Python's stack is smaller than Go's."""


class Unparsable(Exception):  # noqa: N818 becomes a ParseError when the name is known
    """The text is not a template."""

    def __init__(self, message: str, line: int, *, opened: int | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.hint = hint
        self.opened = opened
        """The line where the action started, if it is another one."""

    def in_template(self, name: str) -> ParseError:
        started = "" if self.opened is None else f" at {name}:{self.opened}"
        return ParseError(f"template: {name}:{self.line}: {self.message}{started}", line=self.line, hint=self.hint)


class Expressions:
    """Parses pipelines from the tokens of a text, one after the other."""

    def __init__(self, text: str, functions: Mapping[str, Func], left: str, right: str) -> None:
        self._text = text
        self._functions = functions
        self.tokens = tokens(text, left, right)
        self.at = 0
        self._end = len(self.tokens) - 1
        self.last = self.tokens[0]
        self.scope = Scope()
        self._nesting = 0
        self.opened: Token | None = None
        """Where the current action starts; None between actions."""

    # Reading tokens.

    def next(self) -> Token:
        token = self.last = self.tokens[self.at]
        if self.at < self._end:
            self.at += 1
        return token

    def peek(self) -> Token:
        token = self.last = self.tokens[self.at]
        return token

    def expect(self, kind: int, context: str) -> None:
        token = self.next()
        if token[0] != kind:
            self.unexpected(token, context)

    def unexpected(self, token: Token, context: str) -> NoReturn:
        kind, _, text, _ = token
        if kind != Kind.ERROR:
            self.fail(f"unexpected {shown(token)} in {context}", token)
        line = self._line(token)
        opened = self._line(self.opened) if self.opened else line
        if opened == line:
            raise Unparsable(text, line)
        started = " started" if text.endswith(" action") else " in action started"
        raise Unparsable(text + started, line, opened=opened)

    def _line(self, token: Token) -> int:
        return 1 + self._text.count("\n", 0, token[1])

    def fail(self, message: str, token: Token | None = None, *, hint: str = "") -> NoReturn:
        raise Unparsable(message, self._line(token or self.last), hint=hint)

    def descend(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            self.fail(f"nested deeper than {MAX_NESTING} levels")

    def ascend(self) -> None:
        self._nesting -= 1

    # Pipelines.

    def pipeline(self, context: str, end: int) -> Operand:
        kind, pos, _, _ = self.peek()
        if kind != Kind.VARIABLE:
            return self.commands(pos, context, end)
        names, operator = self.declarations(context)
        if not names:
            return self.commands(pos, context, end)
        pipe = self.commands(pos, context, end, written=names[0] + operator)
        pipe = pipe if isinstance(pipe, Pipe) else Pipe(pos, pipe, [], names[0] + operator)
        return Declaration(pipe, names[0], self.bound(names[0], operator))

    def bound(self, name: str, operator: str, loop: int | None = None) -> int | None:
        """Return the slot of a declared or assigned variable; None if there is none."""
        binding = self.scope.find(name) if operator == _ASSIGNS else self.scope.declare(name, loop)
        return binding.slot if binding is not None else None

    def commands(self, pos: int, context: str, end: int, *, written: str = "") -> Operand:
        """Parse commands: a single one stands for itself; one in parentheses, or several, make a pipe."""
        tokens = self.tokens
        first: Operand | None = None
        later: list[Command] = []
        while True:
            token = self.last = tokens[self.at]
            kind = token[0]
            if kind == end:
                self.at += 1
                break
            if _TERMS[kind] is None:
                self.next()
                self.unexpected(token, context)
            if first is None:
                first = self._first_command()
            else:
                later.append(self._later_command())
        if first is None:
            self.fail(f"missing value for {context}")
        if not later and not _is_group(first):
            return first
        for stage, command in enumerate(later, 2):
            if isinstance(command, Application) and isinstance(command.term, LITERALS):
                self.fail(f"non executable command in pipeline stage {stage}")
        return Pipe(pos, first, later, written)

    def declarations(self, context: str) -> tuple[list[str], str]:
        """Parse the names before := or =, and that operator."""
        names: list[str] = []
        while True:
            kind, _, name, _ = self.peek()
            if kind != Kind.VARIABLE:
                return names, _DECLARES
            mark = self.at
            self.next()
            kind, _, text, _ = self.peek()
            if kind in {Kind.ASSIGN, Kind.DECLARE}:
                self.next()
                self.scope.mention(name)
                return [*names, name], _ASSIGNS if kind == Kind.ASSIGN else _DECLARES
            if not (kind == Kind.CHAR and text == ","):
                if not names:
                    self._known(name)
                self.at = mark
                return names, _DECLARES
            self.next()
            names.append(name)
            self.scope.mention(name)
            if not (context == "range" and len(names) < 2):
                self.fail(f"too many declarations in {context}")
            if self.peek()[0] not in {Kind.VARIABLE, Kind.RIGHT_DELIM, Kind.RIGHT_PAREN}:
                self.fail("range can only initialize variables")

    def _first_command(self) -> Operand:
        word, args = self._terms()
        if isinstance(word, Identifier):
            return call(word, args, piped=0)
        return Application(word, args) if args else word

    def _later_command(self) -> Call | Application:
        word, args = self._terms()
        return call(word, args, piped=1) if isinstance(word, Identifier) else Application(word, args)

    def _terms(self) -> tuple[Operand, list[Operand]]:
        """Parse the terms of one command: its head and its arguments."""
        tokens = self.tokens
        terms: list[Operand] = []
        while True:
            token = self.last = tokens[self.at]
            read = _TERMS[token[0]]
            if read is not None:
                self.at += 1
                operand = read(self, token)
                following = tokens[self.at]
                if following[0] == _FIELD and not following[3]:
                    operand = self._fields(operand)
                    following = tokens[self.at]
                terms.append(operand)
                if following[3]:
                    continue
                token = self.last = following
            if token[0] not in _ENDS:
                self.next()
                if token[0] != _PIPE:
                    self.unexpected(token, "operand")
            break
        if not terms:
            self.fail("empty command")
        return terms[0], terms[1:]

    def _fields(self, node: Operand) -> Operand:
        """Parse a term with the fields that follow it without a space."""
        first = self.peek()
        last = first
        names: list[str] = []
        while (following := self.peek())[0] == _FIELD and not following[3]:
            last = self.next()
            names.append(last[2][1:])
        if isinstance(node, LITERALS):
            self.fail(f"unexpected . after term {quote(str(node))}", last if following[3] else following)
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
            self.fail(f"function {quote(name)} not defined", hint=operands.of_function(name, self._functions))
        return Identifier(pos, name, self._functions[name])

    def variable(self, token: Token) -> Variable:
        _, pos, name, _ = token
        self._known(name)
        binding = self.scope.find(name)
        return Variable(pos, (name,), *((binding.slot, binding.loop) if binding else (None, None)))

    def _known(self, name: str) -> None:
        """Fail for an undefined variable. At the head of a pipeline, Go has read one more token and names its line."""
        if name not in self.scope.names:
            self.fail(f"undefined variable {quote(name)}")

    def field(self, token: Token) -> Field:
        return Field(token[1], (token[2][1:],), self.scope.dot_loop)

    def number(self, token: Token) -> Number:
        kind, pos, text, _ = token
        number = parse_number(pos, text, is_char=kind == Kind.CHAR_CONSTANT, is_complex=kind == Kind.COMPLEX)
        if isinstance(number, str):
            self.fail(number)
        return number

    def parenthesis(self, token: Token) -> Group:
        self.descend()
        pipe = self.pipeline("parenthesized pipeline", Kind.RIGHT_PAREN)
        self.ascend()
        return Group(token[1], pipe)

    def string(self, token: Token) -> String:
        _, pos, text, _ = token
        return String(pos, text, self.unquoted(text))

    def unquoted(self, text: str) -> str:
        value = unquote(text)
        if value is None:
            self.fail("invalid syntax")
        return value


def _is_group(command: Operand) -> bool:
    return isinstance(command.term if isinstance(command, Application) else command, Group)


_DECLARES, _ASSIGNS = " := ", " = "
_FIELD, _PIPE = Kind.FIELD, Kind.PIPE
_ENDS = (Kind.RIGHT_DELIM, Kind.RIGHT_PAREN)
_READERS: dict[int, Callable[[Expressions, Token], Operand]] = {
    Kind.IDENTIFIER: Expressions.identifier,
    Kind.DOT: lambda _, token: Dot(token[1]),
    Kind.NIL: lambda _, token: Nil(token[1]),
    Kind.VARIABLE: Expressions.variable,
    Kind.FIELD: Expressions.field,
    Kind.BOOL: lambda _, token: Bool(token[1], token[2] == "true"),
    Kind.CHAR_CONSTANT: Expressions.number,
    Kind.COMPLEX: Expressions.number,
    Kind.NUMBER: Expressions.number,
    Kind.LEFT_PAREN: Expressions.parenthesis,
    Kind.STRING: Expressions.string,
    Kind.RAW_STRING: Expressions.string,
}
_TERMS = [_READERS.get(kind) for kind in range(Kind.SHOWN_FIELD + 1)]
"""The parser of a term, by the kind of its first token."""
