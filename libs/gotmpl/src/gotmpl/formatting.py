"""Go's fmt for one value: verbs, flags, and the marks for mismatches (`%!d(string=x)`).

Formatting a value never fails. Sprintf, at the end, parses formats and passes each value on.
"""

from __future__ import annotations

import re
from typing import Any

from gotmpl.errors import FuncError, bounded, bounded_value
from gotmpl.floats import format_float
from gotmpl.quoting import is_print, quote, quote_ascii
from gotmpl.values import NIL_SLICES, ByteSlice, GoObject, Value, go_type, to_bytes


class Spec:
    """One directive. `%#v` asks for Go syntax, which is not what `#` means for other verbs."""

    verb: str
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    go_syntax: bool = False

    def __init__(self, verb: str = "v") -> None:
        self.verb = verb

    def but(self, **changes: Any) -> Spec:
        """Return the directive with some fields changed."""
        other = Spec()
        vars(other).update(vars(self) | changes)
        return other


_PLAIN = Spec()


def display(value: Value) -> str:
    """Return what an action prints: %v, and `<no value>` for nil."""
    if isinstance(value, str):
        return value
    return "<no value>" if value is None else format_value(value, _PLAIN)


def sprint(values: list[Value]) -> str:
    """Do as fmt.Sprint: put a space between two operands if neither is a string."""
    parts: list[str] = []
    for position, value in enumerate(values):
        if position and not isinstance(value, str) and not isinstance(values[position - 1], str):
            parts.append(" ")
        parts.append(format_value(value, _PLAIN))
    return "".join(parts)


def sprintln(values: list[Value]) -> str:
    return " ".join(format_value(value, _PLAIN) for value in values) + "\n"


def format_value(value: Value, spec: Spec) -> str:
    """Format one value under one directive."""
    verb = spec.verb
    if verb == "T":
        return _text(go_type(value), spec)
    if value is None:
        return padded("<nil>", spec) if verb == "v" else f"%!{verb}(<nil>)"
    if verb in {"p", "w"} and not isinstance(value, GoObject):
        return _bad(value, spec)
    match value:
        case str():
            return _string(value, spec)
        case bool():
            return padded("true" if value else "false", spec) if verb in "tv" else _bad(value, spec)
        case int():
            return _integer(value, spec)
        case float():
            return _float(value, spec) if verb in _FLOAT_VERBS else _bad(value, spec)
        case complex():
            return _complex(value, spec) if verb in _FLOAT_VERBS else _bad(value, spec)
        case list() | dict():
            bounded_value(value)
            return _container(value, spec)
        case GoObject():
            return _object(value, spec)
        case _:
            return f"%!{verb}(unprintable)"


def spelled_out(value: Value, source: str, verb: str = "v") -> str:
    """Format the value for an error message; parts that the source does not contain are replaced."""
    try:
        bounded_value(value)
    except FuncError:
        return "<redacted>"
    return format_value(_spelled_out(value, source), Spec(verb=verb))


def _spelled_out(value: Value, source: str) -> Value:
    match value:
        case None | bool():
            return value
        case list() | dict() if len(value) > 1:
            return "<redacted>"  # with a literal for each letter, the items could spell a value
        case list():
            return type(value)(_spelled_out(item, source) for item in value)
        case dict():
            return {_spelled_out(key, source): _spelled_out(item, source) for key, item in value.items()}
        case str():
            return value if quote(value) in source or f"`{value}`" in source else "<redacted>"
        case _:
            literal = rf"(?<![\w.]){re.escape(format_value(value, _PLAIN))}(?![\w.])"
            return value if re.search(literal, source) else "<redacted>"


def padded(text: str, spec: Spec) -> str:
    if spec.width is None or len(text) >= spec.width:
        return text
    if spec.minus:
        return text.ljust(spec.width)
    return text.rjust(spec.width, "0" if spec.zero else " ")


def _without_zeros(text: str, spec: Spec) -> str:
    return padded(text, spec.but(zero=False)) if spec.zero else padded(text, spec)


def _bad(value: Value, spec: Spec) -> str:
    """Return the mark for a verb that does not fit; the value in it keeps the flags."""
    return f"%!{spec.verb}({go_type(value)}={format_value(value, spec.but(verb='v'))})"


