"""Values to YAML, formatted as go-yaml v2 does: natural key order, compact lists, lines folded at 80 columns."""

from __future__ import annotations

import re
from functools import cmp_to_key
from typing import Any

from gotmpl.errors import bounded_value
from gotmpl.floats import format_float, format_json
from gotmpl.functions import ANY, STRING, Functions
from gotmpl.jsontext import MAX_DEPTH, kind_of
from gotmpl.values import ByteSlice, GoObject, NilSlice, NilStrSlice, Value, to_bytes
from kubebase.yamlscalars import reads_as_text

WIDTH = 80
MAX_SIMPLE_KEY = 128


class YamlWriteError(ValueError):
    """The value has no YAML form."""


def write(value: Value) -> str:
    bounded_value(value)
    return _node(value, 0, -1, 0) + "\n"


def _node(value: Value, column: int, indent: int, depth: int) -> str:
    """Write a node that starts at `column`; further lines are indented for a parent at `indent`."""
    if depth > MAX_DEPTH:
        raise YamlWriteError("nested too deeply")
    value = _jsonable(value)
    if isinstance(value, dict) and value:
        return _mapping(value, max(column, 0), depth)
    if isinstance(value, list) and value:
        return _sequence(value, column, depth)
    return _flow(value, column, indent + 2 if indent >= 0 else 2)


def _jsonable(value: Value) -> Any:
    """Return the value as it would be after a round trip through JSON."""
    match value:
        case NilSlice() | NilStrSlice():
            return None
        case ByteSlice():
            import base64

            return base64.b64encode(bytes(value)).decode()
        case GoObject():
            return value.json_value()
        case complex():
            raise YamlWriteError("json: unsupported type")
        case _:
            return value


def _mapping(mapping: dict[str, Value], indent: int, depth: int) -> str:
    pad = "\n" + " " * indent
    if any("\x85" in key for key in mapping):
        raise YamlWriteError("a key with a line break")
    return pad.join(_entry(_text(key), mapping[key], indent, depth) for key in natural_order(list(mapping)))


def _entry(key: str, value: Value, indent: int, depth: int) -> str:
    pad = "\n" + " " * indent
    if len(to_bytes(key)) > MAX_SIMPLE_KEY or _BREAK.search(key):
        return f"? {_scalar(key, indent + 2, indent + 2)}{pad}: {_node(value, indent + 2, indent, depth + 1)}"
    shown = _scalar(key, 0, 0, folds=False)
    value = _jsonable(value)
    if isinstance(value, dict) and value:
        return f"{shown}:{pad}  {_node(value, indent + 2, indent, depth + 1)}"
    if isinstance(value, list) and value:
        return f"{shown}:{pad}{_node(value, indent, indent, depth + 1)}"
    return f"{shown}: {_node(value, indent + len(shown) + 2, indent, depth + 1)}"


def _sequence(items: list[Value], indent: int, depth: int) -> str:
    pad = "\n" + " " * indent
    return pad.join("- " + _node(item, indent + 2, indent, depth + 1) for item in items)


def _flow(value: Any, column: int, indent: int) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return _number(value)
        case str():
            return _scalar(_text(value), column, indent)
        case list():
            return "[]"
        case _:
            return "{}"


def _number(value: float) -> str:
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 NaN is what differs from itself
        raise YamlWriteError("json: unsupported value")
    text = format_json(value)
    if not set(text) & set(".e") and -(2**63) <= int(text) < 2**64:
        return str(int(text))
    return format_float(value, "g")


_UNREADABLE = re.compile("[\x7f-\x84\x86-\x9f\ufffe\uffff]")
_FOLDED = re.compile(" *\x85[ \x85]*")
_INVALID = re.compile("[\udc80-\udcff]")


def _text(text: str) -> str:
    """Return a string as after JSON and YAML: some control characters fail, and NEL becomes a line break."""
    if text.isascii() and "\x7f" not in text:
        return text
    if _UNREADABLE.search(text):
        raise YamlWriteError("control characters are not allowed")
    text = _INVALID.sub("\ufffd", text)
    return _FOLDED.sub(lambda found: "\n" * (found.group().count("\x85") - 1) or " ", text)


_BREAK = re.compile("[\r\n\x85\u2028\u2029]")
_SPECIAL = re.compile("[^\n -~\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]")
_SPACE_BREAK = re.compile(" [\n\x85\u2028\u2029]")
_BREAK_SPACE = re.compile("[\n\x85\u2028\u2029] ")
_INDICATOR = re.compile(r"[#,\[\]{}&*!|>'\"%@`]|[?:-](?:[ \t]|\Z)|---|\.\.\.|.*?(?::(?:[ \t]|\Z)|[ \t\n]#)", re.DOTALL)


def _scalar(text: str, column: int, indent: int, *, folds: bool = True) -> str:
    special = _SPECIAL.search(text) or _SPACE_BREAK.search(text)
    if "\n" in text and not (special or text[-1] == " "):
        return _literal(text, indent)
    if special or "\n" in text or not reads_as_text(text):
        return _double_quoted(text, column, indent, folds=folds)
    breaks = _BREAK.search(text)
    if not breaks and text[0] != " " and text[-1] != " " and not _INDICATOR.match(text):
        return _lines(text, column, indent) if folds else text
    if _BREAK_SPACE.search(text):
        return _double_quoted(text, column, indent, folds=folds)
    return _single_quoted(text, column, indent, folds=folds)


