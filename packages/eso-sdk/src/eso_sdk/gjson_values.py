"""JSON as gjson reads it: lenient scanning over the bytes of a document, with values that keep their own text.

The scanner never builds a tree and never fails: it skips what is not JSON, and a value that ends too early ends there.
It knows no paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final

BLANKS: Final = bytes(range(0x21))
"""Characters that count as space around values, including every control character."""

OPENING: Final = re.compile(rb"[{\[]")
KEY_OR_END: Final = re.compile(rb'["}]')
VALUE_START: Final = re.compile(rb'["{\[ntf+\-0-9iIN]')
ELEMENT_OR_END: Final = re.compile(rb'["{\[ntf+\-0-9iIN\]]')
STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]', re.DOTALL)
_WORD = re.compile(rb"[a-z]*+")
_NUMBER_TAIL = re.compile(rb"[^\x00-\x20,\]}]*+")
_UNTIL_BRACKET = re.compile(rb'(?:[^"\[\]{}()]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_INTEGER = re.compile(rb"-?[0-9]*")
_DECIMAL_FLOAT = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_FLOAT = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NAMED_FLOAT = re.compile(rb"[+-]?inf(?:inity)?|nan", re.IGNORECASE)

_SPECIAL = re.compile(rb"[\\\x00-\x1f]")
_SIMPLE_ESCAPES = {
    0x22: b'"',
    0x2F: b"/",
    0x5C: b"\\",
    0x62: b"\b",
    0x66: b"\f",
    0x6E: b"\n",
    0x72: b"\r",
    0x74: b"\t",
}
_HEX4 = re.compile(rb"[0-9a-fA-F]{4}")
_PLAIN_QUOTES = {
    # Bytes that are not UTF-8, as they were decoded.
    **dict.fromkeys(range(0xDC80, 0xDD00), "\\ufffd"),
    **{code: f"\\u{code:04x}" for code in (*range(0x20), 0x2028, 0x2029)},
    **{ord(character): f"\\{short}" for character, short in zip('\b\f\n\r\t\\"', 'bfnrt\\"', strict=True)},
}
_QUOTES = {**_PLAIN_QUOTES, **{code: f"\\u{code:04x}" for code in b"<>&"}}


class Kind(Enum):
    """The kind of a value. JSON stands for objects and arrays."""

    NULL = "null"
    FALSE = "false"
    NUMBER = "number"
    STRING = "string"
    TRUE = "true"
    JSON = "json"


@dataclass(frozen=True, slots=True, repr=False)
class JsonValue:
    """One value and its text in the document. It may be a secret, so its repr omits the text."""

    kind: Kind
    raw: bytes

    @property
    def exists(self) -> bool:
        return self.kind is not Kind.NULL or bool(self.raw)

    @property
    def is_object(self) -> bool:
        return self.kind is Kind.JSON and self.raw.startswith(b"{")

    @property
    def is_array(self) -> bool:
        return self.kind is Kind.JSON and self.raw.startswith(b"[")

    @property
    def text(self) -> bytes:
        """Return the value as a property lookup returns it."""
        match self.kind:
            case Kind.STRING:
                whole = STRING.fullmatch(self.raw)
                return unescaped(self.raw[1:-1] if whole else self.raw[1:])
            case Kind.NUMBER:
                return self.raw if _INTEGER.fullmatch(self.raw) else rendered(self.number)
            case Kind.JSON:
                return self.raw
            case Kind.TRUE:
                return b"true"
            case Kind.FALSE:
                return b"false"
            case Kind.NULL:
                return b""

    @property
    def number(self) -> float:
        return parsed_float(self.raw)

    @property
    def truth(self) -> bool:
        match self.kind:
            case Kind.TRUE:
                return True
            case Kind.STRING:
                return self.text.lower() in {b"1", b"t", b"true"}
            case Kind.NUMBER:
                return self.number != 0
            case _:
                return False

    def __repr__(self) -> str:
        return f"<{self.kind.value} value>"


MISSING: Final = JsonValue(Kind.NULL, b"")


def parse(document: bytes) -> JsonValue:
    """Return the first value of a document; an object or array keeps everything after it, too."""
    start = len(document) - len(document.lstrip(BLANKS))
    if start == len(document) or not VALUE_START.match(document, start):
        return MISSING
    if document[start] in b"{[":
        return JsonValue(Kind.JSON, document[start:])
    end = span(document, start)
    return JsonValue(kind_at(document, start), document[start:] if end < 0 else document[start:end])


def value_at(document: bytes, start: int, end: int) -> JsonValue:
    return JsonValue(kind_at(document, start), document[start:end])


def kind_at(document: bytes, start: int) -> Kind:
    match document[start : start + 1]:
        case b"{" | b"[":
            return Kind.JSON
        case b'"':
            return Kind.STRING
        case b"t":
            return Kind.TRUE
        case b"f":
            return Kind.FALSE
        case b"n" if document[start + 1 : start + 2] in (b"", b"u"):
            return Kind.NULL
        case _:
            return Kind.NUMBER


def span(document: bytes, start: int) -> int:
    """Return where the value that starts here ends; -1 for an unterminated string."""
    match kind_at(document, start):
        case Kind.JSON:
            return balanced(document, start + 1)
        case Kind.STRING:
            found = STRING.match(document, start)
            return found.end() if found else -1
        case Kind.NUMBER:
            return _end(_NUMBER_TAIL, document, start + 1)
        case Kind.TRUE | Kind.FALSE | Kind.NULL:
            return _end(_WORD, document, start + 1)


def balanced(document: bytes, position: int) -> int:
    """Return where the bracket opened before `position` closes; the end of the document if it does not.

    Kinds of brackets are not distinguished: in a well-formed document they match.
    """
    depth = 1
    while True:
        position = _end(_UNTIL_BRACKET, document, position)
        if position >= len(document) or document[position] == 0x22:
            return len(document)
        depth += 1 if document[position] in b"{[(" else -1
        position += 1
        if depth == 0:
            return position


def nesting(document: bytes) -> int:
    """Return how many levels of objects and arrays a document has, at least 1."""
    depth = deepest = 1
    for found in _STRING_OR_BRACKET.finditer(document):
        if (character := document[found.start()]) != 0x22:
            depth += 1 if character in b"[{" else -1
            deepest = max(deepest, depth)
    return max(deepest - 1, 1)


def squashed(text: bytes) -> bytes:
    """Return the leading bracketed part or string of a text, or all of it if it is unterminated."""
    if text.startswith(b'"'):
        found = STRING.match(text)
        return found.group() if found else text
    return text[: balanced(text, 1)]


def pairs(value: JsonValue) -> Iterator[tuple[JsonValue, JsonValue]]:
    """Yield the members of an object with keys, the entries of an array without; a scalar is its own only entry."""
    if value.is_object:
        yield from _members(value.raw)
    elif value.is_array:
        for start, end in elements(value.raw, 1):
            yield MISSING, value_at(value.raw, start, end)
    elif value.exists:
        yield MISSING, value


def elements(document: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each entry of the array opened before `position`."""
    while (found := ELEMENT_OR_END.search(document, position)) and found.group() != b"]":
        position = span(document, found.start())
        if position < 0:
            return
        yield found.start(), position


