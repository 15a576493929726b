"""The modifiers of gjson (`@keys`, `@flatten`, …): each turns one document into another.

`@dig` walks paths, so it is part of the lookup in `gjson.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from eso_sdk.gjson_pretty import Layout, TooDeepError, compacted, is_valid, prettified
from eso_sdk.gjson_values import BLANKS, Value, pairs, parse, quoted

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


def _only_blanks(value: Value) -> bytes:
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


def _flattened(value: Value, depth: int) -> bytes:
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


def _options(argument: bytes) -> dict[bytes, Value]:
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
