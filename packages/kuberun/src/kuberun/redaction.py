"""Keeps what we sent, and what the server has stored, out of error messages.

API servers echo: a rejected patch quotes the whole patched object, a rejected value is repeated, an unreadable body is
dumped in hex. All of that may be a password, and error messages end up in logs, events and status. Two nets, because
wording differs between servers, versions and admission webhooks: known echoes are cut out by their shape
(`without_echo`), and then every value of the request body is looked for (`without_values`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

MAX_MESSAGE_BYTES = 2048
"""Longer messages are cut: nobody reads them, and they travel into conditions and events."""

_SHORTEST_VALUE = 4  # shorter strings occur in any sentence; replacing them would only destroy it
_NAMES = frozenset({"apiVersion", "kind", "metadata"})  # what an error message has to name

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
    while found := _ECHOED_VALUE.search(text, position):
        parts.append(text[position : found.end()])
        position = _end_of_value(text, found.end())
    parts.append(text[position:])
    return bounded("".join(parts).rstrip(": "), MAX_MESSAGE_BYTES)


def without_values(text: str, body: bytes | None) -> str:
    """The text without any string that the request body carried as a value."""
    if not body:
        return text
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return text
    for value in sorted(set(_values(document)), key=len, reverse=True):
        text = text.replace(value, "…")
    return text


def bounded(text: str, limit: int) -> str:
    """The text cut to at most `limit` bytes of UTF-8, with a mark where it was cut."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


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


def _values(document: Any) -> Iterator[str]:
    match document:
        case dict():
            for name, value in document.items():
                if name not in _NAMES:
                    yield from _values(value)
        case list():
            for value in document:
                yield from _values(value)
        case str() if len(document) >= _SHORTEST_VALUE:
            yield document
        case _:
            pass
