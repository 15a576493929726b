"""Function calls.

Arity and the conversion of literals are decided when the template is parsed. As in Go, an invalid call still fails only
when it is executed.

The kinds of calls repeat the code for counting, limits and errors instead of sharing a function: one more Python call
per template call would be visible in the benchmark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from gotmpl.errors import MAX_TEXT, Authored, FuncError, Quoted, TemplateError, bounded
from gotmpl.formatting import Spec, format_value, spelled_out
from gotmpl.functions import Func, GoType
from gotmpl.operands import (
    LITERALS,
    PATHS,
    Bool,
    CallMethod,
    Chain,
    Field,
    Nil,
    Number,
    Operand,
    String,
    Variable,
    as_command,
)
from gotmpl.quoting import unquote
from gotmpl.run import Node, Run
from gotmpl.values import Value, go_type, truth

# --- Literals as arguments: converted to the type of the parameter when the template is parsed ------------------------
# As in Go, an unsuitable literal still fails only when it is executed.


class _Literal:
    """A node that stands for a literal of the template."""

    __slots__ = ("literal",)

    def __init__(self, literal: Operand) -> None:
        self.literal = literal

    @property
    def pos(self) -> int:
        return self.literal.pos

    def __str__(self) -> str:
        return str(self.literal)


class Typed(_Literal):
    """A literal, converted for its parameter."""

    __slots__ = ("value",)

    def __init__(self, literal: Operand, value: Value) -> None:
        super().__init__(literal)
        self.value = value

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class Refused(_Literal):
    """A literal that its parameter does not accept."""

    __slots__ = ("message",)

    def __init__(self, literal: Operand, message: str) -> None:
        super().__init__(literal)
        self.message = message

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        raise run.error(self.message)


Constant = Bool | String | Typed
CONSTANTS = (Bool, String, Typed)
"""Nodes whose `value` is known before the template runs."""


def typed(node: Operand, kind: GoType) -> Operand:
    """Return the node for an argument of that type: unchanged unless it is a literal that needs converting."""
    match node:
        case String():
            return node if kind.constant in _TAKE_STRINGS else _refused(node, kind)
        case Bool():
            return node if kind.constant in _TAKE_BOOLS else _refused(node, kind)
        case Number():
            value = _converted(node, kind)
            if value is not None:
                return Typed(node, value)
            return Refused(node, f"{node} overflows int") if kind.constant == "any" else _refused(node, kind)
        case Nil():
            return Typed(node, None) if kind.nilable else Refused(node, f"cannot assign nil to {kind.name}")
        case _:
            return node


_TAKE_STRINGS = ("string", "any")
_TAKE_BOOLS = ("bool", "any")


def _refused(node: Operand, kind: GoType) -> Refused:
    if kind.constant == "none":
        return Refused(node, f"can't handle {node} for arg of type {kind.name}")
    expected = {"unsigned": "unsigned integer"}.get(kind.constant, kind.constant)
    return Refused(node, f"expected {expected}; found {node}")


def _converted(number: Number, kind: GoType) -> Value:
    """Convert the number to a type; None if it does not fit."""
    match kind.constant:
        case "any":
            return number.ideal
        case "integer":
            value: Value = number.int_value
        case "unsigned":
            value = number.uint_value
        case "float":
            value = number.float_value
        case _:
            return None
    return kind.box(value) if kind.box is not None and value is not None else value


_LITERAL: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"|`[^`]*+`')
_VERB: Final = re.compile(r"%[-+# 0]*+[0-9*]*+(?:\.[0-9*]*+)?[A-Za-z]")
_REDACTED: Final = "<redacted>"
_LONGEST_MESSAGE: Final = 1024
_FEWEST_LETTERS: Final = 3
"""A shorter literal also occurs in values by chance."""


class Missing:
    """Marks that no value came through the pipeline."""


MISSING = Missing()


class Identifier:
    """The name of a function; as an operand, its call without arguments."""

    __slots__ = ("func", "name", "pos")

    def __init__(self, pos: int, name: str, func: Func) -> None:
        self.pos = pos
        self.name = name
        self.func = func

    def __str__(self) -> str:
        return self.name

    def eval(self, run: Run, dot: Value) -> Value:
        return call(self, [], piped=0).eval(run, dot)


class Call:
    """`name argument…`, plus the piped value if there is one."""

    __slots__ = ("args", "func", "kinds", "name", "operands")

    def __init__(self, name: Identifier, args: list[Operand], operands: list[Operand], kinds: Sequence[GoType]) -> None:
        self.name = name
        self.args = args
        self.operands = operands
        """The arguments, with literals converted."""
        self.kinds = kinds
        self.func = name.func

    @property
    def pos(self) -> int:
        return self.name.pos

    def __str__(self) -> str:
        return " ".join(map(str, [self.name, *self.args]))

    def eval(self, run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = self.name
        values = []
        for operand, kind in zip(self.operands, self.kinds, strict=False):
            value = operand.eval(run, dot)
            accepted = kind.accepted
            if accepted is not None and type(value) not in accepted:
                value = _checked(run, operand, value, kind)
            values.append(value)
        func = self.func
        if final is not MISSING:
            kind = self.kinds[len(values)]
            values.append(final if kind.accepts(final) else check(run, final, kind))
        run.steps -= func.cost
        if run.steps < run.alarm:
            run.tick()
        try:
            result = func.call(*values)
            if type(result) is str and len(result) > MAX_TEXT:
                bounded(len(result))
        except Exception as exc:  # noqa: BLE001 see failure
            raise failure(run, func, self, exc) from None
        return result


class Filter(Call):
    """`| toJson`, `| replace "a" "b"`: the call of most pipelines, whose arguments are all constants."""

    __slots__ = ("accepted", "kind", "last", "values")

    def __init__(self, name: Identifier, args: list[Operand], operands: list[Operand], kinds: Sequence[GoType]) -> None:
        self.name = name
        self.args = args
        self.func = name.func
        self.values = [operand.value for operand in operands]  # type: ignore[attr-defined]  # each is one of CONSTANTS
        self.last: Node = operands[-1] if operands else name
        self.kind = kinds[len(args)]
        self.accepted = self.kind.accepted

    def eval(self, run: Run, _dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = self.last
        accepted = self.accepted
        if accepted is not None and type(final) not in accepted:
            final = check(run, final, self.kind)
        func = self.func
        run.steps -= func.cost
        if run.steps < run.alarm:
            run.tick()
        try:
            result = func.call(*self.values, final)
            if type(result) is str and len(result) > MAX_TEXT:
                bounded(len(result))
        except Exception as exc:  # noqa: BLE001 see failure
            raise failure(run, func, self, exc) from None
        return result


class Misnumbered(Call):
    """A call with too few or too many arguments."""

    __slots__ = ()

    def eval(self, run: Run, _dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = self.name
        raise run.error(arity_error(self.func, len(self.args), 0 if final is MISSING else 1))


class Decision(Call):
    """`and` and `or`: the first argument that decides is the result; later ones are not evaluated."""

    __slots__ = ()

    def eval(self, run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = self.name
        problem = arity_error(self.func, len(self.args), 0 if final is MISSING else 1)
        if problem:
            raise run.error(problem)
        stops_on = self.func.lazy == "or"
        value: Value = None
        for operand in self.operands:
            value = operand.eval(run, dot)
            if truth(value) is stops_on:
                return value
        return value if final is MISSING else final


class CallOfAValue(Call):
    """`call`: values are never functions here, so it always fails, naming the argument as written."""

    __slots__ = ()

    def eval(self, run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = self.name
        if not self.args and final is MISSING:
            raise run.error("wrong number of args for call: want at least 1 got 0")
        values = [operand.eval(run, dot) for operand in self.operands]
        value = values[0] if values else final
        run.node = self
        shown = _REDACTED if isinstance(value, str) else f"<{go_type(value)} Value>"
        if self.args:
            shown = as_command(self.args[0])
        problem = "call of nil" if value is None else f"non-function {shown} of type {go_type(value)}"
        raise run.error(f"error calling call: {problem}")


def call(name: Identifier, args: list[Operand], *, piped: int) -> Call:
    """Build the call of a function with its arguments, and one more if a value is piped into it."""
    func = name.func
    given, kinds = len(args), func.params
    if func.variadic is not None:
        kinds = (*kinds, *(func.variadic,) * (given + piped - len(kinds)))
    if not func.lazy and given + piped != len(kinds):
        return Misnumbered(name, args, args, kinds)
    operands = [typed(arg, kind) for arg, kind in zip(args, kinds, strict=False)]
    if func.lazy:
        return (CallOfAValue if func.lazy == "call" else Decision)(name, args, operands, kinds)
    if piped and all(isinstance(operand, CONSTANTS) for operand in operands):
        return Filter(name, args, operands, kinds)
    return Call(name, args, operands, kinds)


def _checked(run: Run, operand: Operand, value: Value, kind: GoType) -> Value:
    """Check an argument. Literals are already converted. An element of a map may be nil, an empty interface {}."""
    if isinstance(operand, CONSTANTS):
        return value
    return check(run, value, kind, from_map=isinstance(operand, (Field, Chain, Identifier)))


def check(run: Run, value: Value, kind: GoType, *, from_map: bool = False) -> Value:
    """Return the value as an argument of that type, or raise Go's error."""
    if kind.accepts(value):
        return value
    if value is None:
        if from_map:
            raise run.error(f"wrong type for value; expected {kind.name}; got interface {{}}")
        if kind.nilable:
            return None
    raise run.error(kind.refusal(value))


