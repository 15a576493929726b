"""How requests to a REST backend prove who sends them: fixed headers, or the token of a login."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Protocol

from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_config
from eso_sdk.logins import Login


class Authorization(Protocol):
    """The headers that authorize requests of one identity."""

    @property
    def proof(self) -> bytes:
        """Return a digest of the identity. Sessions with equal proofs share connections and limits."""
        ...

    @property
    def logs_in(self) -> bool:
        """Return whether a login judges the credentials. Then a 401 to a new token is about one resource."""
        ...

    async def headers(self) -> Mapping[str, str]: ...

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        """Replace headers that the backend rejected; return whether another attempt makes sense."""
        ...


class FixedHeaders:
    """Headers that do not change while the store is open."""

    logs_in = False

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = dict(headers or {})
        self.proof = digest(*(part for pair in sorted(self._headers.items()) for part in pair))

    def __repr__(self) -> str:
        return "<FixedHeaders>"

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        del rejected
        return False


class LoginHeaders:
    """Headers made from the token of a login."""

    logs_in = True

    def __init__(self, login: Login, proof: bytes, headers_of: Callable[[SecretBytes], Mapping[str, str]]) -> None:
        self._login = login
        self._headers_of = headers_of
        self._used: SecretBytes | None = None
        self.proof = proof

    def __repr__(self) -> str:
        return "<LoginHeaders>"

    async def headers(self) -> Mapping[str, str]:
        self._used = await self._login.token()
        return self._headers_of(self._used)

    async def replace(self, rejected: Mapping[str, str]) -> bool:
        """Log in again, unless the rejected headers were replaced meanwhile."""
        used = self._used
        if used is None or dict(self._headers_of(used)) != dict(rejected):
            return True
        return await self._login.replace(used)


def bearer(token: SecretBytes, field: str = "/auth") -> dict[str, str]:
    """Return the header for a bearer token. `field` names the place of the token in the configuration."""
    return {"Authorization": f"Bearer {header_text(token, field)}"}


def basic(user: SecretBytes, password: SecretBytes) -> dict[str, str]:
    """Return the header for a user and a password."""
    pair = user.reveal() + b":" + password.reveal()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def header_text(token: SecretBytes, field: str = "/auth") -> str:
    """Return a token for use in a header; raise if it is empty or has characters that no token has."""
    text = token.reveal().decode("ascii", "replace")
    if not text or not text.isprintable() or " " in text or "\ufffd" in text:
        raise invalid_config(
            field, "the token is empty, or has a blank, a line break or a character that no token has; check the Secret"
        )
    return text


def digest(*parts: str | bytes) -> bytes:
    """Digest parts so that no two lists of parts are mistaken for each other. It never leaves the process."""
    made = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        made.update(len(raw).to_bytes(8, "big") + raw)
    return made.digest()
