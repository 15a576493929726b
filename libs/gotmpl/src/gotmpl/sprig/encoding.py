"""Base64, base32 and hex. As in Go's Sprig, invalid input gives the error text as the value."""

from __future__ import annotations

import base64

from gotmpl.functions import STRING, Functions
from gotmpl.quoting import unicode_name
from gotmpl.values import to_bytes, to_text

FUNCTIONS = Functions()

_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_BASE32 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_BREAKS = str.maketrans("", "", "\r\n")


@FUNCTIONS.add("b64enc", params=(STRING,))
def b64enc(text: str) -> str:
    return base64.b64encode(to_bytes(text)).decode()


@FUNCTIONS.add("b64dec", params=(STRING,))
def b64dec(text: str) -> str:
    return b64_error(text) or to_text(base64.b64decode(text))


def b64_error(text: str) -> str:
    """Return the problem of base64 text in Go's words; empty if it is well formed."""
    clean = text.translate(_BREAKS)
    try:
        base64.b64decode(clean, validate=True)
        good = len(clean) % 4 == 0
    except ValueError:
        good = False
    return "" if good else f"illegal base64 data at input byte {_bad_base64(to_bytes(text))}"


def _bad_base64(raw: bytes) -> int:
    """Return where Go's decoder stops. Line breaks may be anywhere."""
    filled = 0
    for at, byte in enumerate(raw):
        if byte in _BASE64:
            filled = (filled + 1) % 4
        elif byte not in b"\r\n":
            return at if byte != 0x3D or filled < 2 else _bad_padding(raw, at + 1, filled)
    return len(raw) - filled


def _bad_padding(raw: bytes, at: int, filled: int) -> int:
    """Check the text after the first equals sign."""
    at = _past_breaks(raw, at)
    if filled == 2:
        if at == len(raw):
            return at
        if raw[at] != 0x3D:
            return at - 1
        at = _past_breaks(raw, at + 1)
    return at


def _past_breaks(raw: bytes, at: int) -> int:
    while at < len(raw) and raw[at] in b"\r\n":
        at += 1
    return at


@FUNCTIONS.add("b32enc", params=(STRING,))
def b32enc(text: str) -> str:
    return base64.b32encode(to_bytes(text)).decode()


@FUNCTIONS.add("b32dec", params=(STRING,))
def b32dec(text: str) -> str:
    clean = to_bytes(text.translate(_BREAKS))
    bad = _bad_base32(clean)
    return to_text(base64.b32decode(clean)) if bad is None else f"illegal base32 data at input byte {bad}"


def _bad_base32(raw: bytes) -> int | None:
    """Return where Go's decoder stops, after line breaks were removed; None if all is valid."""
    for start in range(0, len(raw), 8):
        for filled in range(8):
            at = start + filled
            if at >= len(raw):
                return len(raw) - filled
            left = len(raw) - at - 1
            if raw[at] == 0x3D and filled >= 2 and left < 8:
                return _bad_tail(raw, at, filled, left)
            if raw[at] not in _BASE32:
                return at
    return None


def _bad_tail(raw: bytes, at: int, filled: int, left: int) -> int | None:
    if left + filled < 7:
        return len(raw)
    for offset in range(7 - filled):
        if offset < left and raw[at + 1 + offset] != 0x3D:
            return at + offset
    if filled in {3, 6}:
        return at
    return None if left == 7 - filled else at + 8 - filled


@FUNCTIONS.add("hexdec", params=(STRING,))
def hexdec(text: str) -> str:
    raw = to_bytes(text)
    for byte in raw[: len(raw) - len(raw) % 2] if len(raw) % 2 else raw:
        if chr(byte) not in "0123456789abcdefABCDEF":
            return f"encoding/hex: invalid byte: {unicode_name(chr(byte))}"
    if len(raw) % 2:
        last = chr(raw[-1])
        bad = last not in "0123456789abcdefABCDEF"
        return f"encoding/hex: invalid byte: {unicode_name(last)}" if bad else "encoding/hex: odd length hex string"
    return to_text(bytes.fromhex(text))
