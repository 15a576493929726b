"""The address of an API server and our identity there: values that `config` creates and `transport` uses.

Credentials are excluded from every repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate with its key, both in PEM."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credential:
    """Our proof of identity: the whole Authorization header, a client certificate, both, or neither."""

    authorization: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None


class CredentialSource(Protocol):
    """A source of credentials. They may change at any time: tokens expire, files are rotated."""

    async def current(self) -> Credential: ...

    async def refreshed(self, rejected: Credential) -> Credential | None:
        """Return another credential after the server rejected one; None if there is no other."""
        ...


@dataclass(frozen=True, slots=True)
class Tls:
    """How to verify the server. Without `ca`, the machine's trusted authorities are used."""

    ca: bytes | None = None
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Connection:
    """The settings to reach one API server."""

    server: str
    credentials: CredentialSource = field(repr=False)
    tls: Tls = Tls()
    namespace: str = "default"
    proxy: str = field(default="", repr=False)  # may carry a password
    headers: tuple[tuple[str, str], ...] = ()  # impersonation
    origin: str = ""  # file and context, for messages
