"""Removes sent and stored values from error messages of the server.

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

from kubebase.redaction import Redactor

MAX_MESSAGE_BYTES = 2048
"""Longer messages are cut, because they are copied into conditions and events."""

_NAMES = frozenset({"apiVersion", "kind"})  # facts that an error message must name
_FREE_METADATA: Final = ("labels", "annotations")  # the rest of metadata are names, too

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ECHOED_VALUE = re.compile(r"(Invalid value|Unsupported value|Duplicate value|Not found|Too many): (?=\S)")
_BARE_VALUE = re.compile(r"[^\s:\"{}\[\]]+(?=: |$|[,\]])")
_GO_VALUE = re.compile(r"&?[\w.*\[\]]*(?:interface )?\{|map\[")
_CUTS = (
    # (text of the server, how much of it may stay)
    (re.compile(r"(the object provided is unrecognized(?: \(must be of type [\w.]+\))?).*", re.DOTALL), r"\1"),
    (re.compile(r"(, got )&.*", re.DOTALL), r"\1another type"),
    (re.compile(r"(, error found in #\d+ byte of ).*", re.DOTALL), r"\1the request"),
    (re.compile(r'(parsing )"(?:[^"\\]|\\.)*"', re.DOTALL), r"\1a value"),
)


def without_echo(text: str) -> str:
    """Return the server's message without the values and bodies it is known to repeat."""
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
    """Return the path of a rejected field, without a key that the message repeats as the rejected value: `data[…]`."""
    for start, end in _echoes(message):
        for spelling in _spellings_of_echo(message[start:end].removesuffix(": ")):
            field = field.replace(f"[{spelling}]", "[…]")
    return field


def without_values(text: str, body: bytes | None) -> str:
    """Return the text without any string that the request body carried as a value, bounded as messages are."""
    masked = Redactor(_values_of(body), within=text).text(text) if body else text
    return bounded(masked, MAX_MESSAGE_BYTES)


def bounded(text: str, limit: int) -> str:
    """Return the text cut to at most `limit` bytes of UTF-8, with a mark where it was cut."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


def _echoes(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of values that the server repeats, each with the colon behind it."""
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
    """Return the end of the echoed value that begins at `start`, including the colon behind it.

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


def _values_of(body: bytes) -> Iterator[bytes]:
    """Yield each value of the body, and its decoded form if it is base64, as the data of Secrets is."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        yield body
        return
    for value in _values(document):
        yield value.encode()
        with suppress(ValueError):
            yield base64.b64decode(value, validate=True)


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
