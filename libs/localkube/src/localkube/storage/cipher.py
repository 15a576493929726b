"""Encryption at rest: AES-256-GCM with a key file next to the database.

Each stored body is bound to its object's key and revision, so ciphertexts cannot be swapped between rows. The check
value in the database distinguishes a wrong key from damaged data before anything is read or written.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from localkube.storage.directory import create_private
from localkube.storage.errors import StorageError
from localkube.storage.records import Key

KEY_FILE = "encryption.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_CHECK = b"localkube"


class Cipher:
    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    @classmethod
    def ephemeral(cls) -> Cipher:
        """Make a key that is never saved: for a store in memory."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def create(cls, path: Path) -> Cipher:
        key = os.urandom(_KEY_BYTES)
        create_private(path, base64.b64encode(key) + b"\n")
        return cls(key)

    @classmethod
    def load(cls, path: Path) -> Cipher:
        try:
            key = base64.b64decode(path.read_bytes(), validate=False)
        except FileNotFoundError as exc:
            raise StorageError(f"encryption key {path} is missing; put it back, the stored Secrets need it") from exc
        except (OSError, binascii.Error) as exc:
            raise StorageError(f"encryption key {path} cannot be read; restore it from a backup") from exc
        if len(key) != _KEY_BYTES:
            raise StorageError(f"encryption key {path} is not a 256-bit key; restore it from a backup")
        return cls(key)

    def seal(self, key: Key, revision: int, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, body, _bound_to(key, revision))

    def open(self, key: Key, revision: int, sealed: bytes) -> bytes:
        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound_to(key, revision))
        except InvalidTag as exc:
            raise StorageError(f"{key.resource} {key.path} at revision {revision} is damaged in the database") from exc

    def check_value(self) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, _CHECK, _CHECK)

    def verify(self, check_value: bytes, path: Path) -> None:
        try:
            self._aead.decrypt(check_value[:_NONCE_BYTES], check_value[_NONCE_BYTES:], _CHECK)
        except InvalidTag as exc:
            raise StorageError(
                f"encryption key {path} does not belong to this database; put the right one back"
            ) from exc


def _bound_to(key: Key, revision: int) -> bytes:
    return f"{key.resource}\0{key.namespace}\0{key.name}\0{revision}".encode()
