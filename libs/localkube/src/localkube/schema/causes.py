"""Field errors as kube-apiserver words them.

Every rule of the schema layer reports through these functions, so that the message texts, which clients show and
scripts match, are written once. A path is a string such as `spec.data[0].secretKey`; the empty path of a whole object
reads `<nil>`, as in the real server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from localkube.errors import Cause

WHOLE_OBJECT: Final = "<nil>"


class OmittedValue:
    """Placeholder for a value too large to repeat in a message."""


OMITTED: Final = OmittedValue()


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A value that is already text."""

    text: str


def required(path: str, detail: str = "") -> Cause:
    return Cause(path, _with_detail("Required value", detail), "FieldValueRequired")


def invalid(path: str, value: object, detail: str) -> Cause:
    return Cause(path, _with_detail(_with_value("Invalid value", value), detail))


def type_invalid(path: str, value: object, detail: str) -> Cause:
    return Cause(path, _with_detail(_with_value("Invalid value", value), detail), "FieldValueTypeInvalid")


def not_supported(path: str, value: object, allowed: Sequence[str]) -> Cause:
    detail = "supported values: " + ", ".join(go_quote(text) for text in allowed) if allowed else ""
    return Cause(path, _with_detail(_with_value("Unsupported value", value), detail), "FieldValueNotSupported")


def duplicate(path: str, value: object) -> Cause:
    return Cause(path, _with_value("Duplicate value", value), "FieldValueDuplicate")


def forbidden(path: str, detail: str) -> Cause:
    return Cause(path, _with_detail("Forbidden", detail), "FieldValueForbidden")


def too_long(path: str, limit: int) -> Cause:
    unit = "byte" if limit == 1 else "bytes"
    return Cause(path, f"Too long: may not be more than {limit} {unit}", "FieldValueTooLong")


def too_many(path: str, actual: int, limit: int) -> Cause:
    unit = "item" if limit == 1 else "items"
    return Cause(path, f"Too many: {actual}: must have at most {limit} {unit}", "FieldValueTooMany")


def go_quote(text: str) -> str:
    """Quote a string with Go's escapes."""
    return '"' + "".join(_quoted_rune(rune) for rune in text) + '"'


def go_json(value: object) -> str:
    """Encode JSON as Go does: sorted keys, no spaces, HTML characters escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for plain, escaped in _HTML_ESCAPES:
        text = text.replace(plain, escaped)
    return text


def go_value(value: object) -> str:
    """Print a scalar as Go does with %v."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return _go_float(float(value))  # beyond 64 bits, Go has read a float
    return str(value)


def _with_value(text: str, value: object) -> str:
    if value is OMITTED:
        return text
    return f"{text}: {_bad_value(value)}"


def _with_detail(text: str, detail: str) -> str:
    return f"{text}: {detail}" if detail else text


def _bad_value(value: Any) -> str:
    match value:
        case Verbatim():
            return value.text
        case str():
            return go_quote(value)
        case bool() | int() | float():
            return go_value(value)
        case _:
            return go_json(value)


def _quoted_rune(rune: str) -> str:
    if rune in _ESCAPES:
        return _ESCAPES[rune]
    if rune.isprintable():
        return rune
    code = ord(rune)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _go_float(value: float) -> str:
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < 21:
        text = format(value, "f") if abs(value) >= 1e16 else repr(value)
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, power = repr(value).partition("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{int(power):+03d}" if power else repr(value)


_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_HTML_ESCAPES: Final = (
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)


# --- Findings of a structural check: a place below the checked value, and a text for the full path --------------------
# Checks run without paths, because nearly every value is valid; only a finding pays for naming its place.


Step = str | int | tuple[str]
"""Into a property, an item, or (as a 1-tuple) the key of a map."""


@dataclass(slots=True)
class Problem:
    """One violation. `steps` leads from the innermost value outwards and grows while the finding travels up."""

    make_cause: Callable[[str], Cause]
    """Makes the cause from the path of the value that is wrong."""
    steps: list[Step]

    def path(self) -> str:
        return render(reversed(self.steps))

    def cause(self) -> Cause:
        return self.make_cause(self.path())


def below(step: Step, problems: list[Problem]) -> list[Problem]:
    for problem in problems:
        problem.steps.append(step)
    return problems


def render(steps: Iterable[Step]) -> str:
    """Return the dotted path, such as `spec.data[0].labels[app]`."""
    return "".join(_rendered(steps)).removeprefix(".")


def _rendered(steps: Iterable[Step]) -> Iterator[str]:
    for step in steps:
        match step:
            case str():
                yield f".{step}"
            case int():
                yield f"[{step}]"
            case (key,):
                yield f"[{key}]"


def child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shown(path: str) -> str:
    """Return the path as shown in a cause; the whole object has no path."""
    return path or WHOLE_OBJECT
