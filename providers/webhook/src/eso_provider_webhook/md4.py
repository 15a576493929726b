"""MD4 (RFC 1320), which NTLM uses for its keys and the system's libraries no longer offer.

Do not use it for anything else: as a hash it is broken.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

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
