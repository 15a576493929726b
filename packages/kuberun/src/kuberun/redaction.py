"""Keeps what we sent, and what the server has stored, out of error messages.

API servers echo: a rejected patch quotes the whole patched object, a rejected value is repeated, an unreadable body is
dumped in hex. All of that may be a password, and error messages end up in logs, events and status. Two nets, because
wording differs between servers, versions and admission webhooks: known echoes are cut out by their shape
(`without_echo`), and then every value of the request body is looked for (`without_values`). A key that was rejected is
an echo like any other: it may have been made from a value (`field_without_echo`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

MAX_MESSAGE_BYTES = 2048
"""Longer messages are cut: nobody reads them, and they travel into conditions and events."""

_SHORTEST_VALUE = 4  # shorter strings occur in any sentence; replacing them would only destroy it
_NAMES = frozenset({"apiVersion", "kind"})  # what an error message has to name
_FREE_METADATA: Final = ("labels", "annotations")  # the rest of metadata are names, too
_LOOKED_THROUGH: Final = 4 * MAX_MESSAGE_BYTES  # more than is shown: masks make a text shorter

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ECHOED_VALUE = re.compile(r"(Invalid value|Unsupported value|Duplicate value|Not found|Too many): (?=\S)")
_BARE_VALUE = re.compile(r"[^\s:\"{}\[\]]+(?=: |$|[,\]])")
_GO_VALUE = re.compile(r"&?[\w.*\[\]]*(?:interface )?\{|map\[")
_CUTS = (
    # (what the server says, how much of it may stay)
    (re.compile(r"(the object provided is unrecognized(?: \(must be of type [\w.]+\))?).*", re.DOTALL), r"\1"),
    (re.compile(r"(, got )&.*", re.DOTALL), r"\1another type"),
    (re.compile(r"(, error found in #\d+ byte of ).*", re.DOTALL), r"\1the request"),
    (re.compile(r'(parsing )"(?:[^"\\]|\\.)*"', re.DOTALL), r"\1a value"),
)


def without_echo(text: str) -> str:
    """The server's message without the values and bodies it is known to repeat."""
    for pattern, kept in _CUTS:
        text = pattern.sub(kept, text)
    parts: list[str] = []
    position = 0
    for start, end in _echoes(text):
        parts.append(text[position:start])
        position = end
    parts.append(text[position:])
    return "".join(parts).rstrip(": ")


def field_without_echo(field: str, message: str) -> str:
    """The path of a rejected field, without a key that the message repeats as the rejected value: `data[…]`."""
    for start, end in _echoes(message):
        for spelling in _spellings_of_echo(message[start:end].removesuffix(": ")):
            field = field.replace(f"[{spelling}]", "[…]")
    return field


def without_values(text: str, body: bytes | None) -> str:
    """The text without any string that the request body carried as a value, and no longer than a message may be."""
    shown = text[:_LOOKED_THROUGH]
    values = _values_in(shown, body) if body else []
    if len(text) > len(shown):
        shown = _cut_before_value(shown, values) + "…"
    for value in values:
        shown = shown.replace(value, "…")
    return bounded(shown, MAX_MESSAGE_BYTES)


def bounded(text: str, limit: int) -> str:
    """The text cut to at most `limit` bytes of UTF-8, with a mark where it was cut."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


def _echoes(text: str) -> Iterator[tuple[int, int]]:
    """Where values stand that the server repeats, each with the colon behind it."""
    position = 0
    while found := _ECHOED_VALUE.search(text, position):
        position = _end_of_value(text, found.end())
        yield found.end(), position


def _spellings_of_echo(echo: str) -> Iterator[str]:
    yield echo
    if echo.startswith('"'):
        try:
            yield str(json.loads(echo, strict=False))
        except ValueError:
            yield echo.strip('"')


def _end_of_value(text: str, start: int) -> int:
    """Where the echoed value that begins at `start` ends, including the colon behind it.

    A rule of a CRD may have no value to show; then its sentence follows directly, and stays.
    """
    end = start
    if quoted := _QUOTED.match(text, start):
        end = quoted.end()
    elif text[start] in '"{[':
        end = _end_of_json(text, start)
    elif _GO_VALUE.match(text, start):
        end = len(text)
    elif bare := _BARE_VALUE.match(text, start):
        end = bare.end()
    return end + 2 if text.startswith(": ", end) and end > start else end


def _end_of_json(text: str, start: int) -> int:
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except ValueError:
        return len(text)  # cannot tell where it ends: nothing after it is safe


def _values_in(text: str, body: bytes) -> list[str]:
    """Those values, in all spellings, whose beginning is in the text; the longest first, so that no remainder stays.

    A body may hold a hundred thousand values, so each is first looked up by its beginning.
    """
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return []
    beginnings = {text[at : at + _SHORTEST_VALUE] for at in range(len(text))}
    found = {
        spelling
        for value in _values(document)
        for spelling in _spellings(value)
        if len(spelling) >= _SHORTEST_VALUE and spelling[:_SHORTEST_VALUE] in beginnings
    }
    return sorted(found, key=len, reverse=True)


def _values(document: Any) -> Iterator[str]:
    match document:
        case dict():
            for name, value in document.items():
                if name == "metadata" and isinstance(value, dict):
                    yield from _values([value.get(free) for free in _FREE_METADATA])
                elif name not in _NAMES:
                    yield from _values(value)
        case list():
            for value in document:
                yield from _values(value)
        case str():
            yield document
        case _:
            pass


def _spellings(value: str) -> Iterator[str]:
    """The value, as a server quotes it, and what it stands for if it is base64, as the data of Secrets is."""
    texts = [value]
    with suppress(ValueError):
        texts.append(base64.b64decode(value, validate=True).decode().strip())
    for text in texts:
        yield text
        yield json.dumps(text, ensure_ascii=False)[1:-1]


def _cut_before_value(text: str, values: list[str]) -> str:
    """A text that was cut, without the beginning of a value that the cut has left at its end."""
    for value in values:
        start = text.find(value[:_SHORTEST_VALUE], max(len(text) - len(value), 0))
        while start >= 0 and not value.startswith(text[start:]):
            start = text.find(value[:_SHORTEST_VALUE], start + 1)
        if start >= 0:
            text = text[:start]
    return text