def arity_error(func: Func, given: int, piped: int) -> str:
    """Return Go's message for a wrong number of arguments; empty if the number is right."""
    want = len(func.params)
    if func.variadic is not None:
        return f"wrong number of args for {func.name}: want at least {want} got {given}" if given + piped < want else ""
    if given + piped != want:
        return f"wrong number of args for {func.name}: want {want} got {given + piped}"
    return ""


def invoke(run: Run, func: Func, arguments: Sequence[Value], node: Node) -> Value:
    """Call the function; turn every exception into a template error that names the function."""
    try:
        return func.call(*arguments)
    except Exception as exc:  # noqa: BLE001 see failure
        raise failure(run, func, node, exc) from None


def failure(run: Run, func: Func, node: Node, error: Exception) -> TemplateError:
    """Build the error of a failed call. An unexpected exception is reported by type only, so that it leaks no value."""
    if isinstance(error, TemplateError):
        return error
    run.node = node
    if isinstance(error, MemoryError):
        return run.over("needs more memory than there is")
    if isinstance(error, FuncError):
        return run.error(f"error calling {func.name}: {_reason(error, run)}", error.hint)
    return run.error(f"error calling {func.name}: internal error ({type(error).__name__})")


def _reason(error: FuncError, run: Run) -> str:
    return "".join(part if isinstance(part, str) else _shown(part, run) for part in error.parts)


