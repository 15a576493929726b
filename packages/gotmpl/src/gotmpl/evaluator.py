"""Tree -> closures -> text.

A template is compiled once into nested closures and executed many times. Statements return a signal (None, BREAK or
CONTINUE) so that loops need no exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from gotmpl.calls import (
    Argument,
    Piped,
    argument,
    arity_error,
    check,
    compile_call,
    evaluate,
    invoke,
    not_a_function,
    retyped,
)
from gotmpl.errors import FuncError, LimitError, ParseError
from gotmpl.formatting import display
from gotmpl.loops import entries
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
from gotmpl.operands import MISSING, CallMethod, Eval, Missing, ideal_constant, read_chain
from gotmpl.parser import Tree
from gotmpl.quoting import quote
from gotmpl.run import Limits, Place, Run
from gotmpl.scope import Binding, Scope
from gotmpl.signatures import ANY, Func
from gotmpl.values import StrMap, Value, has_interface_elements, joined, truth

Signal = int | None
BREAK, CONTINUE = 1, 2
Exec = Callable[[Run, Value], Signal]


@dataclass(slots=True)
class Compiled:
    """One template body, ready to run."""

    place: Place
    body: Exec
    size: int


class Program:
    """A compiled text with the templates it defines."""

    def __init__(self, tree: Tree, functions: Mapping[str, Func]) -> None:
        self._templates: dict[str, Compiled] = {}
        try:
            self._main = self._compile(tree, tree.name, tree.body, functions)
            for name, body in tree.defined.items():
                self._templates[name] = self._compile(tree, name, body, functions)
        except RecursionError:
            raise ParseError(f"template: {tree.name}:1: nested too deeply") from None

    def _compile(self, tree: Tree, name: str, body: Body, functions: Mapping[str, Func]) -> Compiled:
        scope = Scope()
        place = Place(name, tree.name, tree.text)
        return Compiled(place, _Compiler(functions, self._templates, scope).body(body), scope.size)

    def execute(self, data: Value, limits: Limits) -> str:
        run = Run(self._main.place, limits, data)
        run.vars = [data, *[None] * (self._main.size - 1)]
        try:
            self._main.body(run, data)
        except RecursionError:
            raise LimitError(f"template: {run.place.tree_name}: exceeded maximum template depth") from None
        return joined(run.out)


class _Compiler:
    def __init__(self, functions: Mapping[str, Func], templates: Mapping[str, Compiled], scope: Scope) -> None:
        self._functions = functions
        self._templates = templates
        self._scope = scope

    # Statements.

    def body(self, body: Body) -> Exec:
        steps = [self._statement(node) for node in body.nodes]
        if len(steps) == 1:
            return steps[0]

        def sequence(run: Run, dot: Value) -> Signal:
            for step in steps:
                signal = step(run, dot)
                if signal is not None:
                    return signal
            return None

        return sequence

    def _statement(self, node: Statement) -> Exec:
        match node:
            case Text():
                return _text(node.text)
            case ShownField():
                return self._shown_field(node)
            case Action():
                return self._action(node)
            case Branch(word="range"):
                return self._range(node)
            case Branch():
                return self._if_or_with(node)
            case Include():
                return self._include(node)
            case Break():
                return lambda _run, _dot: BREAK
            case Continue():
                return lambda _run, _dot: CONTINUE
            case _:
                assert_never(node)

    def _action(self, node: Action) -> Exec:
        pipe = self.pipe(node.pipe)
        if node.pipe.declared:

            def declare(run: Run, dot: Value) -> Signal:
                pipe(run, dot)
                return None

            return declare

        def show(run: Run, dot: Value) -> Signal:
            value = pipe(run, dot)
            run.node = node
            text = value if type(value) is str else _displayed(run, value)
            run.left -= len(text)
            if run.left < 0:
                raise run.overflow()
            run.out.append(text)
            return None

        return show

    def _shown_field(self, node: ShownField) -> Exec:
        name, loop = node.name, self._scope.dot_loop

        def show(run: Run, dot: Value) -> Signal:
            if type(dot) is StrMap and name in dot:
                value = dot[name]
            else:
                run.node = Field(node.pos, (name,))
                value = read_chain(run, dot, (name,), in_interface=loop is not None and run.vars[loop], call=None)
            run.node = node
            text = value if type(value) is str else _displayed(run, value)
            run.left -= len(text)
            if run.left < 0:
                raise run.overflow()
            run.out.append(text)
            return None

        return show

    def _if_or_with(self, node: Branch) -> Exec:
        mark = len(self._scope.bindings)
        pipe = self.pipe(node.pipe)
        inner = len(self._scope.bindings)
        loop = self._scope.dot_loop
        takes_dot = node.word == "with"
        if takes_dot:
            self._scope.dot_loop = None
        body = self.body(node.body)
        del self._scope.bindings[inner:]
        self._scope.dot_loop = loop
        otherwise = self.body(node.otherwise) if node.otherwise is not None else None
        del self._scope.bindings[mark:]

        def branch(run: Run, dot: Value) -> Signal:
            value = pipe(run, dot)
            if truth(value):
                return body(run, value if takes_dot else dot)
            return otherwise(run, dot) if otherwise is not None else None

        return branch

    def _range(self, node: Branch) -> Exec:
        mark = len(self._scope.bindings)
        outer_loop, flag = self._scope.dot_loop, self._scope.slot()
        pipe = self.pipe(node.pipe, declares=False)
        slots = self._loop_slots(node, flag)
        inner = len(self._scope.bindings)
        self._scope.dot_loop = flag
        body = self.body(node.body)
        del self._scope.bindings[inner:]
        self._scope.dot_loop = outer_loop
        otherwise = self.body(node.otherwise) if node.otherwise is not None else None
        del self._scope.bindings[mark:]
        undefined = next((name for name, slot in slots if slot is None), None)
        key_slot = slots[0][1] if len(slots) == 2 else None
        value_slot = slots[-1][1] if slots else None

        def loop(run: Run, dot: Value) -> Signal:
            container = pipe(run, dot)
            if undefined is not None:
                raise run.error(f"undefined variable: {undefined}")
            for _, slot in slots:
                run.vars[slot or 0] = container
            ran = False
            for key, value in entries(run, container, len(slots)):
                ran = True
                run.step()
                run.vars[flag] = has_interface_elements(container)
                if key_slot is not None:
                    run.vars[key_slot] = key
                if value_slot is not None:
                    run.vars[value_slot] = value
                if body(run, value) == BREAK:
                    break
            if not ran and otherwise is not None:
                return otherwise(run, dot)
            return None

        return loop

    def _loop_slots(self, node: Branch, flag: int) -> list[tuple[str, int | None]]:
        slots: list[tuple[str, int | None]] = []
        for variable in node.pipe.declared:
            name = variable.names[0]
            if node.pipe.assigns:
                binding = self._scope.find(name)
                slots.append((name, binding.slot if binding else None))
            else:
                slots.append((name, self._scope.declare(name, flag).slot))
        return slots

    def _include(self, node: Include) -> Exec:
        pipe = self.pipe(node.pipe) if node.pipe is not None else None
        templates = self._templates

        def include(run: Run, dot: Value) -> Signal:
            run.node = node
            target = templates.get(node.name)
            if target is None:
                raise run.error(f"template {quote(node.name)} not defined")
            run.enter()
            inner = pipe(run, dot) if pipe is not None else None
            outer_place, outer_vars = run.place, run.vars
            run.place, run.vars = target.place, [inner, *[None] * (target.size - 1)]
            target.body(run, inner)
            run.place, run.vars = outer_place, outer_vars
            run.depth -= 1
            return None

        return include

    # Pipelines.

    def pipe(self, pipe: Pipe, *, declares: bool = True) -> Eval:
        first = self._command(pipe.commands[0], piped=False)
        later = [self._command(command, piped=True) for command in pipe.commands[1:]]
        store = self._store(pipe) if declares and pipe.declared else None
        if not later and store is None and not isinstance(pipe.commands[0].args[0], Pipe):
            return first  # it sets run.node itself

        def chain(run: Run, dot: Value) -> Value:
            run.node = pipe
            value = first(run, dot)
            for command in later:
                value = command(run, dot, value)
            if store is not None:
                store(run, value)
            return value

        return chain

    def _store(self, pipe: Pipe) -> Callable[[Run, Value], None]:
        name = pipe.declared[0].names[0]
        binding: Binding | None
        binding = self._scope.find(name) if pipe.assigns else self._scope.declare(name)
        if binding is None:

            def fail(run: Run, _value: Value) -> None:
                raise run.error(f"undefined variable: {name}")

            return fail
        slot = binding.slot

        def store(run: Run, value: Value) -> None:
            run.vars[slot] = value

        return store

    def _command(self, command: Command, *, piped: bool) -> Piped:
        word = command.args[0]
        match word:
            case Identifier():
                func = self._functions[word.name]
                return compile_call(func, command, self._arguments(func, command.args[1:]), word, piped=piped)
            case Field() if len(word.names) == 1 == len(command.args) and not piped:
                return self._one_field(word, word.names[0])
            case Field() | Chain() | Variable():
                return self._fields(word, command.args)
            case Pipe():
                inner = self.pipe(word)

                def parenthesised(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
                    not_a_function(run, command.args, final)
                    return inner(run, dot)

                return parenthesised
            case _:
                return _literal(word, command)

    def _arguments(self, func: Func, nodes: list[Operand]) -> list[Argument]:
        params, rest = func.params, func.variadic or ANY
        return [
            argument(node, params[position] if position < len(params) else rest, self.operand)
            for position, node in enumerate(nodes)
        ]

    # Operands.

    def operand(self, node: Operand) -> Eval:
        """A node where a value is wanted, without arguments of its own."""
        match node:
            case Dot():

                def dot_itself(run: Run, dot: Value) -> Value:
                    run.node = node
                    return dot

                return dot_itself
            case Field(names=(name,)):
                return self._one_field(node, name)
            case Pipe():
                return self.pipe(node)
            case Identifier():
                func = self._functions[node.name]
                return compile_call(func, node, [], node, piped=False)
            case Field() | Chain() | Variable():
                return self._fields(node, [node])
            case _:
                return _literal(node, Command(node.pos, [node]))

    def _one_field(self, node: Field, name: str) -> Piped:
        """`.name`, most of what templates do: as an operand, and as a command that nothing is piped into."""
        loop = self._scope.dot_loop

        def field(run: Run, dot: Value, _final: Value | Missing = MISSING) -> Value:
            run.node = node
            if type(dot) is StrMap and name in dot:
                return dot[name]
            in_interface = loop is not None and run.vars[loop]
            return read_chain(run, dot, (name,), in_interface=in_interface, call=None)

        return field

    def _fields(self, node: Field | Chain | Variable, args: list[Operand]) -> Piped:
        """`.a.b`, `$x.a.b` or `(…).a.b`; the last name may be a method that takes the arguments."""
        arguments = [argument(arg, ANY, self.operand) for arg in args[1:]]
        match node:
            case Variable():
                return self._variable(node, args, arguments)
            case Chain():
                receiver, names, loop = self._receiver(node.node), node.names, None
            case Field():
                receiver, names, loop = (lambda _run, dot: dot), node.names, self._scope.dot_loop

        def fields(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
            run.node = node
            value = receiver(run, dot)
            in_interface = loop is not None and bool(run.vars[loop])
            call = _method_call(args, arguments, dot, final)
            return read_chain(run, value, names, in_interface=in_interface, call=call)

        return fields

    def _receiver(self, node: Operand) -> Eval:
        if isinstance(node, Nil):

            def fail(run: Run, _dot: Value) -> Value:
                raise run.error(f"indirection through explicit nil in {run.node}")

            return fail
        return self.operand(node)

    def _variable(self, node: Variable, args: list[Operand], arguments: list[Argument]) -> Piped:
        binding = self._scope.find(node.names[0])
        names = node.names[1:]

        def variable(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
            run.node = node
            if binding is None:
                raise run.error(f"undefined variable: {node.names[0]}")
            value = run.vars[binding.slot]
            if not names:
                not_a_function(run, args, final)
                return value
            in_interface = binding.loop is not None and bool(run.vars[binding.loop])
            call = _method_call(args, arguments, dot, final)
            return read_chain(run, value, names, in_interface=in_interface, call=call)

        return variable


def _displayed(run: Run, value: Value) -> str:
    try:
        return display(value)
    except FuncError as exc:
        raise run.error(str(exc)) from None


def _text(text: str) -> Exec:
    length = len(text)

    def write(run: Run, _dot: Value) -> Signal:
        run.left -= length
        if run.left < 0:
            raise run.overflow()
        run.out.append(text)
        return None

    return write


def _literal(node: Operand, command: Command) -> Piped:
    match node:
        case Bool():
            value: Value = node.value
        case String():
            value = node.text
        case Number():
            value = ideal_constant(node)
        case _:
            value = None

    def literal(run: Run, dot: Value, final: Value | Missing = MISSING) -> Value:
        run.node = node
        not_a_function(run, command.args, final)
        if isinstance(node, Dot):
            return dot
        if isinstance(node, Nil):
            raise run.error("nil is not a command")
        if value is None:
            raise run.error(f"{node} overflows int")
        return value

    return literal


def _method_call(
    args: list[Operand], arguments: list[Argument], dot: Value, final: Value | Missing
) -> CallMethod | None:
    """How the last name of a chain is called if the command has arguments; None if it has none."""
    if not arguments and final is MISSING:
        return None

    def call(run: Run, receiver: Value, method: Func) -> Value:
        problem = arity_error(method, len(arguments), 0 if final is MISSING else 1)
        if problem:
            raise run.error(problem)
        typed = [retyped(entry, kind) for entry, kind in zip(arguments, method.params, strict=False)]
        values = evaluate(run, dot, typed)
        if final is not MISSING:
            values.append(final)
        checked = [check(run, value, kind) for value, kind in zip(values, method.params, strict=True)]
        return invoke(run, method, [receiver, *checked], args[0])

    return call
