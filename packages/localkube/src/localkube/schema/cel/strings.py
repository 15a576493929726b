"""Functions of strings: search, case, split and join, regular expressions, format."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from localkube.schema import regex
from localkube.schema.causes import go_quote
from localkube.schema.cel.conversions import to_string
from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.function import Library, function, method, plain
from localkube.schema.cel.types import BOOL, DYN, INT, STRING, list_of
from localkube.schema.cel.values import Duration, TypeValue, no_overload

_TEXT_LIMIT: Final = 3 * 1024 * 1024


def pattern(text: str) -> Any:
    """A compiled regular expression."""
    try:
        return regex.compiled(text)
    except regex.PatternError as failure:
        raise EvaluationError(str(failure)) from None


def _text_only(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """The receiver of a string method may be dyn, so it is checked when it runs."""

    def checked(value: Any, *rest: Any) -> Any:
        if not isinstance(value, str):
            raise no_overload(name, value)
        return run(value, *rest)

    return checked


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    if not 0 <= stop <= len(text):
        raise EvaluationError(f"index out of range: {stop}")
    if start > stop:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


def _index_of(holder: Any, part: Any, start: int = 0) -> int:
    if isinstance(holder, list):
        return next((index for index, item in enumerate(holder) if item == part), -1)
    if not isinstance(holder, str):
        raise no_overload("indexOf", holder)
    if not 0 <= start <= len(holder):
        raise EvaluationError(f"index out of range: {start}")
    return holder.find(part, start)


def _last_index_of(holder: Any, part: Any, end: int | None = None) -> int:
    if isinstance(holder, list):
        return next((index for index in range(len(holder) - 1, -1, -1) if holder[index] == part), -1)
    if not isinstance(holder, str):
        raise no_overload("lastIndexOf", holder)
    return holder.rfind(part) if end is None else holder.rfind(part, 0, end + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    size = len(text) + text.count(old) * max(0, len(new) - len(old))
    if size > _TEXT_LIMIT:
        raise EvaluationError("result of replace is too long")
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        runes = list(text)
        return runes if count < 0 or count >= len(runes) else [*runes[: count - 1], text[count - 1 :]]
    return text.split(separator, count - 1 if count > 0 else -1)


def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise no_overload("join", items)
    return separator.join(items)


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(rune) if rune.isascii() else rune for rune in text)


def _find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    found = [matched.group(0) for matched in pattern(expression).finditer(text)]
    return found if limit < 0 else found[:limit]


def _find(text: str, expression: str) -> str:
    matched = pattern(expression).search(text)
    return str(matched.group(0)) if matched else ""


def _format(template: str, values: list[Any]) -> str:
    """%s %d %f %e %b %x %X %o and %%, with a precision such as %.2f."""
    out: list[str] = []
    rest = iter(values)
    index = 0
    while index < len(template):
        rune = template[index]
        index += 1
        if rune != "%":
            out.append(rune)
            continue
        precision = ""
        if template[index : index + 1] == ".":
            index += 1
            while template[index : index + 1].isdigit():
                precision += template[index]
                index += 1
        verb = template[index : index + 1]
        index += 1
        if verb == "%":
            out.append("%")
            continue
        try:
            value = next(rest)
        except StopIteration:
            raise EvaluationError(f"index {len(values)} out of range") from None
        out.append(_formatted(verb, value, int(precision or 6)))
    return "".join(out)


def _formatted(verb: str, value: Any, precision: int) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match verb:
        case "s":
            return _shown(value)
        case "d" if whole:
            return str(value)
        case "f" if isinstance(value, int | float):
            return format(float(value), f".{min(precision, 100)}f")
        case "e" if isinstance(value, int | float):
            return _scientific(float(value))
        case "b" if isinstance(value, int):
            return format(int(value), "b")
        case "o" if whole:
            return format(value, "o")
        case "x" | "X":
            return _hexadecimal(verb, value)
        case _:
            clause = f"could not parse formatting clause: unrecognized formatting clause {go_quote(verb)}"
            raise EvaluationError(clause)


def _hexadecimal(verb: str, value: Any) -> str:
    match value:
        case bool():
            raise no_overload("format", value)
        case int():
            return format(value, verb)
        case str():
            text = value.encode().hex()
        case bytes():
            text = value.hex()
        case _:
            raise no_overload("format", value)
    return text.upper() if verb == "X" else text


def _shown(value: Any) -> str:
    """A value for %s; inside lists and maps, texts are quoted."""
    match value:
        case None:
            return "null"
        case list() | dict():
            return _nested(value)
        case TypeValue():
            return value.name
        case _:
            return to_string(value)


def _nested(value: Any) -> str:
    match value:
        case str():
            return go_quote(value)
        case bytes():
            return "b" + go_quote(value.decode(errors="replace"))
        case float():
            return format(value, "f")
        case list():
            return "[" + ", ".join(_nested(item) for item in value) + "]"
        case dict():
            return "{" + ", ".join(f"{_nested(key)}:{_nested(item)}" for key, item in sorted(value.items())) + "}"
        case datetime():
            return f'timestamp("{to_string(value)}")'
        case Duration():
            return f'duration("{to_string(value)}")'
        case _:
            return _shown(value)


def _scientific(value: float) -> str:
    mantissa, _, exponent = format(value, ".6e").partition("e")
    return f"{mantissa}\u00d710{exponent.removeprefix('+').translate(_RAISED)}"


_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _method(name: str, run: Callable[..., Any], *arguments: Any, gives: Any) -> Any:
    return function(_text_only(name, run), method(STRING, *arguments, gives=gives))


FUNCTIONS: Final[Library] = {
    "contains": _method("contains", lambda text, part: part in text, STRING, gives=BOOL),
    "startsWith": _method("startsWith", lambda text, part: text.startswith(part), STRING, gives=BOOL),
    "endsWith": _method("endsWith", lambda text, part: text.endswith(part), STRING, gives=BOOL),
    "matches": function(
        _text_only("matches", lambda text, expression: pattern(expression).search(text) is not None),
        method(STRING, STRING, gives=BOOL),
        plain(STRING, STRING, gives=BOOL),
    ),
    "find": _method("find", _find, STRING, gives=STRING),
    "findAll": function(
        _text_only("findAll", _find_all),
        method(STRING, STRING, gives=list_of(STRING)),
        method(STRING, STRING, INT, gives=list_of(STRING)),
    ),
    "charAt": _method("charAt", _char_at, INT, gives=STRING),
    "substring": function(
        _text_only("substring", _substring), method(STRING, INT, gives=STRING), method(STRING, INT, INT, gives=STRING)
    ),
    "indexOf": function(
        _index_of,
        method(STRING, STRING, gives=INT),
        method(STRING, STRING, INT, gives=INT),
        method(list_of(DYN), DYN, gives=INT),
    ),
    "lastIndexOf": function(
        _last_index_of,
        method(STRING, STRING, gives=INT),
        method(STRING, STRING, INT, gives=INT),
        method(list_of(DYN), DYN, gives=INT),
    ),
    "replace": function(
        _text_only("replace", _replace),
        method(STRING, STRING, STRING, gives=STRING),
        method(STRING, STRING, STRING, INT, gives=STRING),
    ),
    "split": function(
        _text_only("split", _split),
        method(STRING, STRING, gives=list_of(STRING)),
        method(STRING, STRING, INT, gives=list_of(STRING)),
    ),
    "join": function(_join, method(list_of(STRING), gives=STRING), method(list_of(STRING), STRING, gives=STRING)),
    "lowerAscii": _method("lowerAscii", _ascii(str.lower), gives=STRING),
    "upperAscii": _method("upperAscii", _ascii(str.upper), gives=STRING),
    "trim": _method("trim", str.strip, gives=STRING),
    "format": _method("format", _format, list_of(DYN), gives=STRING),
    "strings.quote": function(go_quote, plain(STRING, gives=STRING)),
}