def _shown(part: Quoted | Authored, run: Run) -> str:
    source = run.text
    if isinstance(part, Authored):
        return _message_of(source, part.text)
    if part.origin is not None and spelled_out(part.origin, source) == part.origin:
        return format_value(part.value, Spec(verb=part.verb))
    return spelled_out(part.value, source, part.verb)


def _message_of(source: str, text: str) -> str:
    """Return one literal of the source that the message was made with; everything else in it may be data.

    Several literals are never combined: with a literal for each letter, an author could spell a value.
    """
    literals = [literal for found in _LITERAL.findall(source) if (literal := unquote(found)) is not None]
    if text in literals:
        return text
    shown = max((_with_gaps(text, literal) for literal in literals), key=_letters, default="")
    return shown[:_LONGEST_MESSAGE] if _letters(shown) >= _FEWEST_LETTERS else _REDACTED


def _with_gaps(text: str, literal: str) -> str:
    """Return the literal with gaps for data if it is the format, the beginning or the end of the text, else nothing."""
    parts = _VERB.split(literal)
    if len(parts) > 1:
        return _REDACTED.join(parts) if _matches(text, parts) else ""
    if text.startswith(literal):
        return f"{literal}{_REDACTED}"
    return f"{_REDACTED}{literal}" if text.endswith(literal) else ""