def _members(document: bytes) -> Iterator[tuple[JsonValue, JsonValue]]:
    position = 1
    while (found := KEY_OR_END.search(document, position)) and found.group() != b"}":
        key = STRING.match(document, found.start())
        value = VALUE_START.search(document, key.end()) if key else None
        position = span(document, value.start()) if value else -1
        if key is None or value is None or position < 0:
            return
        yield JsonValue(Kind.STRING, key.group()), value_at(document, value.start(), position)


def _end(pattern: re.Pattern[bytes], document: bytes, position: int) -> int:
    """Return the end of a match of a pattern that always matches."""
    found = pattern.match(document, position)
    return found.end() if found else position


# --- texts and numbers -----------------------------------------------------------------------------------------------


def unescaped(text: bytes) -> bytes:
    """Return the content of a JSON string. It ends at an invalid escape or, after an escape, at a control character."""
    if b"\\" not in text:
        return text
    out = bytearray()
    position = 0
    while found := _SPECIAL.search(text, position):
        out += text[position : found.start()]
        escape = text[found.start() + 1 : found.start() + 2]
        if found.group() != b"\\" or not escape:
            return bytes(out)
        if escape == b"u":
            if found.start() + 6 > len(text):
                return bytes(out)
            character, position = _code_point(text, found.start())
            out += character
        elif (plain := _SIMPLE_ESCAPES.get(escape[0])) is not None:
            out += plain
            position = found.end() + 1
        else:
            return bytes(out)
    return bytes(out + text[position:])


