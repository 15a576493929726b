"""JSON as encoding/json reads and writes it.

Reading gives float64 for every number and keeps the last of duplicate keys; writing sorts keys and escapes <, > and &
unless told otherwise. Error texts are Go's, with positions, but with at most one character of content.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from json.encoder import encode_basestring
from typing import NoReturn

from gotmpl.errors import Quoted, bounded_value
from gotmpl.floats import format_json
from gotmpl.quoting import quote
from gotmpl.values import NIL_SLICES, ByteSlice, GoObject, StrMap, Value, go_type, sorted_keys

MAX_QUICK = 2**20
MAX_DEPTH = 200
"""Deeper documents are refused: Go allows 10,000 levels, Python's stack does not."""


def kind_of(value: Value) -> str:
    """Return encoding/json's name of a JSON value's type."""
    return {str: "string", bool: "bool", float: "number", list: "array", dict: "object"}.get(type(value), "null")


class JsonError(ValueError):
    """A JSON error in Go's words. `value` is the result for callers that ignore errors.

    Characters of the input are in `parts` only as Quoted: a document may be a secret.
    """

    value: Value = None

    def __init__(self, *parts: str | Quoted) -> None:
        super().__init__("".join(part if isinstance(part, str) else "<redacted>" for part in parts))
        self.parts = parts


_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_HAS_HTML = re.compile("[<>&]")
_SEPARATORS = {0x2028: "\\u2028", 0x2029: "\\u2029"}
_INVALID = re.compile("[\udc80-\udcff]")
_UNFINISHED = re.compile(r"\\(?:u[0-9a-fA-F]*)?")


def encode(value: Value, *, escape_html: bool = True) -> str:
    bounded_value(value)
    return _Writer(escape_html=escape_html).text(value, 0)


def encode_indented(value: Value) -> str:
    bounded_value(value)
    return _Writer(escape_html=True, indent="  ").text(value, 0)


class _Writer:
    def __init__(self, *, escape_html: bool, indent: str = "") -> None:
        self._escape_html = escape_html
        self._indent = indent
        self._colon = ": " if indent else ":"

    def text(self, value: Value, depth: int) -> str:
        kind = type(value)
        if kind is str:
            return self._string(value)
        if kind is dict or kind is StrMap:
            return self._map(value, depth)
        if kind is float:
            return _number(value)
        if kind is list:
            return self._list(value, depth)
        return self._rare(value, depth)

    def _rare(self, value: Value, depth: int) -> str:
        match value:
            case None:
                return "null"
            case bool():
                return "true" if value else "false"
            case int():
                return str(int(value))
            case ByteSlice():
                return self._string(base64.b64encode(bytes(value)).decode())
            case list():
                return "null" if isinstance(value, NIL_SLICES) else self._list(value, depth)
            case GoObject():
                return self.text(value.json_value(), depth + 1)
            case _:
                raise JsonError(f"json: unsupported type: {go_type(value)}")

    def _string(self, value: str) -> str:
        text = encode_basestring(value)
        if self._escape_html and _HAS_HTML.search(text):
            text = text.translate(_HTML)
        return text if text.isascii() else _INVALID.sub("\ufffd", text).translate(_SEPARATORS)

    def _list(self, value: list[Value], depth: int) -> str:
        if depth > MAX_DEPTH:
            raise JsonError("json: nested too deeply")
        return self._wrapped("[", [self.text(item, depth + 1) for item in value], "]", depth)

    def _map(self, value: dict[str, Value], depth: int) -> str:
        if depth > MAX_DEPTH:
            raise JsonError("json: nested too deeply")
        colon, text, string = self._colon, self.text, self._string
        entries = [string(key) + colon + text(value[key], depth + 1) for key in sorted_keys(value)]
        return self._wrapped("{", entries, "}", depth)

    def _wrapped(self, start: str, parts: list[str], end: str, depth: int) -> str:
        if not self._indent or not parts:
            return start + ",".join(parts) + end
        pad = "\n" + self._indent * (depth + 1)
        return start + pad + ("," + pad).join(parts) + "\n" + self._indent * depth + end


def _number(value: float) -> str:
    if value.is_integer() and 0 < abs(value) < 1e15:
        return str(int(value))
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise JsonError(f"json: unsupported value: {shown}")
    return format_json(value)


_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LITERALS = {"true": True, "false": False, "null": None}


class _UnusualError(ValueError):
    """The fast reader cannot handle this input."""


def _unusual(text: str) -> NoReturn:
    raise _UnusualError(text)


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _unusual("")


_QUICK = json.JSONDecoder(parse_float=_float, parse_int=_float, parse_constant=_unusual)


