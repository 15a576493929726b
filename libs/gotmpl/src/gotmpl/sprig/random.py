"""Random strings, from the operating system's generator."""

from __future__ import annotations

import secrets
import string
import uuid

from gotmpl.errors import bounded
from gotmpl.functions import INT, STRING, Functions

FUNCTIONS = Functions()

_ALPHABETS = {
    "randAlphaNum": string.ascii_letters + string.digits,
    "randAlpha": string.ascii_letters,
    "randNumeric": string.digits,
    "randAscii": "".join(map(chr, range(32, 127))),
}


def random_text(alphabet: str, count: int) -> str:
    """Return that many uniformly random characters. They are drawn in bulk: one by one, a megabyte takes seconds."""
    fits = 256 - 256 % len(alphabet)
    table = bytes(ord(alphabet[byte % len(alphabet)]) for byte in range(256))
    surplus = bytes(range(fits, 256))
    drawn = bytearray()
    while len(drawn) < count:
        drawn += secrets.token_bytes((count - len(drawn)) * 256 // fits + 16).translate(table, surplus)
    return drawn[:count].decode("latin-1")


def _register(name: str, alphabet: str) -> None:
    def pick(count: int) -> str:
        bounded(count)
        return random_text(alphabet, count)

    FUNCTIONS.add(name, params=(INT,))(pick)


for _name, _alphabet in _ALPHABETS.items():
    _register(_name, _alphabet)


@FUNCTIONS.add("shuffle", params=(STRING,))
def shuffle(text: str) -> str:
    chars = list(text)
    secrets.SystemRandom().shuffle(chars)
    return "".join(chars)


@FUNCTIONS.add("uuidv4")
def uuidv4() -> str:
    return str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
