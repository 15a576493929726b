"""Function calls -> closures.

What can be decided when the template is compiled is decided then: arity, and the conversion of constants to the types
of the parameters. A wrong one still fails only when it is reached, as in Go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gotmpl.errors import FuncError, Quoted, TemplateError
from gotmpl.formatting import Spec, format_value, spelled_out
from gotmpl.nodes import Bool, Chain, Command, Field, Identifier, Nil, Node, Number, Operand, String
from gotmpl.operands import MISSING, Eval, Missing, ideal_constant, typed_constant
from gotmpl.run import Run
from gotmpl.signatures import Func, GoType
from gotmpl.values import Value, go_type, truth

Piped = Callable[[Run, Value, Value], Value]
"""Like Eval, with the value that comes through the pipeline, or MISSING."""


@dataclass(frozen=True, slots=True)
class Constant:
    """An argument known when the template is compiled."""

    node: Node
    value: Value


@dataclass(frozen=True, slots=True)
class Computed:
    """An argument that is evaluated for each call, then checked against its type."""

    eval: Eval
    kind: GoType
    from_map: bool
    """It is an element of a map, so a nil is an interface {} that holds nothing."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A constant that its parameter does not take."""

    node: Node
    message: str


Argument = Constant | Computed | Refused


def argument(node: Operand, kind: GoType, compile_operand: Callable[[Operand], Eval]) -> Argument:
    match node:
        case Nil():
            if kind.nilable:
                return Constant(node, kind.zero)
            return Refused(node, f"cannot assign nil to {kind.name}")
        case Bool() | String() | Number():
            return _constant(node, kind)
        case _:
            return Computed(compile_operand(node), kind, isinstance(node, Field | Chain))


def retyped(given: Argument, kind: GoType) -> Argument:
    """A literal again, for the type of the parameter it turns out to be for: methods are known only when called."""
    if isinstance(given, Constant | Refused) and isinstance(given.node, Bool | String | Number):
        return _constant(given.node, kind)
    return given


def _constant(node: Bool | String | Number, kind: GoType) -> Constant | Refused:
    match kind.constant, node:
        case "none", _:
            return Refused(node, f"can't handle {node} for arg of type {kind.name}")
        case "any", Number():
            value = ideal_constant(node)
            return Constant(node, value) if value is not None else Refused(node, f"{node} overflows int")
        case (("any" | "bool"), Bool()):
            return Constant(node, node.value)
        case (("any" | "string"), String()):
            return Constant(node, node.text)
        case (("integer" | "unsigned" | "float"), Number()):
            value = typed_constant(node, kind)
            if value is not None:
                return Constant(node, value)
    wanted = {"unsigned": "unsigned integer"}.get(kind.constant, kind.constant)
    return Refused(node, f"expected {wanted}; found {node}")


def check(run: Run, value: Value, kind: GoType, *, from_map: bool = False) -> Value:
    """The value as an argument of that type, or the error Go gives."""
    if kind.accepts(value):
        return value
    if value is None:
        if kind.nilable:
            return kind.zero
        if from_map:
            raise run.error(f"wrong type for value; expected {kind.name}; got interface {{}}")
    raise run.error(kind.refusal(value))


def arity_error(func: Func, given: int, piped: int) -> str:
    """Go's message for a wrong number of arguments, or nothing."""
    want = len(func.params)
    if func.variadic is not None:
        return f"wrong number of args for {func.name}: want at least {want} got {given}" if given + piped < want else ""
    if given + piped != want:
        return f"wrong number of args for {func.name}: want {want} got {given + piped}"
    return ""


def invoke(run: Run, func: Func, arguments: Sequence[Value], node: Node) -> Value:
    """Call it; whatever it raises becomes an error of the template that names the function."""
    try:
        return func.call(*arguments)
    except FuncError as exc:
        run.node = node
        raise run.error(f"error calling {func.name}: {_reason(exc, run.place.text)}") from None
    except TemplateError:
        raise
    except Exception as exc:  # noqa: BLE001 a defect in one function must not take the operator down, nor leak a value
        run.node = node
        raise run.error(f"error calling {func.name}: internal error ({type(exc).__name__})") from None


