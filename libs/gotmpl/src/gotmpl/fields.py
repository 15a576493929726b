"""Fields and methods of values: evaluation of `.a.b`.

Only maps and the tables of Go objects are accessed, never a Python attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gotmpl import hints
from gotmpl.errors import FuncError
from gotmpl.run import MissingKey, Run
from gotmpl.signatures import Func
from gotmpl.values import GoObject, Value, go_type, has_interface_elements

CallMethod = Callable[[Run, Value, Func], Value]
"""Calls a method of the last receiver with the arguments of the command."""


def read_chain(
    run: Run, receiver: Value, names: Sequence[str], *, in_interface: bool, call: CallMethod | None
) -> Value:
    """Evaluate every step of a field chain; only the last one may take arguments."""
    for name in names[:-1]:
        value = read_field(run, receiver, name, in_interface=in_interface, call=None)
        if value is None and isinstance(receiver, dict) and name not in receiver:
            return None  # a field of nothing is nothing, if that is not an error
        in_interface = has_interface_elements(receiver)
        receiver = value
    return read_field(run, receiver, names[-1], in_interface=in_interface, call=call)


def read_field(run: Run, receiver: Value, name: str, *, in_interface: bool, call: CallMethod | None) -> Value:
    """Evaluate one step of a field chain. `call` is set if the name may be a method with arguments."""
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
            if call is not None:
                call(run, receiver, Func(name, _call_bare))
            raise run.error(receiver.refusals[name])
        if name in receiver.unexported:
            raise run.error(f"{name} is an unexported field of struct type {receiver.go_type}")
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
    if name in receiver:
        return receiver[name]
    if run.missing is MissingKey.NOTHING:
        return None
    hint = hints.of_key(name, receiver) if receiver is run.data else ""
    raise run.error(f'map has no entry for key "{name}"', hint)


def _call_bare(run: Run, receiver: Value, method: Func) -> Value:
    if method.params:
        raise run.error(f"wrong number of args for {method.name}: want {len(method.params)} got 0")
    try:
        return method.call(receiver)
    except FuncError as exc:
        raise run.error(f"error calling {method.name}: {exc}") from None
