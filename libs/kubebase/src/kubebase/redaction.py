"""Redacts known values in texts: error messages end up in conditions, events and logs.

Servers and backends repeat what they were sent, in their own spelling: quoted, encoded or cut short. `Redactor` looks
for each value in the usual spellings, for each line of a value, and for each text in a value that is JSON, with its
lines. A credential in JSON also identifies its account, for example by a project: `PartlyPublic` lets such a text stay
if the spec shows it too. A short value such as `prod` is part of many names. Names that the caller wrote itself reveal
nothing, so they stay: `app/…/db` would mislead the reader and show what the value is.
"""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final, Self
from urllib.parse import quote_from_bytes

MASK: Final = "…"
SHORTEST: Final = 4
"""Shorter spellings occur in any sentence: masking them would destroy it."""
SENSIBLE: Final = 8
"""Spellings shorter than this stay inside the names of a request."""
PREFIX: Final = 12
"""A longer spelling is recognised by this many first characters: echoes are often cut off."""
MAX_TEXT: Final = 8 * 1024
"""The rest of a longer text is dropped. This is more than any message shows, as masks make a text shorter."""
IDENTIFYING: Final = frozenset({"audience", "client_email", "project_id", "quota_project_id"})
"""Members of a JSON credential that say whose it is. All other members may prove it, whatever their text is."""

_HEAD: Final = 4 * MAX_TEXT  # bytes of a value that can occur in such a text: a character has up to four
_MAX_PARTS: Final = 16 * 1024  # lines, and texts of JSON, of one value: bounds the work that one error causes
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")  # the same in most spellings
_PLAIN_BYTES: Final = re.compile(_PLAIN.pattern.encode())
_HTML: Final = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})  # how Go writes JSON


class PartlyPublic(bytes):
    """A credential that may be JSON. Its identifying members stay in messages if their texts are among `public` ones.

    Being public is not enough: the spec may happen to contain the text of a password. If an identifying member and
    another member have the same text, it is masked.
    """

    public: frozenset[str]

    def __new__(cls, value: bytes, public: frozenset[str]) -> Self:
        made = super().__new__(cls, value)
        made.public = public
        return made


class Redactor:
    """Redacts values in texts, except short values in `names`. Spellings are computed when the first text needs them.

    With `within`, only spellings that can occur in that text are kept: for one text and very many values.
    """

    def __init__(self, values: Iterable[bytes], names: Iterable[str] = (), *, within: str | None = None) -> None:
        self._values = values
        self._names = tuple(names)
        self._within = None if within is None else _heads(within[:MAX_TEXT])
        self._by_head: dict[str, set[str]] | None = None

    def text(self, text: str) -> str:
        """Return the text without the values."""
        if self._by_head is None:
            self._by_head = _by_head(self._values, self._within)
            self._values = ()
        shown = text[:MAX_TEXT]
        found = [form for head in _heads(shown) & self._by_head.keys() for form in self._by_head[head]]
        found.sort(key=len, reverse=True)
        short = [form for form in found if len(form) < SENSIBLE]
        shown = _without(shown, found[: len(found) - len(short)])
        shown = _without_short(shown, short, self._names)
        return _without_tail(shown) if len(text) > MAX_TEXT else shown


def texts_in(document: Any) -> Iterator[str]:
    """Yield the texts of a JSON document in their order, without the names of its members."""
    pending = [document]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case dict() as members:
                pending.extend(reversed(members.values()))
            case list() as entries:
                pending.extend(reversed(entries))


def _by_head(values: Iterable[bytes], within: Collection[str] | None) -> dict[str, set[str]]:
    """Collect the spellings of all values by their first characters, so that a text finds its own quickly."""
    collected: dict[str, set[str]] = {}
    for value in values:
        for form in _spellings(value):
            head = form[:PREFIX]
            if len(form) >= SHORTEST and (within is None or head in within):
                collected.setdefault(head, set()).add(form[:MAX_TEXT])
    return collected


