"""Encrypts values for GitHub: sealed boxes of libsodium, which only the holder of the private key can open."""

from __future__ import annotations

import base64
import binascii

import msgspec
from nacl.exceptions import CryptoError
from nacl.public import PublicKey, SealedBox

from eso_sdk.errors import backend_error


class PublishedKey(msgspec.Struct, frozen=True, gc=False):
    """The public key of an organization, a repository or an environment."""

    key_id: str
    key: str

    def seal(self, value: bytes) -> str:
        """Return the encrypted value, as GitHub expects it."""
        try:
            box = SealedBox(PublicKey(base64.b64decode(self.key, validate=True)))
        except (CryptoError, TypeError, ValueError, binascii.Error):
            raise backend_error("GitHub published a key that is not a public key of libsodium") from None
        return base64.b64encode(box.encrypt(value)).decode()
