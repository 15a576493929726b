"""Stand-ins for secret values: equal values have equal stand-ins, and a stand-in says nothing about its value.

    text of digits            -> digits
    Base64                    -> hexadecimal digits, which are Base64 too
    JSON object or list       -> the same structure and names, with stand-ins for texts and numbers
    everything else           -> standin-...

The key of the stand-ins is random and is discarded with this object, so that values cannot be found by guessing.
Digests, which are safe to print, have a random key of one run too: a plain hash of a short value can be reversed by
guessing. Digests of different runs cannot be compared.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from typing import Any, Final

from eso_operator.providers.redaction import VALUE_MEMBERS

_KEY_BYTES: Final = 32
_SMALLEST: Final = 100_000_000_000_000
"""The smallest stand-in of a number: JSON numbers of 15 digits keep their value in every parser."""
_HEX_DIGITS: Final = 32
_SHORTEST_BASE64: Final = 8
_DEEPEST: Final = 40
SHOWN_DIGITS: Final = 6


class Digests:
    """The digests of one run."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)

    def of(self, value: bytes) -> str:
        return hmac.new(self._key, value, hashlib.sha256).hexdigest()[:SHOWN_DIGITS]


class StandIns:
    """The stand-ins of one recording."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)

    def of(self, value: bytes) -> bytes:
        """Return the stand-in of a value."""
        try:
            return self._text(value.decode(), 0).encode()
        except UnicodeDecodeError:
            return f"standin-{self._hex(value)}".encode()

    def of_configuration(self, node: Any) -> Any:
        """Return a copy of a configuration in which the values that it contains have stand-ins."""
        match node:
            case dict():
                return {
                    name: self._node(member, 0) if name in VALUE_MEMBERS else self.of_configuration(member)
                    for name, member in node.items()
                }
            case list():
                return [self.of_configuration(member) for member in node]
            case _:
                return node

    def _text(self, text: str, depth: int) -> str:
        if not text:
            return text
        if text.isascii() and text.isdigit():
            return str(self._number(text))
        if text[0] in "{[" and depth < _DEEPEST:
            try:
                return json.dumps(self._node(json.loads(text), depth + 1), separators=(",", ":"))
            except (ValueError, RecursionError):
                pass
        return self._hex(text.encode()) if _is_base64(text) else f"standin-{self._hex(text.encode())}"

    def _node(self, node: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            return None
        match node:
            case dict():
                return {name: self._node(member, depth + 1) for name, member in node.items()}
            case list():
                return [self._node(member, depth + 1) for member in node]
            case str():
                return self._text(node, depth)
            case bool() | None:
                return node
            case _:
                return self._number(json.dumps(node))

    def _number(self, text: str) -> int:
        return _SMALLEST + int(self._hex(text.encode()), 16) % (9 * _SMALLEST)

    def _hex(self, value: bytes) -> str:
        return hmac.new(self._key, value, hashlib.sha256).hexdigest()[:_HEX_DIGITS]


def _is_base64(text: str) -> bool:
    if len(text) < _SHORTEST_BASE64:
        return False
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