def _heads(text: str) -> set[str]:
    """Return everything in the text that a spelling can begin with, or be."""
    return {text[at : at + size] for size in range(SHORTEST, PREFIX + 1) for at in range(len(text) - size + 1)}


def _spellings(value: bytes) -> Iterator[str]:
    text = value[:_HEAD].decode(errors="replace")
    if "\ufffd" in text:  # perhaps no UTF-8: its bytes are not those of the text
        yield from _encoded(value[:MAX_TEXT])
    parts = {text, *islice(_lines((text,)), _MAX_PARTS), *islice(_lines(_json_texts(value)), _MAX_PARTS)}
    for part in parts | {part.strip() for part in parts}:
        yield from _spelled(part)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield each text, and its lines if it has several: a key in PEM is often echoed line by line."""
    for text in texts:
        yield text
        if len(lines := text.splitlines()) > 1:
            yield from lines


def _json_texts(value: bytes) -> Iterator[str]:
    if value.lstrip()[:1] in (b"{", b"[", b'"'):
        with suppress(ValueError, RecursionError):
            document = json.loads(value)
            if isinstance(value, PartlyPublic) and isinstance(document, dict):
                document = [text for name, text in document.items() if not _is_public(name, text, value.public)]
            yield from texts_in(document)


def _is_public(name: str, text: object, public: Collection[str]) -> bool:
    return name in IDENTIFYING and isinstance(text, str) and text in public


def _spelled(text: str) -> Iterator[str]:
    yield text
    if not _PLAIN.fullmatch(text):
        yield repr(text)[1:-1]
        for quoted in (encode_basestring(text)[1:-1], encode_basestring_ascii(text)[1:-1]):
            yield quoted
            yield quoted.translate(_HTML)
    yield from _encoded(text[:MAX_TEXT].encode(errors="surrogatepass"))


def _encoded(raw: bytes) -> Iterator[str]:
    yield raw.hex()
    if not _PLAIN_BYTES.fullmatch(raw):
        yield repr(raw)[2:-1]
        percent = quote_from_bytes(raw, safe="")
        yield percent
        yield percent.replace("%20", "+")
    encoded = b2a_base64(raw, newline=False).decode()
    for each in (encoded, encoded.replace("+", "-").replace("/", "_")):
        yield each
        yield each.rstrip("=")


def _without(text: str, forms: Iterable[str]) -> str:
    """Redact each position where one of these spellings occurs or begins. Spellings may overlap."""
    parts: list[str] = []
    position = 0
    for start, end in sorted(match for form in forms for match in _matches(text, form)):
        if start >= position:
            parts += [text[position:start], MASK]
        position = max(position, end)
    return "".join((*parts, text[position:]))


def _matches(text: str, form: str) -> Iterator[tuple[int, int]]:
    head, end = form[:PREFIX], 0
    while (start := text.find(head, end)) >= 0:
        end = start + len(head)
        while end < len(text) and end - start < len(form) and text[end] == form[end - start]:
            end += 1
        yield start, end


def _without_short(text: str, forms: Iterable[str], names: Iterable[str]) -> str:
    """Redact these short spellings, except where they are part of a name of the request."""
    present = [form for form in forms if form in text]
    if not present:
        return text
    public_names = {name for name in names if name in text and any(form in name for form in present)}
    parts = (
        re.split(f"({'|'.join(map(re.escape, sorted(public_names, key=len, reverse=True)))})", text)
        if public_names
        else [text]
    )
    for form in present:
        parts[::2] = [part.replace(form, MASK) for part in parts[::2]]
    return "".join(parts)


def _without_tail(text: str) -> str:
    """Drop the end of a text that was cut: it may be the beginning of a value, too short to be recognised."""
    public_names, tail = text[:-PREFIX], text[-PREFIX:]
    return public_names + tail[: tail.rfind(MASK) + 1]