def decode(text: str) -> Value:
    """Decode the document to Go values; raise JsonError in Go's words if it is not JSON.

    The library decodes well-formed documents; all others go to our own reader, which knows Go's messages.
    """
    if not text.isascii():
        text = _INVALID.sub("\ufffd", text) if '"' in text else text
    if len(text) < MAX_QUICK and "\\u" not in text:
        try:
            return _QUICK.decode(text)
        except (ValueError, RecursionError):
            pass
    reader = _JsonReader(text)
    value = reader.value(0)
    reader.end()
    if reader.overflows:
        error = JsonError("json: cannot unmarshal number into Go value of type float64")
        error.value = value
        raise error
    return value


def decode_first(text: str) -> Value:
    """Decode the first document of a text, whatever follows it."""
    return _JsonReader(text).value(0)


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.overflows = False
        """A number is too large for a float64; reported only if the rest is JSON."""

    def _fail(self, context: str, at: int) -> NoReturn:
        if at >= len(self._text):
            raise JsonError("unexpected end of JSON input")
        raise JsonError("invalid character ", self._quoted(_shown(self._text[at])), f" {context}")

    def _quoted(self, shown: str) -> Quoted:
        """Quote a character; it is shown only if the template itself contains the document."""
        return Quoted(shown, origin=self._text)

    def _skip(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def end(self) -> None:
        if self._skip():
            self._fail("after top-level value", self._at)

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise JsonError("exceeded max depth")
        char = self._skip()
        if not char or char not in '{["-0123456789tfn':
            self._fail("looking for beginning of value", self._at)
        match char:
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
            case '"':
                return self._string()
            case "t" | "f" | "n":
                return self._literal()
            case _:
                return self._number()

    def _object(self, depth: int) -> dict[str, Value]:
        out: dict[str, Value] = {}
        self._at += 1
        if self._skip() == "}":
            self._at += 1
            return out
        while True:
            if self._skip() != '"':
                self._fail("looking for beginning of object key string", self._at)
            key = self._string()
            if self._skip() != ":":
                self._fail("after object key", self._at)
            self._at += 1
            out[key] = self.value(depth + 1)
            if not self._continues("}", "after object key:value pair"):
                return out

    def _array(self, depth: int) -> list[Value]:
        out: list[Value] = []
        self._at += 1
        if self._skip() == "]":
            self._at += 1
            return out
        while True:
            out.append(self.value(depth + 1))
            if not self._continues("]", "after array element"):
                return out

    def _continues(self, closing: str, context: str) -> bool:
        char = self._skip()
        if char not in {",", closing}:
            self._fail(context, self._at)
        self._at += 1
        return char == ","

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._bad_string()
        self._at = found.end()
        if "\\" not in found.group():
            return found.group()[1:-1]
        text: str = json.loads(found.group())
        return re.sub("[\ud800-\udbff\udc00-\udfff]", "\ufffd", text) if not text.isascii() else text

    def _bad_string(self) -> NoReturn:
        at = self._at + 1
        while at < len(self._text):
            char = self._text[at]
            if char < " ":
                self._fail("in string", at)
            if char == "\\":
                escape = _ESCAPE.match(self._text, at)
                if escape is None:
                    self._bad_escape(at)
                at = escape.end()
            else:
                at += 1
        self._fail("", at)

    def _bad_escape(self, at: int) -> NoReturn:
        size = 6 if self._text[at + 1 : at + 2] == "u" else 2
        sequence = self._text[at : at + size]
        if len(sequence) < size and _UNFINISHED.fullmatch(sequence):
            raise JsonError("unexpected end of JSON input")
        shown = f"`{sequence}`" if sequence.isascii() and sequence.isprintable() else quote(sequence)
        raise JsonError("invalid escape sequence ", self._quoted(shown), " in string")

    def _number(self) -> float:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            self._fail("in numeric literal", self._at + 1)
        text = found.group()
        self._at = found.end()
        following = self._text[self._at : self._at + 1]
        if following == "." and not set(text) & set(".eE"):
            self._fail("in numeric literal", self._at + 1)
        if following and following in "eE" and not set(text) & set("eE"):
            signed = self._text[self._at + 1 : self._at + 2] in {"+", "-"}
            self._fail("in numeric literal", self._at + 1 + signed)
        value = float(text)
        if not math.isinf(value):
            return value
        self.overflows = True
        return math.copysign(sys.float_info.max, value)

    def _literal(self) -> Value:
        literal = {"t": "true", "f": "false", "n": "null"}[self._text[self._at]]
        for offset, char in enumerate(literal):
            if self._text[self._at + offset : self._at + offset + 1] != char:
                self._fail(f"in literal {literal} (expecting {quote(char, chr(39))})", self._at + offset)
        self._at += len(literal)
        return _LITERALS[literal]


def _shown(char: str) -> str:
    return {"'": "'\\''", '"': "'\"'"}.get(char) or "'" + quote(char)[1:-1] + "'"
