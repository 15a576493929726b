"""Pipelines, and the commands in them that do not call a function by name."""

from __future__ import annotations

from typing import Protocol

from gotmpl.calls import MISSING, Missing, arity_error, check, invoke
from gotmpl.constants import typed
from gotmpl.fields import CallMethod
from gotmpl.operands import LITERALS, PATHS, Operand, Variable, as_command
from gotmpl.run import Run
from gotmpl.signatures import Func
from gotmpl.values import Value


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