def _reason(error: FuncError, source: str) -> str:
    return "".join(part if isinstance(part, str) else _shown(part, source) for part in error.parts)


def _shown(part: Quoted, source: str) -> str:
    if part.origin is not None and spelled_out(part.origin, source) == part.origin:
        return format_value(part.value, Spec(verb=part.verb))
    return spelled_out(part.value, source, part.verb)


def compile_call(func: Func, node: Identifier | Command, arguments: list[Argument], word: Identifier) -> Piped:
    """The call of a function by its name. `node` is what an error of the function itself points at."""
    if func.lazy == "call":
        return _call_of_a_value(arguments, node, word)
    if func.lazy:
        return _lazy(func, arguments, word)
    plain = arity_error(func, len(arguments), 0)
    piped = arity_error(func, len(arguments), 1)
    fixed = _fixed(func, node, arguments, word) if not plain else None

    def call(run: Run, dot: Value, final: Value | Missing) -> Value:
        if final is MISSING and fixed is not None:
            return fixed(run, dot)
        run.node = word
        problem = plain if final is MISSING else piped
        if problem:
            raise run.error(problem)
        values = evaluate(run, dot, arguments)
        if final is not MISSING:
            values.append(check(run, final, func.type_of(len(values))))
        run.step(func.cost)
        return invoke(run, func, values, node)

    return call


def _fixed(func: Func, node: Node, arguments: list[Argument], word: Identifier) -> Eval:
    """The usual case, no piped value: short closures for one and two computed arguments."""
    match arguments:
        case [Computed(eval=first, kind=kind, from_map=from_map)]:
            accepted, takes_any = kind.python, kind.constant == "any"

            def one(run: Run, dot: Value) -> Value:
                run.node = word
                value = first(run, dot)
                if not takes_any and type(value) not in accepted:
                    value = check(run, value, kind, from_map=from_map)
                run.step(func.cost)
                return invoke(run, func, (value,), node)

            return one
        case _:

            def many(run: Run, dot: Value) -> Value:
                run.node = word
                values = evaluate(run, dot, arguments)
                run.step(func.cost)
                return invoke(run, func, values, node)

            return many


def evaluate(run: Run, dot: Value, arguments: list[Argument]) -> list[Value]:
    values: list[Value] = []
    for entry in arguments:
        match entry:
            case Constant(node=node, value=value):
                run.node = node
                values.append(value)
            case Computed(eval=compute, kind=kind, from_map=from_map):
                values.append(check(run, compute(run, dot), kind, from_map=from_map))
            case Refused(node=node, message=message):
                run.node = node
                raise run.error(message)
    return values


def _lazy(func: Func, arguments: list[Argument], word: Identifier) -> Piped:
    """`and` and `or`: the first argument that decides is the result; later ones are not evaluated."""
    stops_on = func.lazy == "or"

    def decide(run: Run, dot: Value, final: Value | Missing) -> Value:
        run.node = word
        problem = arity_error(func, len(arguments), 0 if final is MISSING else 1)
        if problem:
            raise run.error(problem)
        value: Value = None
        for entry in arguments:
            (value,) = evaluate(run, dot, [entry])
            if truth(value) is stops_on:
                return value
        return value if final is MISSING else final

    return decide


def _call_of_a_value(arguments: list[Argument], node: Identifier | Command, word: Identifier) -> Piped:
    """`call`: values here are never functions, so it can only say so, naming the argument as it is written."""
    written = node.args[1] if isinstance(node, Command) and len(node.args) > 1 else None

    def refuse(run: Run, dot: Value, final: Value | Missing) -> Value:
        run.node = word
        if written is None and final is MISSING:
            raise run.error("wrong number of args for call: want at least 1 got 0")
        value = evaluate(run, dot, arguments)[0] if arguments else final
        run.node = node
        shown = written or ("<redacted>" if isinstance(value, str) else f"<{go_type(value)} Value>")
        problem = "call of nil" if value is None else f"non-function {shown} of type {go_type(value)}"
        raise run.error(f"error calling call: {problem}")

    return refuse


def not_a_function(run: Run, args: Sequence[Node], final: Value | Missing) -> None:
    if len(args) > 1 or final is not MISSING:
        raise run.error(f"can't give argument to non-function {args[0]}")
