"""Go's fmt: what `{{ x }}` prints, and print, printf, println.

The verbs, flags and error marks (`%!d(string=x)`) are Go's. Values never fail to print.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from gotmpl.floats import format_float
from gotmpl.quoting import is_print, quote, quote_ascii
from gotmpl.values import ByteSlice, GoObject, Value, go_type, to_bytes

MAX_WIDTH = 1_000_000
"""Go refuses larger widths and precisions too."""


@dataclass(slots=True)
class Spec:
    """One directive of a format."""

    verb: str = "v"
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None

    def plain(self, verb: str) -> Spec:
        return Spec(verb=verb)


_PLAIN = Spec()


def display(value: Value) -> str:
    """What an action prints: %v, and `<no value>` for nil."""
    match value:
        case str():
            return value
        case None:
            return "<no value>"
        case _:
            return format_value(value, _PLAIN)


def sprint(values: list[Value]) -> str:
    """fmt.Sprint: a space between two operands when neither is a string."""
    parts: list[str] = []
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            parts.append(" ")
        parts.append(format_value(value, _PLAIN))
    return "".join(parts)


def sprintln(values: list[Value]) -> str:
    return " ".join(format_value(value, _PLAIN) for value in values) + "\n"


def format_value(value: Value, spec: Spec) -> str:
    """One value under one directive."""
    if spec.verb == "T":
        return _padded(go_type(value), spec)
    if spec.verb == "p":
        return _bad(value, spec)
    match value:
        case None:
            return _padded("<nil>", spec) if spec.verb == "v" else f"%!{spec.verb}(<nil>)"
        case bool():
            return _padded("true" if value else "false", spec) if spec.verb in "vt" else _bad(value, spec)
        case int():
            return _integer(value, spec)
        case float():
            return _float(value, spec)
        case complex():
            return _complex(value, spec)
        case str():
            return _string(value, spec)
        case ByteSlice() if spec.verb in "sqxX":
            return _string(bytes(value).decode("utf-8", "surrogateescape"), spec)
        case list():
            return _list(value, spec)
        case dict():
            return _map(value, spec)
        case GoObject():
            return _string(value.go_string(), Spec(verb="s" if spec.verb == "v" else spec.verb, width=spec.width))
        case _:
            return f"%!{spec.verb}(unprintable)"


def spelled_out(value: Value, source: str, verb: str = "v") -> str:
    """The value for an error message: what the source does not contain literally is replaced."""
    return format_value(_spelled_out(value, source), Spec(verb=verb))


def _spelled_out(value: Value, source: str) -> Value:
    match value:
        case None | bool():
            return value
        case list():
            return type(value)(_spelled_out(item, source) for item in value)
        case dict():
            return {_spelled_out(key, source): _spelled_out(item, source) for key, item in value.items()}
        case str():
            return value if quote(value) in source or f"`{value}`" in source else "<redacted>"
        case _:
            literal = rf"(?<![\w.]){re.escape(format_value(value, _PLAIN))}(?![\w.])"
            return value if re.search(literal, source) else "<redacted>"


def _padded(text: str, spec: Spec) -> str:
    if spec.width is None or len(text) >= spec.width:
        return text
    if spec.minus:
        return text.ljust(spec.width)
    if not spec.zero:
        return text.rjust(spec.width)
    sign = text[:1] if text[:1] in "+-" and spec.verb not in "sqv" else ""
    return sign + text[len(sign) :].rjust(spec.width - len(sign), "0")


def _bad(value: Value, spec: Spec) -> str:
    return f"%!{spec.verb}({go_type(value)}={format_value(value, _PLAIN)})"


_BASES = {"b": "b", "o": "o", "O": "o", "x": "x", "X": "X", "d": "d", "v": "d"}
_PREFIXES = {"b": "0b", "o": "0", "O": "0o", "x": "0x", "X": "0X"}


def _integer(value: int, spec: Spec) -> str:
    verb = spec.verb
    if verb in _BASES:
        return _digits(value, spec)
    if verb == "c":
        return _padded(_char(value), spec)
    if verb == "q":
        mark = quote_ascii if spec.plus else quote
        return _padded(mark(_char(value), "'"), spec)
    if verb == "U":
        text = f"U+{value:04X}"
        if spec.sharp and 0 <= value <= 0x10FFFF and is_print(chr(value)):
            text += f" '{chr(value)}'"
        return _padded(text, Spec(verb=verb, minus=spec.minus, width=spec.width))
    return _bad(value, spec)


def _char(value: int) -> str:
    return chr(value) if 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000 else "\ufffd"


def _digits(value: int, spec: Spec) -> str:
    if spec.precision == 0 and value == 0:
        return " " * (spec.width or 0)
    if spec.sharp and spec.verb == "v":
        unsigned = go_type(value).startswith("uint")
        return _padded(f"{int(value):#x}" if unsigned else str(int(value)), spec)
    digits = format(abs(int(value)), _BASES[spec.verb])
    if spec.precision is not None:
        digits = digits.rjust(spec.precision, "0")
    prefix = _PREFIXES[spec.verb] if spec.verb in _PREFIXES and (spec.sharp or spec.verb == "O") else ""
    if prefix == "0" and digits.startswith("0"):
        prefix = ""
    sign = "-" if value < 0 else "+" if spec.plus else " " if spec.space else ""
    if spec.zero and spec.width is not None and not spec.minus and spec.precision is None:
        digits = digits.rjust(spec.width - len(sign), "0")
    text = sign + prefix + digits
    return _padded(text, Spec(verb=spec.verb, minus=spec.minus, width=spec.width))


def _float(value: float, spec: Spec) -> str:
    verb = spec.verb
    if verb in "xX":
        mantissa, _, exponent = value.hex().partition("p")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}p{int(exponent):+03d}"
        text = text.upper() if verb == "X" else text
    elif verb == "b":
        fraction, power = math.frexp(value)
        text = f"{int(fraction * 2**53)}p{power - 53:+d}"
    elif verb in "eEfFgGv":
        default = {"e": 6, "E": 6, "f": 6, "F": 6}.get(verb, -1)
        precision = default if spec.precision is None else spec.precision
        text = format_float(value, "g" if verb == "v" else verb, precision)
    else:
        return _bad(value, spec)
    if text[0] not in "+-" and (spec.plus or spec.space):
        text = ("+" if spec.plus else " ") + text
    return _padded(text, Spec(verb="d", minus=spec.minus, width=spec.width, zero=spec.zero and text[-1] not in "fN"))


def _complex(value: complex, spec: Spec) -> str:
    if spec.verb not in "veEfFgG":
        return _bad(value, spec)
    part = Spec(verb="g" if spec.verb == "v" else spec.verb, precision=spec.precision)
    signed = Spec(verb=part.verb, precision=spec.precision, plus=True)
    return f"({_float(value.real, part)}{_float(value.imag, signed)}i)"


def _string(value: str, spec: Spec) -> str:
    match spec.verb:
        case "v" if spec.sharp:
            return _padded(quote(value), spec)
        case "v" | "s":
            return _padded(_truncated(value, spec), spec)
        case "q":
            text = _truncated(value, spec)
            if spec.sharp and "`" not in text and all(is_print(char) or char == "\t" for char in text):
                return _padded(f"`{text}`", spec)
            return _padded((quote_ascii if spec.plus else quote)(text), spec)
        case "x" | "X":
            return _padded(_hex(value, spec), spec)
        case _:
            return _bad(value, spec)


def _truncated(value: str, spec: Spec) -> str:
    return value if spec.precision is None else value[: spec.precision]


def _hex(value: str, spec: Spec) -> str:
    raw = to_bytes(value)
    if spec.precision is not None:
        raw = raw[: spec.precision]
    if not raw:
        return ""
    prefix = "0x" if spec.sharp else ""
    text = " ".join(f"{prefix}{byte:02x}" for byte in raw) if spec.space else prefix + raw.hex()
    return text.upper() if spec.verb == "X" else text


def _element(value: Value, spec: Spec) -> str:
    if spec.plus and spec.verb == "v":
        spec = replace(spec, plus=False)
    if value is None and spec.sharp and spec.verb == "v":
        return "interface {}(nil)"
    if value is None and spec.verb != "v":
        return f"%!{spec.verb}(<nil>)"
    return format_value(value, spec)


def _list(value: list[Value], spec: Spec) -> str:
    if spec.sharp and spec.verb == "v":
        return f"{go_type(value)}{{{', '.join(_element(item, spec) for item in value)}}}"
    return "[" + " ".join(_element(item, spec) for item in value) + "]"


def _map(value: dict[str, Value], spec: Spec) -> str:
    items = sorted(value.items(), key=lambda item: to_bytes(item[0]))
    if spec.sharp and spec.verb == "v":
        entries = ", ".join(f"{format_value(key, spec)}:{_element(item, spec)}" for key, item in items)
        return f"{go_type(value)}{{{entries}}}"
    return "map[" + " ".join(f"{format_value(key, spec)}:{_element(item, spec)}" for key, item in items) + "]"


_FLAGS = {"-": "minus", "+": "plus", "#": "sharp", " ": "space", "0": "zero"}
_INDEX = re.compile(r"\[(\d+)\]")


def sprintf(template: str, values: list[Value]) -> str:
    """fmt.Sprintf."""
    if "%" not in template:
        return template + _extra(values, 0, reordered=False)
    return _Printer(template, values).text()


def _extra(values: list[Value], used: int, *, reordered: bool) -> str:
    if reordered or used >= len(values):
        return ""
    shown = ", ".join(
        "<nil>" if value is None else f"{go_type(value)}={format_value(value, _PLAIN)}" for value in values[used:]
    )
    return f"%!(EXTRA {shown})"


class _Printer:
    def __init__(self, template: str, values: list[Value]) -> None:
        self._template = template
        self._values = values
        self._at = 0
        self._used = 0
        self._reordered = False
        self._good_index = True

    def text(self) -> str:
        parts: list[str] = []
        template = self._template
        ever_reordered = False
        while self._at < len(template):
            percent = template.find("%", self._at)
            if percent < 0:
                parts.append(template[self._at :])
                break
            parts.append(template[self._at : percent])
            self._at = percent + 1
            self._reordered = False
            self._good_index = True
            parts.append(self._directive())
            ever_reordered |= self._reordered
        parts.append(_extra(self._values, self._used, reordered=ever_reordered))
        return "".join(parts)

    def _directive(self) -> str:
        spec = Spec()
        self._flags(spec)
        problems = self._width(spec) + self._precision(spec)
        self._index()
        if self._at >= len(self._template):
            return problems + "%!(NOVERB)"
        verb = self._template[self._at]
        self._at += 1
        spec.verb = verb
        if spec.minus:
            spec.zero = False
        if verb == "%":
            return problems + "%"
        if not self._good_index:
            return problems + f"%!{verb}(BADINDEX)"
        if self._used >= len(self._values):
            return problems + f"%!{verb}(MISSING)"
        value = self._values[self._used]
        self._used += 1
        return problems + format_value(value, spec)

    def _flags(self, spec: Spec) -> None:
        template = self._template
        while self._at < len(template) and template[self._at] in _FLAGS:
            setattr(spec, _FLAGS[template[self._at]], True)
            self._at += 1

    def _index(self) -> None:
        """An explicit argument index, `[2]`."""
        template = self._template
        if self._at >= len(template) or template[self._at] != "[":
            return
        self._reordered = True
        found = _INDEX.match(template, self._at)
        if found is None or not 1 <= int(found[1]) <= len(self._values):
            self._good_index = False
            end = template.find("]", self._at)
            self._at = end + 1 if end >= 0 else self._at + 1
            return
        self._used = int(found[1]) - 1
        self._at = found.end()

    def _star(self) -> int | None:
        """The next operand as a width or precision; None if it is not a usable int."""
        self._at += 1
        if self._used >= len(self._values):
            return None
        value = self._values[self._used]
        self._used += 1
        return value if type(value) is int and abs(value) <= MAX_WIDTH else None

    def _number(self) -> int | None:
        start = self._at
        while self._at < len(self._template) and self._template[self._at] in "0123456789":
            self._at += 1
        if self._at == start:
            return None
        return min(int(self._template[start : min(self._at, start + 8)]), MAX_WIDTH)

    def _width(self, spec: Spec) -> str:
        self._index()
        if self._template[self._at : self._at + 1] != "*":
            spec.width = self._number()
            return ""
        width = self._star()
        if width is None:
            return "%!(BADWIDTH)"
        spec.minus = spec.minus or width < 0
        spec.width = abs(width)
        return ""

    def _precision(self, spec: Spec) -> str:
        if self._template[self._at : self._at + 1] != ".":
            return ""
        self._at += 1
        self._index()
        if self._template[self._at : self._at + 1] != "*":
            spec.precision = self._number() or 0
            return ""
        precision = self._star()
        if precision is None or precision < 0:
            return "%!(BADPREC)"
        spec.precision = precision
        return ""
