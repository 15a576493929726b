"""Base64, base32 and hex. Bad input gives the error text as the value, as in Go's Sprig."""

from __future__ import annotations

import base64
import re

from gotmpl.quoting import unicode_name
from gotmpl.signatures import STRING, Functions
from gotmpl.values import to_bytes, to_text

FUNCTIONS = Functions()

_BASE64 = re.compile(r"[A-Za-z0-9+/]")
_BASE32 = re.compile(r"[A-Z2-7]")


@FUNCTIONS.add("b64enc", params=(STRING,))
def b64enc(text: str) -> str:
    return base64.b64encode(to_bytes(text)).decode()


@FUNCTIONS.add("b64dec", params=(STRING,))
def b64dec(text: str) -> str:
    return b64_error(text) or to_text(base64.b64decode(text))


def b64_error(text: str) -> str:
    """What is wrong with base64 text, in Go's words; nothing if it is well formed."""
    bad = bad_position(text, _BASE64, 4, (2, 3))
    return "" if bad is None else f"illegal base64 data at input byte {bad}"


@FUNCTIONS.add("b32enc", params=(STRING,))
def b32enc(text: str) -> str:
    return base64.b32encode(to_bytes(text)).decode()


@FUNCTIONS.add("b32dec", params=(STRING,))
def b32dec(text: str) -> str:
    bad = bad_position(text, _BASE32, 8, (2, 4, 5, 7))
    clean = text.replace("\r", "").replace("\n", "")
    return f"illegal base32 data at input byte {bad}" if bad is not None else to_text(base64.b32decode(clean))


def bad_position(text: str, alphabet: re.Pattern[str], quantum: int, tails: tuple[int, ...]) -> int | None:
    """Where Go's decoder stops: the first byte that does not belong there, or None if all is well.

    `quantum` characters make a group; the last group may hold one of `tails` characters and padding. Line ends are
    skipped everywhere.
    """
    positions = [at for at, char in enumerate(text) if char not in "\r\n"]
    body = len(positions)
    for count, at in enumerate(positions):
        if not alphabet.match(text[at]):
            body = count
            break
    if body == len(positions):
        rest = body % quantum
        return positions[body - rest] if rest else None
    filled = body % quantum
    if text[positions[body]] != "=" or filled not in tails:
        return positions[body]
    wanted = body + quantum - filled
    for count in range(body, wanted):
        if count >= len(positions):
            return len(text)
        if text[positions[count]] != "=":
            return positions[count]
    return positions[wanted] if wanted < len(positions) else None


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
