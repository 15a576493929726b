"""The modifiers of gjson (`@keys`, `@flatten`, …): each turns one document into another.

`@dig` walks paths, so it is part of the lookup in `gjson.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from eso_sdk.gjson_values import BLANKS, JsonValue, Kind, pairs, parse, quoted

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