def _code_point(text: bytes, position: int) -> tuple[bytes, int]:
    code, position = _hex4(text, position + 2), position + 6
    if 0xD800 <= code < 0xE000:
        low = -1
        if text[position : position + 2] == b"\\u" and position + 6 <= len(text):
            low, position = _hex4(text, position + 2), position + 6
        paired = code < 0xDC00 and 0xDC00 <= low < 0xE000
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) if paired else 0xFFFD
    return chr(code).encode(), position


def _hex4(text: bytes, position: int) -> int:
    found = _HEX4.match(text, position)
    return int(found.group(), 16) if found else 0


def quoted(text: bytes) -> bytes:
    """Encode a text as a JSON string that is also safe inside HTML; bytes that are not UTF-8 become U+FFFD."""
    return b'"' + text.decode("utf-8", "surrogateescape").translate(_QUOTES).encode() + b'"'


def plainly_quoted(text: bytes) -> bytes:
    """Encode a text as a JSON string without HTML escapes; bytes that are not UTF-8 become U+FFFD."""
    return b'"' + text.decode("utf-8", "surrogateescape").translate(_PLAIN_QUOTES).encode() + b'"'


def parsed_float(text: bytes) -> float:
    """Parse a number as Go does: 0 for an invalid one, infinity for one that is too large."""
    if _DECIMAL_FLOAT.fullmatch(text) or _NAMED_FLOAT.fullmatch(text):
        return float(text)
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text.decode())
        except OverflowError:
            return float("-inf") if text.startswith(b"-") else float("inf")
    return 0.0


def rendered(number: float) -> bytes:
    """Return the shortest decimal that parses to the same number, never with an exponent."""
    if number != number:  # noqa: PLR0124 - the one value that is not equal to itself
        return b"NaN"
    if number in (float("inf"), float("-inf")):
        return b"+Inf" if number > 0 else b"-Inf"
    text = format(Decimal(repr(number)), "f")
    return text.removesuffix(".0").encode()


# --- The modifiers of gjson (`@keys`, `@flatten`, …): each turns one document into another ---------------------------
#
# `@dig` walks paths, so it is part of the lookup in `gjson.py`.


_MAX_DEPTH = 100


def _pretty(document: bytes, argument: bytes) -> bytes:
    layout = Layout()
    options = _options(argument)
    if options:
        width = options.get(b"width")
        layout = Layout(
            width=int(min(max(width.number, -1.0), 1e6)) if width else layout.width,
            prefix=_only_blanks(options[b"prefix"]) if b"prefix" in options else layout.prefix,
            indent=_only_blanks(options[b"indent"]) if b"indent" in options else layout.indent,
            sort_keys=b"sortKeys" in options and options[b"sortKeys"].truth,
        )
    return prettified(document, layout)


def _only_blanks(value: JsonValue) -> bytes:
    # Bounded: an indent is repeated for each level of each line.
    return bytes(character for character in value.text[:16] if character in b" \t\r\n")


def _ugly(document: bytes, _argument: bytes) -> bytes:
    return compacted(document)


def _this(document: bytes, _argument: bytes) -> bytes:
    return document


def _reverse(document: bytes, _argument: bytes) -> bytes:
    value = parse(document)
    if value.is_array:
        return b"[" + b",".join(entry.raw for _, entry in reversed(list(pairs(value)))) + b"]"
    if value.is_object:
        members = reversed(list(pairs(value)))
        return b"{" + b",".join(key.raw + b":" + entry.raw for key, entry in members) + b"}"
    return document


def _flatten(document: bytes, argument: bytes) -> bytes:
    value = parse(document)
    if not value.is_array:
        return document
    deep = _options(argument).get(b"deep")
    if deep is not None and deep.truth:
        return _flattened(value, 0)
    return _array(_unwrapped(entry.raw) if entry.is_array else entry.raw for _, entry in pairs(value))