def _matches(text: str, parts: list[str]) -> bool:
    """Return whether the parts occur in the text in this order, the first at its begin and the last at its end."""
    first, *middle, last = parts
    if not text.startswith(first):
        return False
    at = len(first)
    for part in middle:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - at >= len(last) and text.endswith(last)


def _letters(shown: str) -> int:
    return sum(map(str.isalnum, shown.replace(_REDACTED, "")))


# --- Pipelines, and the commands in them that do not call a function by name ------------------------------------------


class Command(Operand, Protocol):
    """An operand that takes the piped value."""

    def eval(self, run: Run, dot: Value, final: Value | Missing = MISSING, /) -> Value: ...


class Application:
    """`.when.Format "2006"`, `x | $y.Method`: a term with arguments. Only methods can take them."""

    __slots__ = ("args", "term")

    def __init__(self, term: Operand, args: list[Operand]) -> None:
        self.term = term
        self.args = args

    @property
    def pos(self) -> int:
        return self.term.pos

    def __str__(self) -> str:
        return " ".join(map(str, [self.term, *self.args]))

    def eval(self, run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        term = self.term
        if isinstance(term, Variable) and len(term.names) == 1:
            term.eval(run, dot)
        elif isinstance(term, PATHS):
            return term.read(run, dot, self._call(dot, final))
        elif isinstance(term, LITERALS):
            run.node = term
        raise run.error(f"can't give argument to non-function {as_command(term)}")

    def _call(self, dot: Value, final: Value | Missing) -> CallMethod:
        def call(run: Run, receiver: Value, method: Func) -> Value:
            problem = arity_error(method, len(self.args), 0 if final is MISSING else 1)
            if problem:
                raise run.error(problem)
            values = [
                check(run, typed(arg, kind).eval(run, dot), kind)
                for arg, kind in zip(self.args, method.params, strict=False)
            ]
            if final is not MISSING:
                values.append(check(run, final, method.params[-1]))
            return invoke(run, method, [receiver, *values], self.term)

        return call


class Pipe:
    """`a | b | c`, with the variables it declares. The loop sets the variables of a {{range}}."""

    __slots__ = ("first", "later", "pos", "written")

    def __init__(self, pos: int, first: Operand, later: list[Command], written: str = "") -> None:
        self.pos = pos
        self.first = first
        self.later = later
        self.written = written
        """The declaration before the first command, `$x := `."""

    def __str__(self) -> str:
        return self.written + " | ".join(map(str, [self.first, *self.later]))

    def eval(self, run: Run, dot: Value) -> Value:
        run.node = self
        value = self.first.eval(run, dot)
        for command in self.later:
            value = command.eval(run, dot, value)
        return value


class Declaration(Pipe):
    """`$x := …` and `$x = …`. As an action it shows nothing."""

    __slots__ = ("name", "slot")

    def __init__(self, pipe: Pipe, name: str, slot: int | None) -> None:
        super().__init__(pipe.pos, pipe.first, pipe.later, pipe.written)
        self.name = name
        self.slot = slot
        """None if the name is not bound here; as in Go, that fails on execution."""

    def eval(self, run: Run, dot: Value) -> Value:
        value = Pipe.eval(self, run, dot)
        if self.slot is None:
            raise run.error(f"undefined variable: {self.name}")
        run.vars[self.slot] = value
        return value

    def execute(self, run: Run, dot: Value) -> None:
        self.eval(run, dot)
