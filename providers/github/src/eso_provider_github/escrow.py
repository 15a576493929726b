"""The state of a generated token: the token itself, encrypted so that only the App's private key opens it.

GitHub revokes a token of an installation only at the request of its bearer, and the operator keeps states in the
cluster, where more people may read them than Secrets. So the state holds the token in AES-256-GCM under a key that is
derived from the App's private key. Whoever has that key can issue tokens anyway.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from datetime import UTC, datetime
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eso_api.values import SecretBytes
from eso_provider_github.app import App, Issued
from eso_sdk.errors import invalid_request

_PURPOSE: Final = b"eso-provider-github: state of a generated token"
_NONCE: Final = 12


class TokenState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state as the operator stores it."""

    expires_at: datetime
    sealed: str
    """Nonce and encrypted token, in base64."""

    def has_expired(self, now: datetime) -> bool:
        expiry = self.expires_at if self.expires_at.tzinfo else self.expires_at.replace(tzinfo=UTC)
        return expiry <= now


def deposit(app: App, place: str, issued: Issued) -> SecretBytes:
    """Return the state for a token. `place` names the API and the installation; the state opens only there."""
    nonce = secrets.token_bytes(_NONCE)
    sealed = nonce + _cipher(app).encrypt(nonce, issued.token.encode(), place.encode())
    state = TokenState(expires_at=issued.expiry, sealed=base64.b64encode(sealed).decode())
    return SecretBytes(msgspec.json.encode(state))


def read(state: SecretBytes) -> TokenState:
    try:
        return msgspec.json.decode(state.reveal(), type=TokenState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise invalid_request("the state is not that of a GithubAccessToken") from None


def withdraw(app: App, place: str, state: TokenState) -> SecretBytes | None:
    """Return the token of a state; None if another key or place sealed it."""
    try:
        sealed = base64.b64decode(state.sealed, validate=True)
        return SecretBytes(_cipher(app).decrypt(sealed[:_NONCE], sealed[_NONCE:], place.encode()))
    except (binascii.Error, ValueError, InvalidTag):
        return None


def _cipher(app: App) -> AESGCM:
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=_PURPOSE).derive(app.secret.reveal()))
