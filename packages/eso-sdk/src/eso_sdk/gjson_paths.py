"""The grammar of gjson paths: how one step, query, multipath or modifier is cut off the front of a path.

A path is parsed while it is walked, because the meaning of its characters depends on the document: `#` is a key in an
object and an operator in an array. This module never looks at a document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from eso_sdk.gjson_values import BLANKS, balanced, squashed, unescaped

MODIFIERS: Final = frozenset(
    {
        b"pretty",
        b"ugly",
        b"reverse",
        b"this",
        b"flatten",
        b"join",
        b"valid",
        b"keys",
        b"values",
        b"tostr",
        b"fromstr",
        b"group",
        b"dig",
    }
)

_KEY_SYNTAX = re.compile(rb"[|.*?\\]")
_ARRAY_SYNTAX = re.compile(rb"[|.#]")
_MODIFIER_END = re.compile(rb"[.|:]")
_LITERAL_END = re.compile(rb"[.|]")
_QUERY_SYNTAX = re.compile(rb'[\\\[\](")!=<>%]')
_OPERATOR = re.compile(rb"!=|!%|<=|>=|==?|[<>%]|!$")
_SELECTOR_SYNTAX = re.compile(rb'[\\@:,"\[({\])}]')
_PATH_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_NOT_IN_NAMES = re.compile(rb"[\x00-\x1f\[\]{}()#|!]")


@dataclass(frozen=True, slots=True)
class Query:
    """`#(path operator value)`, which keeps the first matching entry, or all of them."""

    path: bytes
    operator: bytes
    value: bytes
    selects_all: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One component of a path and what follows it: `rest` after a dot (None at the end), `pipe` after a pipe."""

    part: bytes
    rest: bytes | None = None
    pipe: bytes | None = None


@dataclass(frozen=True, slots=True)
class KeyStep(Step):
    """A component for an object."""

    wild: bool = False


@dataclass(frozen=True, slots=True)
class ArrayStep(Step):
    """A component for an array: an index, `#` (count, or `each` entry), or a query."""

    index: int | None = None
    each: bytes | None = None
    query: Query | None = None

    @property
    def counts(self) -> bool:
        return self.part == b"#"


@dataclass(frozen=True, slots=True)
class Selector:
    """One path of a multipath, with its name in the result; an empty name is derived from the path."""

    name: bytes
    path: bytes


@lru_cache(maxsize=256)
def key_step(path: bytes) -> KeyStep:
    """Parse the first component of a path for an object."""
    part = bytearray()
    position, wild = 0, False
    while found := _KEY_SYNTAX.search(path, position):
        at = found.start()
        part += path[position:at]
        match found.group():
            case b"|":
                return KeyStep(bytes(part), pipe=path[at + 1 :], wild=wild)
            case b".":
                rest = path[at + 1 :]
                if starts_pipe(rest):
                    return KeyStep(bytes(part), pipe=rest, wild=wild)
                return KeyStep(bytes(part), rest=rest, wild=wild)
            case b"\\":
                part += path[at + 1 : at + 2]
                position = at + 2
            case wildcard:
                wild = True
                part += wildcard
                position = at + 1
    return KeyStep(bytes(part + path[position:]), wild=wild)


@lru_cache(maxsize=256)
def array_step(path: bytes) -> ArrayStep:
    """Parse the first component of a path for an array, where escapes do not exist."""
    position, hashed = 0, False
    each, query = None, None
    while found := _ARRAY_SYNTAX.search(path, position):
        at = found.start()
        part, rest = path[:at], path[at + 1 :]
        if found.group() == b"|":
            return ArrayStep(part, pipe=rest, index=_index(part), each=each, query=query)
        if found.group() == b".":
            if not hashed and starts_pipe(rest):
                return ArrayStep(part, pipe=rest, index=_index(part))
            return ArrayStep(part, rest=rest, index=_index(part), each=each, query=query)
        hashed = True
        position = at + 1
        if at == 0 and rest.startswith(b"."):
            each = rest[1:]
        elif at == 0 and rest.startswith((b"(", b"[")):
            query, position = _query(path)
            if position < 0:
                break
    return ArrayStep(path, index=_index(path), query=query)


def starts_pipe(rest: bytes) -> bool:
    """Return whether the text after a dot applies to the result so far, as after a pipe: a multipath or a modifier."""
    if rest.startswith(b"@"):
        found = _MODIFIER_END.search(rest)
        return rest[1 : found.start() if found else len(rest)] in MODIFIERS
    return rest.startswith((b"[", b"{"))


def _index(part: bytes) -> int | None:
    # No array is longer; this also keeps int() from parsing thousands of digits.
    return int(part) if part.isdigit() and len(part) < 20 else None


# --- queries ---------------------------------------------------------------------------------------------------------

_ENDLESS = Query(b"", b"", b"", selects_all=False)


def _query(path: bytes) -> tuple[Query, int]:
    """Parse the query at the front of a path and return its end; an unterminated one matches nothing and ends at -1."""
    operator_at, end, escaped = _query_layout(path)
    if end < 0:
        return _ENDLESS, -1
    selects_all = path[end + 1 : end + 2] == b"#"
    if operator_at == 0:
        return Query(path[2:end].strip(BLANKS), b"", b"", selects_all), end + 1
    comparison = path[operator_at:end].strip(BLANKS)
    found = _OPERATOR.match(comparison)
    operator = found.group() if found else b""
    value = comparison[len(operator) :].strip(BLANKS)
    if len(value) > 1 and value.startswith(b'"') and value.endswith(b'"'):
        value = unescaped(value[1:-1]) if escaped else value[1:-1]
    spelled = b"=" if operator == b"==" else operator
    return Query(path[2:operator_at].strip(BLANKS), spelled, value, selects_all), end + 1


