"""NTLM over HTTP: the messages a client sends to log in, NTLMv2 only.

    NEGOTIATE ->   <- challenge (`challenge_of`)   authenticate ->

The layout is that of MS-NLMP, without signing, sealing and integrity code, which HTTP does not use. Pure except for the
random challenge.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from eso_sdk.errors import backend_error

# --- MD4 (RFC 1320), which NTLM uses for its keys and the system's libraries no longer offer -------------------------
#
# Do not use it for anything else: as a hash it is broken.


_MASK: Final = 0xFFFFFFFF
_START: Final = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)

_Mix = Callable[[int, int, int], int]
# The three rounds: mixing function, constant, order of the words, rotations.
_ROUNDS: Final[tuple[tuple[_Mix, int, tuple[int, ...], tuple[int, ...]], ...]] = (
    (lambda x, y, z: (x & y) | (~x & z), 0, tuple(range(16)), (3, 7, 11, 19)),
    (
        lambda x, y, z: (x & y) | (x & z) | (y & z),
        0x5A827999,
        (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        (3, 5, 9, 13),
    ),
    (
        lambda x, y, z: x ^ y ^ z,
        0x6ED9EBA1,
        (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15),
        (3, 9, 11, 15),
    ),
)


def md4(message: bytes) -> bytes:
    """Return the digest, 16 bytes."""
    padded = message + b"\x80" + bytes((55 - len(message)) % 64) + struct.pack("<Q", len(message) * 8)
    state = _START
    for at in range(0, len(padded), 64):
        state = _compressed(state, struct.unpack_from("<16I", padded, at))
    return struct.pack("<4I", *state)


def _compressed(state: tuple[int, int, int, int], words: tuple[int, ...]) -> tuple[int, int, int, int]:
    a, b, c, d = state
    for mix, constant, order, turns in _ROUNDS:
        for number, index in enumerate(order):
            total = (a + mix(b, c, d) + words[index] + constant) & _MASK
            turn = turns[number % 4]
            a, b, c, d = d, ((total << turn) | (total >> (32 - turn))) & _MASK, b, c
    return (state[0] + a) & _MASK, (state[1] + b) & _MASK, (state[2] + c) & _MASK, (state[3] + d) & _MASK


# --- NTLM over HTTP --------------------------------------------------------------------------------------------------


_SIGNATURE: Final = b"NTLMSSP\0"
_UNICODE, _REQUEST_TARGET, _NTLM, _ALWAYS_SIGN, _EXTENDED = 0x1, 0x4, 0x200, 0x8000, 0x80000
_TARGET_INFO, _KEY_128, _KEY_56 = 0x800000, 0x20000000, 0x80000000
_FLAGS: Final = _UNICODE | _REQUEST_TARGET | _NTLM | _ALWAYS_SIGN | _EXTENDED | _TARGET_INFO | _KEY_128 | _KEY_56

_TIMESTAMP: Final = 7
_END: Final = 0
_HEADER: Final = 64
"""Bytes of an authenticate message before its fields."""

_EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)

NEGOTIATE: Final = base64.b64encode(struct.pack("<8sII16x", _SIGNATURE, 1, _FLAGS)).decode()
"""The first message; only the last one names the user."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user, after a domain and a backslash if it is one of a domain, and its password."""

    user: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The challenge of the server."""

    nonce: bytes
    target_info: bytes
    flags: int


def scheme_of(offered: Iterable[str]) -> str | None:
    """Return the scheme of `WWW-Authenticate` to log in with; None if the server offers neither."""
    names = {part.split()[0].lower() for line in offered for part in line.split(",") if part.strip()}
    return next((scheme for scheme in ("NTLM", "Negotiate") if scheme.lower() in names), None)


def challenge_of(offered: Iterable[str], scheme: str) -> Challenge | None:
    """Return the challenge of a 401 response; None if there is none."""
    for line in offered:
        name, _, text = line.strip().partition(" ")
        if name.lower() == scheme.lower() and text.strip():
            return _challenge(text.strip())
    return None


def authenticate(login: Login, challenge: Challenge, now: datetime) -> str:
    """Return the last message: it proves the password without containing it."""
    domain, _, user = login.user.rpartition("\\")
    key, nonce = response_key(login.password, user, domain), secrets.token_bytes(8)
    # A server that says its time wants to see it again, and no answer of the older kind.
    said = _entries(challenge.target_info).get(_TIMESTAMP)
    lm = bytes(24) if said else hmac.digest(key, challenge.nonce + nonce, "md5") + nonce
    nt = nt_response(key, challenge, nonce, said or _file_time(now))
    fields = [lm, nt, domain.encode("utf-16-le"), user.encode("utf-16-le"), b"", b""]
    return base64.b64encode(_message(fields, challenge.flags & _FLAGS)).decode()


def response_key(password: str, user: str, domain: str) -> bytes:
    """Return NTOWFv2."""
    return hmac.digest(md4(password.encode("utf-16-le")), (user.upper() + domain).encode("utf-16-le"), "md5")


def nt_response(key: bytes, challenge: Challenge, nonce: bytes, time: bytes) -> bytes:
    """Return NTProofStr and the blob that it covers."""
    blob = b"\x01\x01" + bytes(6) + time + nonce + bytes(4) + challenge.target_info + bytes(4)
    return hmac.digest(key, challenge.nonce + blob, "md5") + blob


def _file_time(now: datetime) -> bytes:
    """Return tenths of microseconds since 1601, the time unit of Windows."""
    return struct.pack("<Q", (now - _EPOCH) // timedelta(microseconds=1) * 10)


def _challenge(text: str) -> Challenge:
    try:
        raw = base64.b64decode(text, validate=True)
        signature, kind, flags, nonce = struct.unpack_from("<8sI8xI8s", raw)
        size, offset = struct.unpack_from("<H2xI", raw, 40) if flags & _TARGET_INFO else (0, 0)
        info = raw[offset : offset + size]
        _entries(info)
        readable = signature == _SIGNATURE and kind == 2 and len(info) == size
    except (binascii.Error, struct.error):
        readable = False
    if not readable:
        raise backend_error("the endpoint offers NTLM, but its challenge cannot be read")
    return Challenge(nonce, info, flags)


def _entries(info: bytes) -> dict[int, bytes]:
    """Return the server's description of itself, by number."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(info):
        number, size = struct.unpack_from("<HH", info, at)
        if number == _END:
            break
        found[number] = info[at + 4 : at + 4 + size]
        at += 4 + size
    return found


def _message(fields: list[bytes], flags: int) -> bytes:
    places, at = b"", _HEADER
    for content in fields:
        places += struct.pack("<HHI", len(content), len(content), at)
        at += len(content)
    return struct.pack("<8sI", _SIGNATURE, 3) + places + struct.pack("<I", flags) + b"".join(fields)