# Integers.

_BASES = {"b": "b", "o": "o", "O": "o", "x": "x", "X": "X", "d": "d", "v": "d"}
_INTEGER_VERBS = frozenset("boOxXdcqU")


def _integer(value: int, spec: Spec) -> str:
    verb = spec.verb
    if verb in _BASES:
        if spec.go_syntax and go_type(value).startswith("uint"):
            return _digits(int(value), spec.but(verb="x", sharp=True))
        return _digits(int(value), spec)
    if verb == "c":
        return padded(_char(value), spec)
    if verb == "q":
        mark = quote_ascii if spec.plus else quote
        return padded(mark(_char(value), "'"), spec)
    if verb == "U":
        return _unicode(int(value), spec)
    return _bad(value, spec)


def _char(value: int) -> str:
    return chr(value) if 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000 else "\ufffd"


def _unicode(value: int, spec: Spec) -> str:
    code = value % 2**64
    text = "U+" + f"{code:X}".rjust(max(spec.precision or 0, 4), "0")
    if spec.sharp and code <= 0x10FFFF and is_print(chr(code)):
        text += f" '{chr(code)}'"
    return _without_zeros(text, spec)


def _digits(value: int, spec: Spec) -> str:
    if spec.precision == 0 and value == 0:
        return " " * (spec.width or 0)
    sign = "-" if value < 0 else "+" if spec.plus else " " if spec.space else ""
    least = spec.precision or 0
    if spec.precision is None and spec.zero and not spec.minus and spec.width is not None:
        least = spec.width - len(sign)
    digits = format(abs(value), _BASES[spec.verb]).rjust(least, "0")
    if spec.sharp:
        digits = _prefix(spec.verb, digits) + digits
    if spec.verb == "O":
        digits = "0o" + digits
    return _without_zeros(sign + digits, spec)


def _prefix(verb: str, digits: str) -> str:
    if verb in "oO":
        return "" if digits.startswith("0") else "0"
    return {"b": "0b", "x": "0x", "X": "0X"}.get(verb, "")


# Floating-point numbers.

_FLOAT_VERBS = frozenset("vbgGxXfFeE")
_EXPONENT = {"x": "p", "X": "P"}


def _float(value: float, spec: Spec) -> str:
    verb = "g" if spec.verb == "v" else spec.verb
    precision = spec.precision if spec.precision is not None else 6 if verb in "fFeE" else -1
    number = format_float(value, verb, precision)
    if number[0] not in "+-":
        number = "+" + number
    if spec.space and number[0] == "+" and not spec.plus:
        number = " " + number[1:]
    if number[1] in "IN":
        shown = number if number[1] == "I" or spec.space or spec.plus else number[1:]
        return _without_zeros(shown if shown[0] != "+" or spec.plus or shown[1:2] == "I" else shown[1:], spec)
    if spec.sharp and verb != "b":
        number = _with_point(number, verb, precision)
    if not spec.plus and number[0] == "+":
        return padded(number[1:], spec)
    if spec.zero and not spec.minus and spec.width is not None and spec.width > len(number):
        return number[0] + number[1:].rjust(spec.width - 1, "0")
    return padded(number, spec)


def _with_point(number: str, verb: str, precision: int) -> str:
    """Keep the decimal point for `#`, and for %g the trailing zeros."""
    mark = _EXPONENT.get(verb, "e" if number.islower() or verb not in "EG" else "E")
    head, found, tail = number.partition(mark)
    if verb in "gGxX":
        digits = 6 if precision == -1 else precision
        significant = head[1:].replace(".", "").removeprefix("0x").removeprefix("0X").lstrip("0")
        missing = digits - len(significant)
        if "." not in head and head[1:] == "0":
            missing -= 1
    else:
        missing = 0
    head = head if "." in head else head + "."
    return head + "0" * max(missing, 0) + found + tail


def _complex(value: complex, spec: Spec) -> str:
    return f"({_float(value.real, spec)}{_float(value.imag, spec.but(plus=True))}i)"


# Strings.


