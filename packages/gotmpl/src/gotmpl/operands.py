"""Operands -> closures: constants, fields, variables, chains.

A closure takes the run and the dot and returns a value. It sets `run.node` exactly where Go would, so that the place in
an error message is Go's.
"""

from __future__ import annotations

from collections.abc import Callable

from gotmpl.errors import FuncError
from gotmpl.nodes import Number
from gotmpl.run import Run
from gotmpl.signatures import Func, GoType
from gotmpl.values import GoObject, Value, go_type, has_interface_elements

Eval = Callable[[Run, Value], Value]


class Missing:
    """No value came through the pipeline."""


MISSING = Missing()

CallMethod = Callable[[Run, Value, Func], Value]
"""Calls a method of the last receiver with the arguments of the command."""


def ideal_constant(number: Number) -> Value:
    """The value of an untyped constant: int if it is one, else float64 or complex128. None if it overflows int."""
    if number.complex_value is not None:
        return number.complex_value
    if number.is_rune:
        return number.int_value
    if number.float_value is not None and not _is_hex(number.text) and set(number.text) & set(".eEpP"):
        return number.float_value
    return number.int_value if number.int_value is not None else None


def _is_hex(text: str) -> bool:
    return len(text) > 2 and text[0] == "0" and text[1] in "xX" and not set(text) & set("pP")


def typed_constant(number: Number, kind: GoType) -> Value:
    """The constant as a value of a parameter type, or None if it does not fit."""
    match kind.constant:
        case "integer":
            value: Value = number.int_value
        case "unsigned":
            value = number.uint_value
        case "float":
            value = number.float_value
        case _:
            return None
    return kind.box(value) if kind.box is not None and value is not None else value


def read_field(run: Run, receiver: Value, name: str, *, in_interface: bool, call: CallMethod | None) -> Value:
    """One step of a field chain. `call` is given where the name may be a method that takes arguments."""
    if receiver is None:
        if in_interface:
            raise run.error(f"nil pointer evaluating interface {{}}.{name}")
        raise run.error(f'nil data; no entry for key "{name}"')
    if isinstance(receiver, dict):
        return _read_entry(run, receiver, name, call)
    if isinstance(receiver, GoObject):
        method = receiver.methods.get(name)
        if method is not None:
            return (call or _call_bare)(run, receiver, method)
        if name in receiver.refusals:
            raise run.error(receiver.refusals[name])
        read = receiver.fields.get(name)
        if read is not None:
            if call is not None and call is not _call_bare:
                raise run.error(f"{name} has arguments but cannot be invoked as function")
            return read(receiver)
    shown = "interface {}" if in_interface else go_type(receiver)
    raise run.error(f"can't evaluate field {name} in type {shown}")


def _read_entry(run: Run, receiver: dict[str, Value], name: str, call: CallMethod | None) -> Value:
    if call is not None:
        raise run.error(f"{name} is not a method but has arguments")
    try:
        return receiver[name]
    except KeyError:
        raise run.error(f'map has no entry for key "{name}"') from None


def _call_bare(run: Run, receiver: Value, method: Func) -> Value:
    if method.params:
        raise run.error(f"wrong number of args for {method.name}: want {len(method.params)} got 0")
    try:
        return method.call(receiver)
    except FuncError as exc:
        raise run.error(f"error calling {method.name}: {exc}") from None


def read_chain(
    run: Run, receiver: Value, names: tuple[str, ...], *, in_interface: bool, call: CallMethod | None
) -> Value:
    """Every step of a field chain; only the last one may take arguments."""
    for name in names[:-1]:
        value = read_field(run, receiver, name, in_interface=in_interface, call=None)
        in_interface = has_interface_elements(receiver)
        receiver = value
    return read_field(run, receiver, names[-1], in_interface=in_interface, call=call)
