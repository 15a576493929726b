"""Digests of values that are safe to print: keyed with a random key of one run, and short.

A plain hash of a short value can be reversed by guessing. Without the key, which is never stored, that is impossible.
Digests of different runs cannot be compared.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

SHOWN_DIGITS: Final = 6
_KEY_BYTES: Final = 32


class Digests:
    """The digests of one run."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)

    def of(self, value: bytes) -> str:
        return hmac.new(self._key, value, hashlib.sha256).hexdigest()[:SHOWN_DIGITS]
