"""Operands: literals, the dot, fields, variables, chains.

A node of a template evaluates itself: the parser's result is the program; there is no separate compilation. `eval`
takes the run and the dot. It sets `run.node` exactly where Go would, so that the place in an error message is Go's;
`str(node)` is the source in Go's normal form, which error messages quote as `at <…>`.

All node modules use plain classes: a tree is built for every text, and plain classes are faster than dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from gotmpl.errors import FuncError
from gotmpl.functions import Func
from gotmpl.run import MissingKey, Node, Run
from gotmpl.values import GoObject, StrMap, Value, go_type, has_interface_elements
from kubebase.hints import LONGEST_NAME, did_you_mean, hint, similar

# --- What the author of a template may have meant: hints that follow Go's own error messages --------------------------
# A hint names functions and keys of the data that the template was given. It never goes into the data: the keys of a
# decoded value are part of the value.


_SHOWN_KEYS: Final = 10
_OTHER_LANGUAGES: Final = {
    "base64": "b64enc",
    "base64decode": "b64dec",
    "base64encode": "b64enc",
    "b64decode": "b64dec",
    "b64encode": "b64enc",
    "base64_decode": "b64dec",
    "base64_encode": "b64enc",
    "json": "toJson",
    "jsondecode": "fromJson",
    "jsonencode": "toJson",
    "parsejson": "fromJson",
    "yamldecode": "fromYaml",
    "yamlencode": "toYaml",
    "length": "len",
    "lowercase": "lower",
    "uppercase": "upper",
    "strip": "trim",
    "sha1": "sha1sum",
    "sha256": "sha256sum",
    "sha512": "sha512sum",
    "startswith": "hasPrefix",
    "endswith": "hasSuffix",
    "urlencode": "urlquery",
    "uuid": "uuidv4",
    "random": "randAlphaNum",
}
"""Functions as other template languages call them."""


def of_function(name: str, known: Iterable[str]) -> str:
    """Return a hint about a function that does not exist, or an empty string."""
    functions = {each.lower(): each for each in known}
    translated = functions.get(_OTHER_LANGUAGES.get(name.lower(), "").lower())
    return did_you_mean([translated] if translated else similar(name, functions.values()))


def of_key(name: str, keys: Iterable[object]) -> str:
    """Return a hint about a key that the data does not have."""
    known = sorted(key for key in keys if isinstance(key, str))
    if not known:
        return "there are no keys"
    if meant := hint(name, known):
        return meant
    shown = [key if len(key) <= LONGEST_NAME else f"{key[:LONGEST_NAME]}…" for key in known[:_SHOWN_KEYS]]
    more = f" and {len(known) - _SHOWN_KEYS} more" if len(known) > _SHOWN_KEYS else ""
    return f"the keys are {', '.join(shown)}{more}"


# --- Fields and methods of values: evaluation of `.a.b` ---------------------------------------------------------------
# Only maps and the tables of Go objects are accessed, never a Python attribute.


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
    hint = of_key(name, receiver) if receiver is run.data else ""
    raise run.error(f'map has no entry for key "{name}"', hint)


def _call_bare(run: Run, receiver: Value, method: Func) -> Value:
    if method.params:
        raise run.error(f"wrong number of args for {method.name}: want {len(method.params)} got 0")
    try:
        return method.call(receiver)
    except FuncError as exc:
        raise run.error(f"error calling {method.name}: {exc}") from None


class Operand(Node, Protocol):
    """A node that has a value."""

    def eval(self, run: Run, dot: Value, /) -> Value: ...


class Bool:
    __slots__ = ("pos", "value")

    def __init__(self, pos: int, value: bool) -> None:  # noqa: FBT001 the value is a bool
        self.pos = pos
        self.value = value

    def __str__(self) -> str:
        return "true" if self.value else "false"

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class String:
    __slots__ = ("pos", "quoted", "value")

    def __init__(self, pos: int, quoted: str, value: str) -> None:
        self.pos = pos
        self.quoted = quoted
        self.value = value

    def __str__(self) -> str:
        return self.quoted

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        return self.value


class Number:
    """A constant; the forms that are set say which Go types it can become."""

    __slots__ = ("complex_value", "float_value", "int_value", "is_rune", "pos", "text", "uint_value")

    def __init__(self, pos: int, text: str) -> None:
        self.pos = pos
        self.text = text
        self.int_value: int | None = None
        self.uint_value: int | None = None
        self.float_value: float | None = None
        self.complex_value: complex | None = None
        self.is_rune = False

    def __str__(self) -> str:
        return self.text

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        value = self.ideal
        if value is None:
            raise run.error(f"{self} overflows int")
        return value

    @property
    def ideal(self) -> Value:
        """Return the value of an untyped constant: int, else float64 or complex128. None if it overflows int."""
        if self.complex_value is not None:
            return self.complex_value
        if self.is_rune:
            return self.int_value
        if self.float_value is not None and not _is_hex(self.text) and set(self.text) & set(".eEpP"):
            return self.float_value
        return self.int_value


def _is_hex(text: str) -> bool:
    return len(text) > 2 and text[0] == "0" and text[1] in "xX" and not set(text) & set("pP")


class Nil:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "nil"

    def eval(self, run: Run, _dot: Value) -> Value:
        run.node = self
        raise run.error("nil is not a command")


class Dot:
    __slots__ = ("pos",)

    def __init__(self, pos: int) -> None:
        self.pos = pos

    def __str__(self) -> str:
        return "."

    def eval(self, run: Run, dot: Value) -> Value:
        run.node = self
        return dot


class Field:
    """`.a.b`: fields of the dot. `loop` is the slot with the type of the dot for messages (see expressions.py)."""

    __slots__ = ("loop", "names", "pos")

    def __init__(self, pos: int, names: tuple[str, ...], loop: int | None) -> None:
        self.pos = pos
        self.names = names
        self.loop = loop

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)

    def eval(self, run: Run, dot: Value) -> Value:
        run.node = self
        names = self.names
        if type(dot) is StrMap and len(names) == 1 and names[0] in dot:
            return dot[names[0]]
        return self.read(run, dot, None)

    def read(self, run: Run, dot: Value, call: CallMethod | None) -> Value:
        """Return the value; the last name may be a method with arguments."""
        run.node = self
        in_interface = self.loop is not None and bool(run.vars[self.loop])
        return read_chain(run, dot, self.names, in_interface=in_interface, call=call)


class Variable:
    """`$x.a.b`; the first name includes the dollar sign. `slot` is None if the name is not bound here."""

    __slots__ = ("loop", "names", "pos", "slot")

    def __init__(self, pos: int, names: tuple[str, ...], slot: int | None, loop: int | None) -> None:
        self.pos = pos
        self.names = names
        self.slot = slot
        self.loop = loop

    def __str__(self) -> str:
        return ".".join(self.names)

    def eval(self, run: Run, dot: Value) -> Value:
        if self.slot is not None and len(self.names) == 1:
            run.node = self
            return run.vars[self.slot]
        return self.read(run, dot, None)

    def read(self, run: Run, _dot: Value, call: CallMethod | None) -> Value:
        """Return the value; the last name may be a method with arguments."""
        run.node = self
        if self.slot is None:
            raise run.error(f"undefined variable: {self.names[0]}")
        value = run.vars[self.slot]
        if len(self.names) == 1:
            return value
        in_interface = self.loop is not None and bool(run.vars[self.loop])
        return read_chain(run, value, self.names[1:], in_interface=in_interface, call=call)


class Chain:
    """`(pipeline).a.b`, or a term followed by fields."""

    __slots__ = ("names", "node", "pos")

    def __init__(self, pos: int, node: Operand, names: tuple[str, ...]) -> None:
        self.pos = pos
        self.node = node
        self.names = names

    def __str__(self) -> str:
        return str(self.node) + "".join(f".{name}" for name in self.names)

    def eval(self, run: Run, dot: Value) -> Value:
        return self.read(run, dot, None)

    def read(self, run: Run, dot: Value, call: CallMethod | None) -> Value:
        """Return the value; the last name may be a method with arguments."""
        run.node = self
        if isinstance(self.node, Nil):
            raise run.error(f"indirection through explicit nil in {self}")
        return read_chain(run, self.node.eval(run, dot), self.names, in_interface=False, call=call)


class Group:
    """`(pipeline)` as a value."""

    __slots__ = ("inner", "pos")

    def __init__(self, pos: int, inner: Operand) -> None:
        self.pos = pos
        self.inner = inner

    def __str__(self) -> str:
        return f"({self.inner})"

    def eval(self, run: Run, dot: Value) -> Value:
        return self.inner.eval(run, dot)


def as_command(node: Node) -> str:
    """Format the head of a command like Go: a group without its parentheses."""
    return str(node.inner if isinstance(node, Group) else node)


Literal = Bool | String | Number | Nil | Dot
LITERALS = (Bool, String, Number, Nil, Dot)
Path = Field | Variable | Chain
PATHS = (Field, Variable, Chain)