def _literal(text: str, indent: int) -> str:
    hint = "2" if _BREAK.match(text) or text[0] == " " else ""
    chomp = "-" if not _BREAK.match(text[-1]) else "+" if len(text) == 1 or _BREAK.match(text[-2]) else ""
    pad = " " * indent
    lines = re.split("([\n\x85\u2028\u2029])", text)
    body = "".join(piece if number % 2 else pad + piece if piece else "" for number, piece in enumerate(lines))
    # The final line break of the scalar is the one that the layout puts before the next entry.
    return f"|{hint}{chomp}\n{body.removesuffix(chr(10))}"


def _lines(text: str, column: int, indent: int) -> str:
    """Fold plain text at the first single space after the width."""
    if column + len(text) <= WIDTH:
        return text
    pad = "\n" + " " * indent
    out: list[str] = []
    before = ""
    for at, char in enumerate(text):
        following = text[at + 1 : at + 2]
        if char == " " != before and column > WIDTH and following != " ":
            out.append(pad)
            column = indent
        else:
            out.append(char)
            column += 1
        before = char
    return "".join(out)


def _single_quoted(text: str, column: int, indent: int, *, folds: bool) -> str:
    pad = " " * indent
    column += 1
    out: list[str] = []
    before, broke = "", False
    for at, char in enumerate(text):
        if char in "\x85\u2028\u2029":
            out.append(char)
            column, broke = 0, True
        else:
            if broke and char != " ":
                out.append(pad)
                column, broke = indent, False
            inner = 0 < at < len(text) - 1
            if folds and char == " " != before and column > WIDTH and inner and text[at + 1] != " ":
                out.append("\n" + pad)
                column = indent
            else:
                out.append("''" if char == "'" else char)
                column += 2 if char == "'" else 1
        before = char
    return "'" + "".join(out) + "'"


_ESCAPES = {
    "\0": "0",
    "\a": "a",
    "\b": "b",
    "\t": "t",
    "\n": "n",
    "\v": "v",
    "\f": "f",
    "\r": "r",
    "\x1b": "e",
    '"': '"',
    "\\": "\\",
    "\x85": "N",
    "\u2028": "L",
    "\u2029": "P",
}


def _double_quoted(text: str, column: int, indent: int, *, folds: bool) -> str:
    escapes_all = text.startswith("\ufeff")  # a mistake of the original, present in its users' files
    pad = "\n" + " " * indent
    column += 1
    out: list[str] = []
    before = ""
    for at, char in enumerate(text):
        if escapes_all or char in _ESCAPES or _SPECIAL.match(char) or _BREAK.match(char):
            piece = "\\" + (_ESCAPES.get(char) or ("_" if char == "\xa0" else _hex(char)))
            before = ""
        elif char == " " != before and folds and column > WIDTH and 0 < at < len(text) - 1:
            out.append(pad)
            column = indent
            piece = "\\" if text[at + 1] == " " else ""
            before = " "
        else:
            piece = before = char
        out.append(piece)
        column += len(piece)
    return '"' + "".join(out) + '"'


def _hex(char: str) -> str:
    code = ord(char)
    return f"x{code:02X}" if code <= 0xFF else f"u{code:04X}" if code <= 0xFFFF else f"U{code:08X}"


def natural_order(keys: list[str]) -> list[str]:
    """Sort keys naturally: letters by code, numbers by value, other characters before letters."""
    return sorted(keys, key=cmp_to_key(_compare))


def _compare(left: str, right: str) -> int:
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a == b:
            continue
        if a.isalpha() and b.isalpha():
            return -1 if a < b else 1
        if a.isalpha() or b.isalpha():
            return -1 if b.isalpha() else 1
        mine, theirs = _digits(left, at), _digits(right, at)
        same_number = "0" in {a, b} and _inside_number(left, at)
        first, second = int(f"{int(same_number)}{mine}"), int(f"{int(same_number)}{theirs}")
        if first != second:
            return -1 if first < second else 1
        if len(mine) != len(theirs):
            return -1 if len(mine) < len(theirs) else 1
        return -1 if a < b else 1
    return len(left) - len(right)


def _digits(text: str, at: int) -> str:
    end = at
    while end < len(text) and text[end].isdecimal():
        end += 1
    return text[at:end]


def _inside_number(text: str, at: int) -> bool:
    """Return whether the digits before this position contain one that is not zero."""
    while at and text[at - 1].isdecimal():
        at -= 1
        if text[at] != "0":
            return True
    return False


FUNCTIONS = Functions()


@FUNCTIONS.add("toYaml", params=(ANY,), cost=5)
def to_yaml(value: Value) -> str:
    try:
        return write(value).removesuffix("\n")
    except YamlWriteError:
        return ""


@FUNCTIONS.add("fromYaml", params=(STRING,), cost=5)
def from_yaml(text: str) -> dict[str, Value]:
    from eso_render.functions.yamlreader import YamlReadError, read

    try:
        value = read(text)
    except YamlReadError as exc:
        return {"Error": str(exc)}
    if value is None or isinstance(value, dict):
        return value or {}
    problem = f"json: cannot unmarshal {kind_of(value)} into Go value of type map[string]interface {{}}"
    return {"Error": f"error unmarshaling JSON: while decoding JSON: {problem}"}
