"""fmt.Sprintf: parses a format and passes each value to formatting.py."""

from __future__ import annotations

import re

from gotmpl.bounds import bounded
from gotmpl.formatting import Spec, format_value
from gotmpl.values import Value, go_type

MAX_WIDTH = 1_000_000
"""Go refuses larger widths and precisions too."""

_FLAGS = {"-": "minus", "+": "plus", "#": "sharp", " ": "space", "0": "zero"}
_DIGITS = re.compile(r"[0-9]+")
_PLAIN = Spec()


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