def _string(value: str, spec: Spec) -> str:
    match spec.verb:
        case "v" if spec.go_syntax:
            return _quoted(value, spec)
        case "v" | "s":
            return _text(value, spec)
        case "q":
            return _quoted(value, spec)
        case "x" | "X":
            return _hex(to_bytes(value), spec)
        case _:
            return _bad(value, spec)


def _text(value: str, spec: Spec) -> str:
    return padded(value if spec.precision is None else value[: spec.precision], spec)


def _quoted(value: str, spec: Spec) -> str:
    text = value if spec.precision is None else value[: spec.precision]
    if spec.sharp and _can_backquote(text):
        return padded(f"`{text}`", spec)
    return padded((quote_ascii if spec.plus else quote)(text), spec)


def _can_backquote(text: str) -> bool:
    return not any(
        char in "`\x7f\ufeff" or (char < " " and char != "\t") or "\udc80" <= char <= "\udcff" for char in text
    )


def _hex(raw: bytes, spec: Spec) -> str:
    raw = raw if spec.precision is None else raw[: spec.precision]
    prefix = "0x" if spec.sharp and raw else ""
    text = " ".join(f"{prefix}{byte:02x}" for byte in raw) if spec.space else prefix + raw.hex()
    return padded(text.upper() if spec.verb == "X" else text, spec)


# Lists, maps and objects.


def _container(value: list[Value] | dict[str, Value], spec: Spec) -> str:
    return _list(value, spec) if isinstance(value, list) else _map(value, spec)


def _element(value: Value, spec: Spec) -> str:
    if value is None:
        return "interface {}(nil)" if spec.go_syntax else "<nil>"
    if isinstance(value, (list, dict)) and spec.verb not in "Tpw":
        return _container(value, spec)
    return format_value(value, spec)


def _list(value: list[Value], spec: Spec) -> str:
    if isinstance(value, ByteSlice) and spec.verb in "sqxX":
        return _string(bytes(value).decode("utf-8", "surrogateescape"), spec)
    if spec.go_syntax and spec.verb == "v":
        if isinstance(value, NIL_SLICES):
            return f"{go_type(value)}(nil)"
        return f"{go_type(value)}{{{', '.join(_element(item, spec) for item in value)}}}"
    bounded(len(value) * max(spec.width or 0, spec.precision or 0))
    return "[" + " ".join(_element(item, spec) for item in value) + "]"


def _map(value: dict[str, Value], spec: Spec) -> str:
    bounded(2 * len(value) * max(spec.width or 0, spec.precision or 0))
    items = sorted(value.items(), key=lambda item: to_bytes(item[0]))
    pairs = (f"{format_value(key, spec)}:{_element(item, spec)}" for key, item in items)
    if spec.go_syntax and spec.verb == "v":
        return f"{go_type(value)}{{{', '.join(pairs)}}}"
    return "map[" + " ".join(pairs) + "]"


def _object(value: GoObject, spec: Spec) -> str:
    number = value.go_int()
    if spec.go_syntax and spec.verb == "v":
        return value.go_syntax() if number is None else _integer(number, spec)
    if spec.verb in "vsxXq":
        return _string(value.go_string(), spec.but(verb="s" if spec.verb == "v" else spec.verb))
    if number is None:
        return f"%!{spec.verb}({value.go_type}={value.go_string()})"
    if spec.verb in _INTEGER_VERBS:
        return _integer(number, spec)
    return f"%!{spec.verb}({value.go_type}={_integer(number, spec.but(verb='v'))})"


# --- fmt.Sprintf: parses a format and passes each value to formatting.py ----------------------------------------------

MAX_WIDTH = 1_000_000
"""Go refuses larger widths and precisions too."""

_FLAGS = {"-": "minus", "+": "plus", "#": "sharp", " ": "space", "0": "zero"}
_DIGITS = re.compile(r"[0-9]+")


def sprintf(template: str, values: list[Value]) -> str:
    if "%" not in template:
        return template + _extra(values)
    return _quick(template, values) or _Printer(template, values).text()


_SIMPLE = re.compile(r"%([sdv])")


