"""The decoding strategies of the API: how an encoded value becomes bytes.

Pure. Messages name the strategy; the caller adds the key. They never contain the value.
"""

from __future__ import annotations

import binascii
import re

_STANDARD = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_URL = re.compile(rb"[A-Za-z0-9_-]*={0,2}")
_URL_TO_STANDARD = bytes.maketrans(b"-_", b"+/")


class DecodingError(ValueError):
    """The value does not fit the strategy, or the strategy does not exist."""


def decode(strategy: str, value: bytes) -> bytes:
    """Decode the value. Auto never fails: valid Base64 is decoded, any other text is kept."""
    match strategy:
        case "" | "None":
            return value
        case "Base64":
            return _required(_base64(value), strategy)
        case "Base64URL":
            return _required(_base64url(value), strategy)
        case "Auto":
            return next((raw for raw in (_base64(value), _base64url(value)) if raw is not None), value)
        case _:
            raise DecodingError(f"decoding strategy {strategy} is not supported; use Auto, Base64, Base64URL or None")


def _required(decoded: bytes | None, strategy: str) -> bytes:
    if decoded is None:
        raise DecodingError(f"the value is not valid {strategy}")
    return decoded


def _base64(value: bytes) -> bytes | None:
    """Decode RFC 4648 Base64 with padding. As in Go, line breaks are allowed anywhere, other stray bytes are not."""
    return _decoded(value.translate(None, b"\r\n"), _STANDARD)


def _base64url(value: bytes) -> bytes | None:
    return _decoded(value.translate(None, b"\r\n"), _URL)


def _decoded(value: bytes, alphabet: re.Pattern[bytes]) -> bytes | None:
    if len(value) % 4 or not alphabet.fullmatch(value):
        return None
    return binascii.a2b_base64(value.translate(_URL_TO_STANDARD))
