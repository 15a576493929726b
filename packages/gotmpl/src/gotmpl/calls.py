"""Function calls -> closures.

What can be decided when the template is compiled is decided then: arity, and the conversion of constants to the types
of the parameters. A wrong one still fails only when it is reached, as in Go.

The closures below repeat how a call is counted, bounded and blamed instead of sharing a function for it: one more call
for each function of each render is what the benchmark of templates would notice first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from gotmpl.bounds import MAX_TEXT, bounded
from gotmpl.errors import Authored, FuncError, Quoted, TemplateError
from gotmpl.formatting import Spec, format_value, spelled_out
from gotmpl.nodes import Bool, Chain, Command, Field, Identifier, Nil, Node, Number, Operand, String
from gotmpl.operands import MISSING, Eval, Missing, ideal_constant, typed_constant
from gotmpl.run import Run
from gotmpl.signatures import Func, GoType
from gotmpl.values import Value, go_type, truth


class Piped(Protocol):
    """Like Eval, with the value that comes through the pipeline, or MISSING."""

    def __call__(self, run: Run, dot: Value, final: Value | Missing = MISSING, /) -> Value: ...


class Constant:
    """An argument known when the template is compiled."""

    __slots__ = ("node", "value")

    def __init__(self, node: Node, value: Value) -> None:
        self.node = node
        self.value = value


class Computed:
    """An argument that is evaluated for each call, then checked against its type.

    An element of a map is special: nil there is an interface {} that holds nothing.
    """

    __slots__ = ("eval", "from_map", "kind")

    def __init__(self, compute: Eval, kind: GoType, *, from_map: bool) -> None:
        self.eval = compute
        self.kind = kind
        self.from_map = from_map


class Refused:
    """A constant that its parameter does not take."""

    __slots__ = ("message", "node")

    def __init__(self, node: Node, message: str) -> None:
        self.node = node
        self.message = message


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
            return Computed(compile_operand(node), kind, from_map=isinstance(node, (Field, Chain)))


def retyped(given: Argument, kind: GoType) -> Argument:
    """A literal again, for the type of the parameter it turns out to be for: methods are known only when called."""
    if isinstance(given, Constant | Refused) and isinstance(given.node, Bool | String | Number):
        return _constant(given.node, kind)
    return given


def _constant(node: Bool | String | Number, kind: GoType) -> Constant | Refused:
    if type(node) is String and kind.constant in _TAKE_STRINGS:
        return Constant(node, node.text)
    match kind.constant, node:
        case "none", _:
            return Refused(node, f"can't handle {node} for arg of type {kind.name}")
        case "any", Number():
            value = ideal_constant(node)
            return Constant(node, value) if value is not None else Refused(node, f"{node} overflows int")
        case (("any" | "bool"), Bool()):
            return Constant(node, node.value)
        case (("integer" | "unsigned" | "float"), Number()):
            value = typed_constant(node, kind)
            if value is not None:
                return Constant(node, value)
    wanted = {"unsigned": "unsigned integer"}.get(kind.constant, kind.constant)
    return Refused(node, f"expected {wanted}; found {node}")


_TAKE_STRINGS = ("string", "any")


def check(run: Run, value: Value, kind: GoType, *, from_map: bool = False) -> Value:
    """The value as an argument of that type, or the error Go gives."""
    if kind.accepts(value):
        return value
    if value is None:
        if from_map:
            raise run.error(f"wrong type for value; expected {kind.name}; got interface {{}}")
        if kind.nilable:
            return kind.zero
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
    except Exception as exc:  # noqa: BLE001 see failure
        raise failure(run, func, node, exc) from None


def failure(run: Run, func: Func, node: Node, error: Exception) -> TemplateError:
    """A defect in one function must not take the operator down, nor leak a value: only its kind is told."""
    if isinstance(error, TemplateError):
        return error
    run.node = node
    if isinstance(error, FuncError):
        return run.error(f"error calling {func.name}: {_reason(error, run)}")
    return run.error(f"error calling {func.name}: internal error ({type(error).__name__})")


def _reason(error: FuncError, run: Run) -> str:
    return "".join(part if isinstance(part, str) else _shown(part, run) for part in error.parts)


SHORTEST_SECRET = 4
"""Shorter values are everywhere by chance; taking them out of a message would leave nothing of it."""


def _shown(part: Quoted | Authored, run: Run) -> str:
    source = run.place.text
    if isinstance(part, Authored):
        return _without_data(part.text, run.data, source)
    if part.origin is not None and spelled_out(part.origin, source) == part.origin:
        return format_value(part.value, Spec(verb=part.verb))
    return spelled_out(part.value, source, part.verb)


def _without_data(text: str, data: Value, source: str) -> str:
    if spelled_out(text, source) == text or not isinstance(data, dict):
        return text
    for value in sorted(filter(_is_long, data.values()), key=len, reverse=True):
        text = text.replace(value, "<redacted>")
    return text


def _is_long(value: Value) -> bool:
    return isinstance(value, str) and len(value) >= SHORTEST_SECRET


def compile_call(
    func: Func, node: Identifier | Command, arguments: list[Argument], word: Identifier, *, piped: bool
) -> Piped:
    """The call of a function by its name. `node` is what an error of the function itself points at."""
    if func.lazy == "call":
        return _call_of_a_value(arguments, node, word)
    if func.lazy:
        return _lazy(func, arguments, word)
    problem = arity_error(func, len(arguments), 1 if piped else 0)
    if problem:

        def refuse(run: Run, _dot: Value, _final: Value | Missing = MISSING) -> Value:
            run.node = word
            raise run.error(problem)

        return refuse
    if piped:
        return _piped(func, node, arguments, word)
    if len(arguments) == 1 and isinstance(arguments[0], Computed):
        return _of_one(func, node, arguments[0], word)
    return _of_many(func, node, arguments, word)


def _of_one(func: Func, node: Node, argument: Computed, word: Identifier) -> Piped:
    first, accepted = argument.eval, argument.kind.accepted

    def one(run: Run, dot: Value, _final: Value | Missing = MISSING) -> Value:
        run.node = word
        value = first(run, dot)
        if accepted is not None and type(value) not in accepted:
            value = check(run, value, argument.kind, from_map=argument.from_map)
        run.steps -= func.cost
        if run.steps < run.alarm:
            run.tick()
        try:
            result = func.call(value)
            if type(result) is str and len(result) > MAX_TEXT:
                bounded(len(result))
        except Exception as exc:  # noqa: BLE001 see failure
            raise failure(run, func, node, exc) from None
        return result

    return one


def _of_many(func: Func, node: Node, arguments: list[Argument], word: Identifier) -> Piped:
    evals = [_evaluator(argument) for argument in arguments]

    def many(run: Run, dot: Value, _final: Value | Missing = MISSING) -> Value:
        run.node = word
        values = [compute(run, dot) for compute in evals]
        run.steps -= func.cost
        if run.steps < run.alarm:
            run.tick()
        try:
            result = func.call(*values)
            if type(result) is str and len(result) > MAX_TEXT:
                bounded(len(result))
        except Exception as exc:  # noqa: BLE001 see failure
            raise failure(run, func, node, exc) from None
        return result

    return many


def _piped(func: Func, node: Node, arguments: list[Argument], word: Identifier) -> Piped:
    constants = [argument for argument in arguments if type(argument) is Constant]
    if len(constants) == len(arguments):
        return _piped_to_constants(func, node, constants, word)
    evals = [_evaluator(argument) for argument in arguments]
    kind = func.type_of(len(arguments))
    accepted = kind.accepted

    def with_final(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = word
        values = [compute(run, dot) for compute in evals]
        if accepted is not None and type(final) not in accepted:
            final = check(run, final, kind)
        run.steps -= func.cost
        if run.steps < run.alarm:
            run.tick()
        try:
            result = func.call(*values, final)
            if type(result) is str and len(result) > MAX_TEXT:
                bounded(len(result))
        except Exception as exc:  # noqa: BLE001 see failure
            raise failure(run, func, node, exc) from None
        return result

    return with_final


def _piped_to_constants(func: Func, node: Node, constants: list[Constant], word: Identifier) -> Piped:
    """`| toJson`, `| replace "a" "b"`: most pipelines."""
    values, last = [constant.value for constant in constants], constants[-1].node if constants else word
    kind = func.type_of(len(constants))
    accepted = kind.accepted

    def with_final(run: Run, _dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = last
        if accepted is not None and type(final) not in accepted:
            final = check(run, final, kind)
        run.steps -= func.cost
        if run.steps < run.alarm:
            run.tick()
        try:
            result = func.call(*values, final)
            if type(result) is str and len(result) > MAX_TEXT:
                bounded(len(result))
        except Exception as exc:  # noqa: BLE001 see failure
            raise failure(run, func, node, exc) from None
        return result

    return with_final


def _evaluator(argument: Argument) -> Eval:
    match argument:
        case Constant():
            node, value = argument.node, argument.value

            def constant(run: Run, _dot: Value) -> Value:
                run.node = node
                return value

            return constant
        case Computed():
            compute, kind, from_map = argument.eval, argument.kind, argument.from_map
            accepted = kind.accepted
            if accepted is None:
                return compute

            def computed(run: Run, dot: Value) -> Value:
                found = compute(run, dot)
                return found if type(found) in accepted else check(run, found, kind, from_map=from_map)

            return computed
        case Refused():
            at, message = argument.node, argument.message

            def refused(run: Run, _dot: Value) -> Value:
                run.node = at
                raise run.error(message)

            return refused
        case _:
            assert_never(argument)


def evaluate(run: Run, dot: Value, arguments: list[Argument]) -> list[Value]:
    return [_evaluator(argument)(run, dot) for argument in arguments]


def _lazy(func: Func, arguments: list[Argument], word: Identifier) -> Piped:
    """`and` and `or`: the first argument that decides is the result; later ones are not evaluated."""
    stops_on = func.lazy == "or"
    evals = [_evaluator(argument) for argument in arguments]

    def decide(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = word
        problem = arity_error(func, len(arguments), 0 if final is MISSING else 1)
        if problem:
            raise run.error(problem)
        value: Value = None
        for compute in evals:
            value = compute(run, dot)
            if truth(value) is stops_on:
                return value
        return value if final is MISSING else final

    return decide


def _call_of_a_value(arguments: list[Argument], node: Identifier | Command, word: Identifier) -> Piped:
    """`call`: values here are never functions, so it can only say so, naming the argument as it is written."""
    written = node.args[1] if isinstance(node, Command) and len(node.args) > 1 else None

    def refuse(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
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
