"""Property writes: set or delete one value of a JSON document by an sjson path; the rest keeps its text.

    set_text(b'{"a":{"b":1}}', "a.c", b"x") -> b'{"a":{"b":1,"c":"x"}}'

A dot goes one level down and creates objects on the way. A number creates or extends an array; `-1` appends to one. A
leading `:` makes a number a key. A backslash escapes the next character. A scalar in the way of a longer path is
replaced by an object or array. Paths with wildcards, queries, pipes or modifiers are refused, because they name no
single place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eso_sdk.gjson import MAX_DEPTH, MAX_DOCUMENT_BYTES, MAX_PATH_CHARS, MAX_WORK, weight
from eso_sdk.gjson_values import (
    BLANKS,
    KEY_OR_END,
    STRING,
    VALUE_START,
    elements,
    plainly_quoted,
    span,
    unescaped,
)

_SYNTAX = re.compile(rb"[.\\|#@*?]")
_MAX_INDEX_DIGITS: Final = 7
_APPEND: Final = b"-1"
_NULL: Final = b"null,"


class SjsonError(ValueError):
    """The path cannot be written to, or a limit is exceeded. The message names no value."""


def set_text(document: bytes, path: str, text: bytes) -> bytes:
    """Return the document with a JSON string at the path; bytes that are not UTF-8 become U+FFFD."""
    steps = _steps(document, path)
    return _bounded(_with(document, steps, plainly_quoted(text)))


def delete(document: bytes, path: str) -> bytes:
    """Return the document without the value at the path; unchanged if there is none."""
    return _without(document, _steps(document, path))


@dataclass(frozen=True, slots=True)
class _Step:
    name: bytes
    is_key: bool
    """Has a leading colon: never an index."""

    @property
    def index(self) -> int | None:
        """Return the index in an array; None for a key. A step without a name counts as index 0."""
        return int(self.name or b"0") if not self.is_key and (self.name.isdigit() or not self.name) else None

    @property
    def appends(self) -> bool:
        return self.name == _APPEND and not self.is_key

    @property
    def opens_array(self) -> bool:
        return self.index is not None


# --- paths -----------------------------------------------------------------------------------------------------------


def _steps(document: bytes, path: str) -> tuple[_Step, ...]:
    if not path:
        raise SjsonError("the property is empty")
    if len(path) > MAX_PATH_CHARS:
        raise SjsonError(f"the property has more than {MAX_PATH_CHARS} characters")
    if len(document) > MAX_DOCUMENT_BYTES:
        raise SjsonError(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")
    if weight(document) > MAX_WORK:
        raise SjsonError("the document has too many entries")
    steps: list[_Step] = []
    rest: bytes | None = path.encode("utf-8", "surrogateescape")
    while rest is not None:
        step, rest = _step(rest)
        if step.name.isdigit() and len(step.name) > _MAX_INDEX_DIGITS and not step.is_key:
            raise SjsonError(f"the property has an index of more than {_MAX_INDEX_DIGITS} digits")
        steps.append(step)
    if len(steps) > MAX_DEPTH:
        raise SjsonError(f"the property goes deeper than {MAX_DEPTH} levels")
    return tuple(steps)


def _step(path: bytes) -> tuple[_Step, bytes | None]:
    """Parse the first component of a path; return it and the rest after its dot."""
    is_key = path.startswith(b":")
    position = int(is_key)
    name = bytearray()
    while found := _SYNTAX.search(path, position):
        name += path[position : found.start()]
        if found.group() == b".":
            return _Step(bytes(name), is_key), path[found.end() :]
        if found.group() != b"\\":
            raise SjsonError(
                f"the property uses {found.group().decode()}, which names no single place to write to; "
                f"put a backslash in front when it is part of a name"
            )
        name += path[found.end() : found.end() + 1]
        position = found.end() + 1
    return _Step(bytes(name + path[position:]), is_key), None


# --- writing ---------------------------------------------------------------------------------------------------------


def _with(document: bytes, steps: Sequence[_Step], text: bytes) -> bytes:
    if found := _find(document, steps[0]):
        start, end = found
        inner = _with(document[start:end], steps[1:], text) if len(steps) > 1 else text
        return document[:start] + inner + document[end:]
    start = _opening(document)
    if start < 0:
        return _built(steps, text)
    if document[start : start + 1] == b"{":
        return _with_member(document[start:], steps, text)
    return _with_entry(document[start:], steps, text)


def _built(steps: Sequence[_Step], text: bytes) -> bytes:
    """Build a container with only the path of these steps in it."""
    if steps[0].opens_array:
        # Built from the inside out and limited at every level: each of many indices may ask for megabytes of nulls.
        inner = _inner(steps, text)
        return _bounded(b"[" + _nulls(steps[0].index or 0) + inner + b"]")
    return b"{" + _member(steps, text) + b"}"


def _with_member(document: bytes, steps: Sequence[_Step], text: bytes) -> bytes:
    end = document.rfind(b"}")
    body = document[:end] if end > 0 else document
    return body + (b"," if body[1:].strip(BLANKS) else b"") + _member(steps, text) + b"}"


def _with_entry(document: bytes, steps: Sequence[_Step], text: bytes) -> bytes:
    step = steps[0]
    if step.appends:
        body = document.rstrip(BLANKS).removesuffix(b"]")
        return body + (b"," if body[1:].strip(BLANKS) else b"") + _inner(steps, text) + b"]"
    if step.index is None:
        raise SjsonError("the property names a key where the document has an array")
    entries = [document[start:end] + b"," for start, end in elements(document, 1)]
    return b"[" + b"".join(entries) + _nulls(step.index - len(entries)) + _inner(steps, text) + b"]"


def _member(steps: Sequence[_Step], text: bytes) -> bytes:
    return plainly_quoted(steps[0].name) + b":" + _inner(steps, text)


def _nulls(count: int) -> bytes:
    """Return the missing entries before a new one."""
    if count * len(_NULL) > MAX_DOCUMENT_BYTES:
        raise SjsonError(f"the result has more than {MAX_DOCUMENT_BYTES} bytes")
    return _NULL * count


def _inner(steps: Sequence[_Step], text: bytes) -> bytes:
    """Return the content of the first step: the text, or new containers down to it."""
    if len(steps) == 1:
        return text
    if steps[1].appends:
        return b"[" + _inner(steps[1:], text) + b"]"
    return _built(steps[1:], text)


def _bounded(document: bytes) -> bytes:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise SjsonError(f"the result has more than {MAX_DOCUMENT_BYTES} bytes")
    return document


# --- removing --------------------------------------------------------------------------------------------------------


def _without(document: bytes, steps: Sequence[_Step]) -> bytes:
    found = _last_entry(document) if steps[0].appends else None
    found = found or _find(document, steps[0])
    if found is None:
        return document
    start, end = found
    if len(steps) > 1:
        return document[:start] + _without(document[start:end], steps[1:]) + document[end:]
    before, is_first = _cut_before(document, start)
    rest = document[end:]
    following = rest.lstrip(BLANKS)
    return before + (following[1:] if is_first and following.startswith(b",") else rest)


def _cut_before(document: bytes, start: int) -> tuple[bytes, bool]:
    """Return the text before a removed value, and whether it was the first of its container."""
    if document[_opening(document)] == ord("["):
        front = document[:start].rstrip(BLANKS)
        return (front[:-1], False) if front.endswith(b",") else (document[:start], True)
    front = document[: _key_start(document, start)].rstrip(BLANKS)
    return (front[:-1], False) if front.endswith(b",") else (front, True)


def _key_start(document: bytes, value_start: int) -> int:
    position = _opening(document) + 1
    while (found := KEY_OR_END.search(document, position)) and (key := STRING.match(document, found.start())):
        value = VALUE_START.search(document, key.end())
        if value is None or value.start() >= value_start:
            return found.start()
        position = span(document, value.start())
    return position


# --- places ----------------------------------------------------------------------------------------------------------


def _find(document: bytes, step: _Step) -> tuple[int, int] | None:
    """Return start and end of the value that one step leads to."""
    opening = _opening(document)
    if opening < 0:
        return None
    if document[opening : opening + 1] == b"{":
        return _find_member(document, opening + 1, step.name)
    if step.name.isdigit():
        for index, place in enumerate(elements(document, opening + 1)):
            if index == int(step.name):
                return place
    return None


def _find_member(document: bytes, position: int, name: bytes) -> tuple[int, int] | None:
    while (found := KEY_OR_END.search(document, position)) and (key := STRING.match(document, found.start())):
        value = VALUE_START.search(document, key.end())
        position = span(document, value.start()) if value else -1
        if value is None or position < 0:
            return None
        if unescaped(key.group()[1:-1]) == name:
            return value.start(), position
    return None


def _last_entry(document: bytes) -> tuple[int, int] | None:
    opening = _opening(document)
    if opening < 0 or document[opening : opening + 1] != b"[":
        return None
    return max(elements(document, opening + 1), default=None)


def _opening(document: bytes) -> int:
    """Return where the document's object or array opens; -1 if it is neither."""
    start = len(document) - len(document.lstrip(BLANKS))
    return start if document[start : start + 1] in (b"{", b"[") else -1
