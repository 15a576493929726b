"""Property lookup: one value of a JSON document by a gjson path.

    get(document, 'users.#(name=="jane").roles.0') -> Result(exists, text, raw)

The path language and its results are those of gjson 1.18, so a `property` written for External Secrets finds the same
value here. The lookup is lenient: a document that is not JSON has no properties. The only error is an exceeded limit,
`GjsonError`, which names the limit and never a value.

    gjson.py            the walk: objects, arrays, queries, multipaths, pipes
    gjson_paths.py      the grammar of paths
    gjson_values.py     scanning of documents, texts of values
    gjson_queries.py    the comparisons of queries   gjson_matching.py  wildcards
    gjson_modifiers.py  @keys, @flatten, …   gjson_pretty.py  @pretty, @ugly, @valid
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

from eso_sdk.gjson_paths import (
    ArrayStep,
    KeyStep,
    Query,
    Selector,
    array_step,
    key_step,
    last_name,
    literal,
    modifier,
    selectors,
    split_at_pipe,
)
from eso_sdk.gjson_values import (
    ELEMENT_OR_END,
    KEY_OR_END,
    MISSING,
    OPENING,
    STRING,
    TRANSFORMS,
    VALUE_START,
    JsonValue,
    Kind,
    TooDeepError,
    elements,
    is_valid,
    nesting,
    pairs,
    parse,
    parsed_float,
    quoted,
    span,
    unescaped,
    value_at,
)

MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
MAX_PATH_CHARS: Final = 4096
MAX_DEPTH: Final = 100
MAX_WORK: Final = 8 * MAX_DOCUMENT_BYTES
"""Bytes that one lookup may read or create: a path can name the same document many times."""
_COST_OF_A_STEP: Final = 64
_COST_OF_A_TOKEN: Final = 160
_COST_OF_AN_ESCAPE: Final = 32
"""Cost of a comma, bracket or escape in bytes of text: too much work is refused before it blocks the process."""

_READ_EACH_LEVEL: Final = frozenset({b"pretty", b"flatten"})

_OPENING_OBJECT: Final = 0x7B


class GjsonError(ValueError):
    """A document or path exceeds a limit."""


class TooMuchWorkError(GjsonError):
    """The lookup needs more work than it may do. `spent` is the work that it did before."""

    def __init__(self, spent: int) -> None:
        super().__init__("the path asks for too much work on this document; ask for less at once")
        self.spent = spent


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of a path. `text` is the value as a property, `raw` its JSON; a null exists and has no text."""

    exists: bool
    text: bytes
    raw: bytes
    work: int = field(default=0, compare=False)
    """The work that the lookup took, in the unit of `MAX_WORK`."""

    def __repr__(self) -> str:
        return f"Result(exists={self.exists})"