def _flattened(value: JsonValue, depth: int) -> bytes:
    """Flatten nested arrays completely."""
    if depth > _MAX_DEPTH:
        raise TooDeepError(f"the document nests deeper than {_MAX_DEPTH} levels")
    entries = (entry for _, entry in pairs(value))
    return _array(_unwrapped(_flattened(entry, depth + 1)) if entry.is_array else entry.raw for entry in entries)


def _array(texts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(filter(None, (text.strip() for text in texts))) + b"]"


def _join(document: bytes, argument: bytes) -> bytes:
    value = parse(document)
    if not value.is_array:
        return document
    objects = [entry for _, entry in pairs(value) if entry.is_object]
    preserve = _options(argument).get(b"preserve")
    if preserve is not None and preserve.truth:
        return b"{" + b",".join(_unwrapped(entry.raw) for entry in objects) + b"}"
    joined: dict[bytes, tuple[bytes, bytes]] = {}
    for entry in objects:
        for key, member in pairs(entry):
            first_spelling = joined.get(key.text, (key.raw, b""))[0]
            joined[key.text] = (first_spelling, member.raw)
    return b"{" + b",".join(key + b":" + member for key, member in joined.values()) + b"}"


def _valid(document: bytes, _argument: bytes) -> bytes:
    return document if is_valid(document) else b""


def _keys(document: bytes, _argument: bytes) -> bytes:
    value = parse(document)
    names = (key.raw if value.is_object else b"null" for key, _ in pairs(value))
    return b"[" + b",".join(names) + b"]"


def _values(document: bytes, _argument: bytes) -> bytes:
    value = parse(document)
    if value.is_array:
        return document
    return b"[" + b",".join(entry.raw for _, entry in pairs(value)) + b"]"


def _tostr(document: bytes, _argument: bytes) -> bytes:
    return quoted(document)


def _fromstr(document: bytes, _argument: bytes) -> bytes:
    return parse(document).text if is_valid(document) else b""


def _group(document: bytes, _argument: bytes) -> bytes:
    value = parse(document)
    if not value.is_object:
        return b""
    rows: list[list[bytes]] = []
    for key, column in pairs(value):
        if column.is_array:
            for position, (_, entry) in enumerate(pairs(column)):
                if position == len(rows):
                    rows.append([])
                rows[position].append(key.raw + b":" + entry.raw)
    return b"[" + b",".join(b"{" + b",".join(row) + b"}" for row in rows) + b"]"


def _options(argument: bytes) -> dict[bytes, JsonValue]:
    return {key.text: value for key, value in pairs(parse(argument))}


def _unwrapped(text: bytes) -> bytes:
    text = text.strip(BLANKS)
    return text[1:-1] if len(text) > 1 and text.startswith((b"[", b"{")) else text


TRANSFORMS: Final[Mapping[bytes, Callable[[bytes, bytes], bytes]]] = {
    b"pretty": _pretty,
    b"ugly": _ugly,
    b"reverse": _reverse,
    b"this": _this,
    b"flatten": _flatten,
    b"join": _join,
    b"valid": _valid,
    b"keys": _keys,
    b"values": _values,
    b"tostr": _tostr,
    b"fromstr": _fromstr,
    b"group": _group,
}


# --- the layouts of `@pretty` and `@ugly`, and `@valid` --------------------------------------------------------------

_STRING_OR_BLANKS = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z))|[\x00-\x20]++', re.DOTALL)
_TOKEN = re.compile(
    rb'[ \t\r\n]*+(?:("(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    rb"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
    rb"|([{}\[\],:]))"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of `@pretty`: arrays of scalars that fit the width stay on one line."""

    width: int = 80
    prefix: bytes = b""
    indent: bytes = b"  "
    sort_keys: bool = False


def compacted(document: bytes) -> bytes:
    """Remove the blanks between tokens."""
    return _STRING_OR_BLANKS.sub(lambda found: found.group(1) or b"", document)


def prettified(document: bytes, layout: Layout) -> bytes:
    """Put each member on its own line."""
    value = parse(document)
    printer = _Printer(layout)
    if value.exists:
        printer.write(value, 0)
    text = layout.prefix + bytes(printer.out)
    return text + b"\n" if text else text


class TooDeepError(ValueError):
    """A document is nested deeper than the limit."""


class _Printer:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.out = bytearray()
        # Start of the current line. As in the original, the first entry of an array counts its line break and the
        # others do not; whether an array fits depends on it.
        self._line_start = 0

    def write(self, value: JsonValue, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise TooDeepError(f"the document nests deeper than {_MAX_DEPTH} levels")
        if value.kind is not Kind.JSON:
            self.out += value.raw
            return
        if value.is_array and (line := self._one_line(value)) is not None:
            self.out += line
            return
        if value.is_array:
            self._write_array(value, depth)
        else:
            self._write_object(value, depth)

    def _one_line(self, value: JsonValue) -> bytes | None:
        room = self.layout.width - (len(self.layout.prefix) + len(self.out) - self._line_start)
        if self.layout.width <= 0 or room <= 3:
            return None
        line = _flat(value, room)
        return line if line is not None and len(line) <= room else None

    def _write_array(self, value: JsonValue, depth: int) -> None:
        self.out += b"["
        count = 0
        for _, entry in pairs(value):
            if count:
                self.out += b","
            self._new_line(depth + 1)
            self._line_start += 1 if count else 0
            self.write(entry, depth + 1)
            count += 1
        self._close(b"]", count, depth)

    def _write_object(self, value: JsonValue, depth: int) -> None:
        self.out += b"{"
        members = list(pairs(value))
        if self.layout.sort_keys:
            members.sort(key=lambda member: member[0].text)
        for position, (key, entry) in enumerate(members):
            if position:
                self.out += b","
            self._new_line(depth + 1)
            self.out += key.raw + b": "
            self.write(entry, depth + 1)
        self._close(b"}", len(members), depth)

    def _close(self, bracket: bytes, count: int, depth: int) -> None:
        if count:
            self._new_line(depth)
        self.out += bracket

    def _new_line(self, depth: int) -> None:
        self._line_start = len(self.layout.prefix) + len(self.out)
        self.out += b"\n" + self.layout.prefix + self.layout.indent * depth


def _flat(value: JsonValue, room: int, depth: int = 0) -> bytes | None:
    """Return an array on one line; None if it contains an object or does not fit."""
    if value.is_object or depth > _MAX_DEPTH:
        return None
    if value.kind is not Kind.JSON:
        return value.raw
    line = bytearray(b"[")
    for _, entry in pairs(value):
        flat = _flat(entry, room, depth + 1)
        if flat is None or len(line) > room:
            return None
        line += (b", " if len(line) > 1 else b"") + flat
    return bytes(line + b"]")


def is_valid(document: bytes) -> bool:
    """Return whether a document is strictly valid JSON: one value, with blanks around it."""
    expected, position, stack = _VALUE, 0, bytearray()
    while found := _TOKEN.match(document, position):
        position = found.end()
        token = found.group(3) or (b"s" if found.group(1) is not None else b"v")
        following = _follow(expected, token, stack)
        if following is None:
            return False
        expected = following
    return expected == _END and not stack and not document[position:].strip(b" \t\r\n")


_VALUE, _VALUE_OR_CLOSE, _KEY, _KEY_OR_CLOSE, _COLON, _END = range(6)


def _follow(expected: int, token: bytes, stack: bytearray) -> int | None:
    """Return the state that follows a token; None if the token is not allowed here."""
    in_object = stack[-1:] == b"{"
    match token:
        case b"s" if expected in (_KEY, _KEY_OR_CLOSE):
            return _COLON
        case b"s" | b"v" if expected in (_VALUE, _VALUE_OR_CLOSE):
            return _END
        case b"{" | b"[" if expected in (_VALUE, _VALUE_OR_CLOSE):
            stack += token
            return _KEY_OR_CLOSE if token == b"{" else _VALUE_OR_CLOSE
        case b":" if expected == _COLON:
            return _VALUE
        case b"," if expected == _END and stack:
            return _KEY if in_object else _VALUE
        case b"}" if in_object and expected in (_END, _KEY_OR_CLOSE):
            stack.pop()
            return _END
        case b"]" if stack and not in_object and expected in (_END, _VALUE_OR_CLOSE):
            stack.pop()
            return _END
        case _:
            return None
