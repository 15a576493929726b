"""Registry logins that are exchanged for the token of a service account, and their expiry."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import jwt

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error
from eso_wire.values import Generated, ValueMetadata

LATEST: Final = datetime.max.replace(tzinfo=UTC).timestamp()


def registry_login(user: str, token: str, subject: str, more: Mapping[str, str] | None = None) -> Generated:
    """Return `auth` (base64 of USER:TOKEN), `expiry` (seconds since 1970) and more values; expires with the token."""
    expiry = _expiry(token, subject)
    values = {**(more or {}), "auth": base64.b64encode(f"{user}:{token}".encode()).decode(), "expiry": str(expiry)}
    data = {name: SecretBytes(text.encode()) for name, text in values.items()}
    return Generated(data, metadata=ValueMetadata(expires_at=datetime.fromtimestamp(expiry, UTC)))


def _expiry(token: str, subject: str) -> int:
    """Return the claim `exp` of a token. Only its issuer can verify the signature; we only pass the token on."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        expiry = claims.get("exp")
    except jwt.InvalidTokenError:
        expiry = None
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not 0 < expiry < LATEST:
        raise backend_error(f"{subject} sends a token without a time of expiry")
    return int(expiry)