def _query_layout(path: bytes) -> tuple[int, int, bool]:
    """Return where the operator starts (0: none), where the query closes, and whether a string has escapes."""
    depth, operator_at, escaped = 1, 0, False
    position = 2
    while found := _QUERY_SYNTAX.search(path, position):
        position = found.end()
        match found.group():
            case b"!" | b"=" | b"<" | b">" | b"%":
                if depth == 1 and operator_at == 0:
                    operator_at = found.start()
            case b"\\":
                position += 1
            case b"[" | b"(":
                depth += 1
            case b'"':
                string = _PATH_STRING.match(path, found.start())
                position = string.end() if string else len(path)
                escaped = escaped or b"\\" in path[found.start() : position]
            case _:
                depth -= 1
                if depth == 0:
                    return operator_at, found.start(), escaped
    return operator_at, -1, escaped


# --- multipaths, pipes, modifiers ------------------------------------------------------------------------------------


def selectors(path: bytes) -> tuple[tuple[Selector, ...] | None, bytes]:
    """Parse the paths of a multipath and return what follows; None and nothing if it is unterminated."""
    found: list[Selector] = []
    depth, start, colon, in_modifier = 1, 1, 0, False
    position = 1
    while syntax := _SELECTOR_SYNTAX.search(path, position):
        at, position = syntax.start(), syntax.end()
        match syntax.group():
            case b"\\":
                position += 1
            case b"@":
                in_modifier = in_modifier or path[at - 1 : at] in (b".", b"|")
            case b":":
                colon = at if not in_modifier and colon == 0 and depth == 1 else colon
            case b'"':
                string = _PATH_STRING.match(path, at)
                position = string.end() if string else len(path)
            case b"[" | b"(" | b"{":
                depth += 1
            case closing:
                depth -= closing != b","
                if depth == 0 or (closing == b"," and depth == 1):
                    found.append(_selector(path, start, colon, at))
                    start, colon, in_modifier = at + 1, 0, False
                if depth == 0:
                    return tuple(found), path[position:]
    return None, b""


def _selector(path: bytes, start: int, colon: int, end: int) -> Selector:
    return Selector(path[start:colon], path[colon + 1 : end]) if colon else Selector(b"", path[start:end])


def last_name(path: bytes) -> bytes:
    """Return the name that a multipath gives to a result: its last component, or `_` if that is not a plain name."""
    end = len(path)
    at = max(path.rfind(b"|"), path.rfind(b"."))
    while at > 0 and path[at - 1 : at] == b"\\":
        end = at
        at = max(path.rfind(b"|", 0, end), path.rfind(b".", 0, end))
    name = path[at + 1 :]
    return b"_" if _NOT_IN_NAMES.search(name) else name


def split_at_pipe(path: bytes) -> tuple[bytes, bytes | None]:
    """Split a path at its first pipe outside of queries; None if there is no pipe."""
    if b"|" not in path:
        return path, None
    if path.startswith(b"{"):
        # Like the original: the first character after the bracket decides what is skipped, so a multipath that starts
        # with a quoted name keeps its pipe.
        left = path[: 1 + len(squashed(path[1:]))]
        return (left, path[len(left) + 1 :]) if path[len(left) : len(left) + 1] == b"|" else (path, None)
    position = 0
    while position < len(path):
        match path[position : position + 1]:
            case b"\\":
                position += 1
            case b"." if path[position + 1 : position + 2] == b"#":
                position += 2
                if path[position : position + 1] in (b"(", b"["):
                    position = _query_end(path, position)
            case b"|":
                return path[:position], path[position + 1 :]
        position += 1
    return path, None


def _query_end(path: bytes, position: int) -> int:
    """Return where the bracket at `position` closes, counting only brackets of its kind."""
    opening = path[position : position + 1]
    closing = b")" if opening == b"(" else b"]"
    depth = 0
    while position < len(path):
        character = path[position : position + 1]
        if character == b"\\":
            position += 1
        elif character == b'"':
            string = _PATH_STRING.match(path, position)
            position = (string.end() if string else len(path)) - 1
        elif character in (opening, closing):
            depth += 1 if character == opening else -1
            if depth == 0:
                return position
        position += 1
    return position


def modifier(path: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return name, argument and rest of a path that starts with a modifier; None otherwise."""
    found = _MODIFIER_END.search(path, 1)
    name = path[1 : found.start() if found else len(path)]
    if name not in MODIFIERS:
        return None
    if found is None:
        return name, b"", b""
    if found.group() != b":":
        return name, b"", path[found.start() :]
    text = path[found.end() :]
    argument = squashed(text) if text.startswith((b"{", b"[", b'"')) else _plain_argument(text)
    return name, argument, text[len(argument) :]


def _plain_argument(text: bytes) -> bytes:
    position = 0
    while position < len(text) and text[position : position + 1] != b"|":
        bracketed = text[position : position + 1] in (b"{", b"[", b'"', b"(")
        position += len(squashed(text[position:])) if bracketed else 1
    return text[:position]


def literal(path: bytes) -> tuple[bytes, bytes] | None:
    """Return text and rest of a path that starts with a literal (`!true`, `!"text"`); None otherwise.

    A string or a number is read like the inside of a bracket, so it extends to the end of the path.
    """
    if path[1:2] and path[1:2] in b'{["+-0123456789':
        end = balanced(path, 2)
        return path[1:end], path[end:]
    found = _LITERAL_END.search(path, 1)
    name = path[1 : found.start() if found else len(path)]
    if name.lower() not in {b"true", b"false", b"null", b"nan", b"inf"}:
        return None
    return name, path[1 + len(name) :]