def _quick(template: str, values: list[Value]) -> str:
    """Handle most formats: %s and %v of strings, %d and %v of integers, one per value. Empty for all others."""
    pieces = _SIMPLE.split(template)
    if len(pieces) != 2 * len(values) + 1 or any("%" in piece for piece in pieces[::2]):
        return ""
    for position, value in enumerate(values):
        kind, verb = type(value), pieces[2 * position + 1]
        if kind is str and verb != "d":
            pieces[2 * position + 1] = value
        elif kind is int and verb != "s":
            pieces[2 * position + 1] = str(value)
        else:
            return ""
    return "".join(pieces)


def _extra(values: list[Value]) -> str:
    if not values:
        return ""
    shown = ", ".join(
        "<nil>" if value is None else f"{go_type(value)}={format_value(value, _PLAIN)}" for value in values
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
        self._after_index = False

    def text(self) -> str:
        parts: list[str] = []
        size = 0
        template = self._template
        while self._at < len(template):
            percent = template.find("%", self._at)
            if percent < 0:
                parts.append(template[self._at :])
                break
            parts.append(template[self._at : percent])
            self._at = percent + 1
            self._good_index = True
            piece = self._directive()
            size += len(piece)
            bounded(size)
            parts.append(piece)
        if not self._reordered:
            parts.append(_extra(self._values[self._used :]))
        return "".join(parts)

    def _char(self) -> str:
        return self._template[self._at : self._at + 1]

    def _directive(self) -> str:
        spec = Spec()
        while (flag := self._char()) in _FLAGS:
            setattr(spec, _FLAGS[flag], True)
            self._at += 1
        self._index()
        problems = self._width(spec) + self._precision(spec)
        if not self._after_index:
            self._index()
        verb = self._char()
        if not verb:
            return problems + "%!(NOVERB)"
        self._at += 1
        return problems + self._shown(spec, verb)

    def _shown(self, spec: Spec, verb: str) -> str:
        if verb == "%":
            return "%"
        if not self._good_index:
            return f"%!{verb}(BADINDEX)"
        if self._used >= len(self._values):
            return f"%!{verb}(MISSING)"
        spec.verb = verb
        if verb in "vw":
            spec.go_syntax, spec.sharp, spec.plus = spec.sharp, False, False
        value = self._values[self._used]
        self._used += 1
        return format_value(value, spec)

    def _index(self) -> None:
        """Parse an explicit argument index, `[2]`. An invalid one invalidates the directive."""
        self._after_index = False
        template = self._template
        if self._char() != "[":
            return
        self._reordered = True
        end = template.find("]", self._at)
        if len(template) - self._at < 3 or end < 0:
            self._good_index = False
            self._at += 1
            return
        body = template[self._at + 1 : end]
        self._at = end + 1
        number = int(body) if _DIGITS.fullmatch(body) and len(body) < 8 else -1
        self._after_index = 0 <= number <= MAX_WIDTH
        if 1 <= number <= len(self._values):
            self._used = number - 1
        else:
            self._good_index = False

    def _star(self) -> int | None:
        """Return the next operand as a width or precision; None if it is not a usable integer."""
        self._at += 1
        self._after_index = False
        if self._used >= len(self._values):
            return None
        value = self._values[self._used]
        self._used += 1
        usable = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_WIDTH
        return int(value) if usable else None

    def _number(self) -> int | None:
        found = _DIGITS.match(self._template, self._at)
        if found is None:
            return None
        self._at = found.end()
        if len(found.group().lstrip("0")) > 7 or int(found.group()) > MAX_WIDTH:
            self._at = len(self._template)
            return None
        return int(found.group())

    def _width(self, spec: Spec) -> str:
        if self._char() != "*":
            spec.width = self._number()
            if self._after_index and spec.width is not None:
                self._good_index = False
            return ""
        width = self._star()
        if width is None:
            return "%!(BADWIDTH)"
        if width < 0:
            spec.minus, spec.zero = True, False
        spec.width = abs(width)
        return ""

    def _precision(self, spec: Spec) -> str:
        if self._char() != "." or self._at + 1 >= len(self._template):
            return ""
        self._at += 1
        if self._after_index:
            self._good_index = False
        self._index()
        if self._char() != "*":
            number = self._number()
            spec.precision = number or 0
            return ""
        precision = self._star()
        if precision is None or precision < 0:
            return "%!(BADPREC)"
        spec.precision = precision
        return ""