def get(document: bytes, path: str, *, work: int = MAX_WORK) -> Result:
    """Look up one path with at most that much work. Raises only `GjsonError`."""
    if len(document) > MAX_DOCUMENT_BYTES:
        raise GjsonError(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")
    if len(path) > MAX_PATH_CHARS:
        raise GjsonError(f"the path has more than {MAX_PATH_CHARS} characters")
    lookup = _Lookup(work)
    try:
        value = lookup.select(document, path.encode("utf-8", "surrogateescape"), 0)
    except TooDeepError as exc:
        raise GjsonError(str(exc)) from exc
    return Result(value.exists, value.text, value.raw, lookup.spent)


def weight(document: bytes) -> int:
    """Return the cost of one pass over a document."""
    tokens = sum(map(document.count, b",[]{}"))
    return len(document) + _COST_OF_A_TOKEN * tokens + _COST_OF_AN_ESCAPE * document.count(b"\\")


class _Lookup:
    """One call of `get`: its budget, and the walk through pipes, modifiers and multipaths."""

    def __init__(self, work: int) -> None:
        self._work = work
        self.spent = 0

    def charge(self, amount: int) -> None:
        """Account for the next step before it begins; raise if it does not fit."""
        if self.spent + amount > self._work:
            raise TooMuchWorkError(self.spent)
        self.spent += amount

    def select(self, document: bytes, path: bytes, depth: int) -> JsonValue:
        """Return the value of a path in a document."""
        _check_depth(depth)
        self.charge(weight(document) + _COST_OF_A_STEP)
        if len(path) > 1:
            if path.startswith((b"@", b"!")) and (made := self._made(document, path, depth)):
                text, rest = made
                return self.select(text, rest[1:], depth + 1) if rest.startswith((b"|", b".")) else parse(text)
            if path.startswith((b"[", b"{")):
                chosen, rest = selectors(path)
                if chosen is not None and (not rest or rest.startswith((b"|", b"."))):
                    text = self._multipath(document, path[:1], chosen, depth)
                    return self.select(text, rest[1:], depth + 1) if rest else JsonValue(Kind.JSON, text)
                path = rest
        return self._walk(document, path, depth)

    def _walk(self, document: bytes, path: bytes, depth: int) -> JsonValue:
        search = _Search(self, document)
        if path.startswith(b".."):
            search.in_array(0, path[2:], depth + 1)
        elif opening := OPENING.search(document):
            search.inside(opening.start(), path, depth)
        return search.value if search.pipe is None else self.select(search.value.raw, search.pipe, depth + 1)

    def _made(self, document: bytes, path: bytes, depth: int) -> tuple[bytes, bytes] | None:
        """Return the result of a modifier or literal and the rest of the path; None if the path starts with neither."""
        if path.startswith(b"!"):
            return literal(path)
        found = modifier(path)
        if found is None:
            return None
        name, argument, rest = found
        # Some modifiers read the inside of a container once for each level around it.
        self.charge(weight(document) * (nesting(document) if name in _READ_EACH_LEVEL else 1))
        text = self._dig(document, argument, depth) if name == b"dig" else TRANSFORMS[name](document, argument)
        self.charge(len(text))
        _check_size(text)
        return text, _without_repetitions(path, rest) if text == document else rest

    def _multipath(self, document: bytes, kind: bytes, chosen: tuple[Selector, ...], depth: int) -> bytes:
        texts: list[bytes] = []
        for selector in chosen:
            value = self.select(document, selector.path, depth + 1)
            if value.exists:
                texts.append((_name(selector) + b":" if kind == b"{" else b"") + (value.raw or value.text or b"null"))
                self.charge(len(texts[-1]))
        text = kind + b",".join(texts) + (b"}" if kind == b"{" else b"]")
        _check_size(text)
        return text

    def _dig(self, document: bytes, path: bytes, depth: int) -> bytes:
        """Return everything that a path finds in a document or in any value inside it."""
        found: list[bytes] = []
        self._dig_into(parse(document), path, found, depth + 1)
        return b"[" + b",".join(found) + b"]"

    def _dig_into(self, value: JsonValue, path: bytes, found: list[bytes], depth: int) -> None:
        here = self.select(value.raw, path, depth)
        if here.exists:
            found.append(here.raw)
        if value.kind is Kind.JSON:
            for _, inner in pairs(value):
                self._dig_into(inner, path, found, depth + 1)


class _Search:
    """The walk through one document along dots. A key may match several members; after a dead end the next is tried."""

    def __init__(self, lookup: _Lookup, document: bytes) -> None:
        self.value = MISSING
        # Set at the last step before a pipe, whether it matches or not: the pipe is applied to whatever was found.
        self.pipe: bytes | None = None
        self._lookup = lookup
        self._document = document

    def inside(self, opening: int, path: bytes, depth: int) -> tuple[int, bool]:
        """Walk into the object or array that opens here. Return where it ends, and whether the search is over."""
        _check_depth(depth)
        if self._document[opening] == _OPENING_OBJECT:
            return self._in_object(opening + 1, path, depth + 1)
        return self.in_array(opening + 1, path, depth + 1)

    def _in_object(self, position: int, path: bytes, depth: int) -> tuple[int, bool]:
        document = self._document
        step = key_step(path)
        if step.pipe is not None:
            self.pipe = step.pipe
        while (found := KEY_OR_END.search(document, position)) and found.group() == b'"':
            key = STRING.match(document, found.start())
            value = VALUE_START.search(document, key.end()) if key else None
            if key is None or value is None:
                return len(document), False
            fits = self._fits(step, key.group())
            if fits and step.rest is not None and value.group() in (b"{", b"["):
                position, over = self.inside(value.start(), step.rest, depth)
            else:
                position = span(document, value.start())
                over = fits and step.rest is None and position >= 0
                if over:
                    self.value = value_at(document, value.start(), position)
            if over or position < 0:
                return position, over
        return (found.end() if found else len(document)), False

    def _fits(self, step: KeyStep, key: bytes) -> bool:
        name = unescaped(key[1:-1])
        if not step.wild:
            return name == step.part
        self._lookup.charge(effort(name, step.part))
        return matches(name, step.part)

    def in_array(self, position: int, path: bytes, depth: int) -> tuple[int, bool]:
        """Walk into the array opened before `position`; the end of the document closes it, too."""
        step = array_step(path)
        if step.pipe is not None:
            self.pipe = step.pipe
        if step.query is not None:
            return self._query(position, step, step.query, depth)
        if step.counts:
            return self._count(position, step, depth)
        return self._at_index(position, step, depth)

    def _at_index(self, position: int, step: ArrayStep, depth: int) -> tuple[int, bool]:
        document = self._document
        index = 0
        while (found := ELEMENT_OR_END.search(document, position)) and found.group() != b"]":
            fits = index == step.index
            index += 1
            if fits and step.rest is not None and found.group() in (b"{", b"["):
                position, over = self.inside(found.start(), step.rest, depth)
            else:
                position = span(document, found.start())
                over = fits and step.rest is None and position >= 0
                if over:
                    self.value = value_at(document, found.start(), position)
            if over or position < 0:
                return position, over
        return (found.end() if found else len(document)), False

    def _count(self, position: int, step: ArrayStep, depth: int) -> tuple[int, bool]:
        """Evaluate `#`, the number of entries, or `#.path`, the path's result in each entry."""
        spans = list(elements(self._document, position))
        end = _array_end(self._document, spans[-1][1] if spans else position)
        if step.each is None:
            self.value = JsonValue(Kind.NUMBER, str(len(spans)).encode())
            return end, True
        path, pipe = split_at_pipe(step.each)
        if pipe is not None:
            self.pipe = pipe
        texts = []
        for start, stop in spans:
            value = self._lookup.select(self._document[start:stop], path, depth)
            if value.exists:
                texts.append(value.raw or value.text)
        self.value = JsonValue(Kind.JSON, b"[" + b",".join(texts) + b"]")
        return end, True

    def _query(self, position: int, step: ArrayStep, query: Query, depth: int) -> tuple[int, bool]:
        texts: list[bytes] = []
        end = position
        for start, end in elements(self._document, position):
            entry = value_at(self._document, start, end)
            if not self._matches_query(entry, query, depth):
                continue
            chosen = self._after_query(entry, step, depth)
            if not query.selects_all:
                self.value = chosen
                return end, True
            if text := chosen.raw or chosen.text:
                texts.append(text)
        if query.selects_all and not self.value.exists:
            self.value = JsonValue(Kind.JSON, b"[" + b",".join(texts) + b"]")
        return _array_end(self._document, end), False

    def _matches_query(self, entry: JsonValue, query: Query, depth: int) -> bool:
        if entry.kind is Kind.JSON:
            entry = self._lookup.select(entry.raw, query.path, depth)
        elif query.path:
            return False
        if query.operator in (b"%", b"!%"):
            self._lookup.charge(effort(entry.raw, query.value))
        return matches_query(entry, query)

    def _after_query(self, entry: JsonValue, step: ArrayStep, depth: int) -> JsonValue:
        if step.rest is None:
            return entry
        path, pipe = split_at_pipe(step.rest)
        if pipe is not None:
            self.pipe = pipe
        return self._lookup.select(entry.raw, path, depth)


def _without_repetitions(path: bytes, rest: bytes) -> bytes:
    """Return the rest of a path without repetitions of its first modifier, which left the document as it was."""
    repeated = path[: len(path) - len(rest)]
    # An argument without brackets extends to the next pipe, so that a dot would belong to it.
    ends = (b"", b"|") if b":" in repeated else (b"", b"|", b".")
    while rest[:1] in (b"|", b".") and rest.startswith(repeated, 1):
        after = rest[1 + len(repeated) :]
        if after[:1] not in ends:
            break
        rest = after
    return rest


def _name(selector: Selector) -> bytes:
    if selector.name.startswith(b'"') and is_valid(selector.name):
        return selector.name
    return quoted(selector.name or last_name(selector.path))


def _array_end(document: bytes, position: int) -> int:
    """Return where the array closes whose last entry ends here."""
    found = ELEMENT_OR_END.search(document, position)
    return found.end() if found and found.group() == b"]" else len(document)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise GjsonError(f"the path goes deeper than {MAX_DEPTH} levels")


def _check_size(text: bytes) -> None:
    if len(text) > MAX_DOCUMENT_BYTES:
        raise GjsonError(f"the path makes a document of more than {MAX_DOCUMENT_BYTES} bytes")


_ANY: Final = None
"""A `?` among the characters of a part."""

Part = tuple[str | None, ...]


# --- wildcards -------------------------------------------------------------------------------------------------------

# `*` is any number of characters, `?` one, and a backslash precedes a character that means itself. Each part between
# two stars is taken where it first fits, so nothing is ever tried twice.


def matches(text: bytes, pattern: bytes) -> bool:
    """Return whether the whole text matches a pattern."""
    parts = _parts(pattern)
    if parts is None:
        return False
    readable = text.decode("utf-8", "surrogateescape")
    if len(parts) == 1:
        return len(readable) == len(parts[0]) and _fits(readable, 0, parts[0])
    first, *middle, last = parts
    end = len(readable) - len(last)
    position = len(first)
    if position > end or not _fits(readable, 0, first) or not _fits(readable, end, last):
        return False
    for part in middle:
        position = _first_fit(readable, position, end, part)
        if position < 0:
            return False
    return True


def effort(text: bytes, pattern: bytes) -> int:
    """Return how many characters a match may have to examine; parts with `?` have no fast search."""
    return len(text) * (1 + len(pattern) // 16) if b"?" in pattern else len(text) + len(pattern)


def _fits(text: str, position: int, part: Part) -> bool:
    return all(expected is _ANY or text[position + offset] == expected for offset, expected in enumerate(part))


def _first_fit(text: str, position: int, end: int, part: Part) -> int:
    """Return where the first match of a part ends; -1 if there is none before `end`."""
    found = _compiled(part).search(text, position, end)
    return found.end() if found else -1


@lru_cache(maxsize=128)
def _compiled(part: Part) -> re.Pattern[str]:
    return re.compile("".join("." if expected is _ANY else re.escape(expected) for expected in part), re.DOTALL)


@lru_cache(maxsize=128)
def _parts(pattern: bytes) -> tuple[Part, ...] | None:
    """Split a pattern at its stars; None for a pattern that ends inside an escape, which matches nothing."""
    parts: list[Part] = []
    part: list[str | None] = []
    characters = iter(pattern.decode("utf-8", "surrogateescape"))
    for character in characters:
        if character == "*":
            parts.append(tuple(part))
            part = []
        elif character == "?":
            part.append(_ANY)
        elif character == "\\":
            literal = next(characters, None)
            if literal is None:
                return None
            part.append(literal)
        else:
            part.append(character)
    return (*parts, tuple(part))


T = TypeVar("T", bytes, float)


# --- comparisons of queries: `#(age>40)`, `#(name%"J*")`, `#(active==~true)` -----------------------------------------


def matches_query(value: JsonValue, query: Query) -> bool:
    """Return whether a value satisfies the comparison of a query; without a comparison it only has to exist."""
    expected = query.value
    if expected.startswith(b"~"):
        value, expected = _as_truth(value, expected[1:])
    if not value.exists or not query.operator:
        return value.exists
    match value.kind:
        case Kind.STRING if query.operator in (b"%", b"!%"):
            return matches(value.text, expected) == (query.operator == b"%")
        case Kind.STRING:
            return _compare(value.text, query.operator, expected)
        case Kind.NUMBER:
            return _compare(value.number, query.operator, parsed_float(expected))
        case Kind.TRUE:
            return _compare_truth(query.operator, expected, same=b"true", beyond=b">", other=b"false")
        case Kind.FALSE:
            return _compare_truth(query.operator, expected, same=b"false", beyond=b"<", other=b"true")
        case Kind.NULL | Kind.JSON:
            return False


def _as_truth(value: JsonValue, expected: bytes) -> tuple[JsonValue, bytes]:
    """Evaluate `~true` and its variants: turn the value into a boolean to compare with true."""
    match expected:
        case b"*":
            holds = value.exists
        case b"null":
            holds = value.kind is Kind.NULL
        case b"true":
            holds = value.truth
        case b"false":
            holds = _is_falsy(value)
        case _:
            return MISSING, b""
    return JsonValue(Kind.TRUE if holds else Kind.FALSE, b""), b"true"


def _is_falsy(value: JsonValue) -> bool:
    match value.kind:
        case Kind.NULL | Kind.FALSE:
            return True
        case Kind.STRING:
            return value.text.lower() in {b"0", b"f", b"false"}
        case Kind.NUMBER:
            return value.number == 0
        case Kind.TRUE | Kind.JSON:
            return False


def _compare(ours: T, operator: bytes, theirs: T) -> bool:
    match operator:
        case b"=":
            return ours == theirs
        case b"!=":
            return ours != theirs
        case b"<":
            return ours < theirs
        case b"<=":
            return ours <= theirs
        case b">":
            return ours > theirs
        case b">=":
            return ours >= theirs
        case _:
            return False


def _compare_truth(operator: bytes, expected: bytes, *, same: bytes, beyond: bytes, other: bytes) -> bool:
    """Compare a boolean with a text; false orders before true."""
    if operator == b"=":
        return expected == same
    if operator == b"!=":
        return expected != same
    if operator == beyond:
        return expected == other
    return operator == beyond + b"="
