"""Where an API server is and who we are to it: values that `config` makes and `transport` uses.

Anything that would let a reader act as us is kept out of every repr.
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
    """What proves who we are: the whole Authorization header, or a client certificate, or both, or nothing."""

    authorization: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None


class CredentialSource(Protocol):
    """Where credentials come from. They may change at any time: tokens expire, files are rotated."""

    async def current(self) -> Credential: ...

    async def refreshed(self, rejected: Credential) -> Credential | None:
        """Another credential after the server refused one; None when there is no other to try."""
        ...


@dataclass(frozen=True, slots=True)
class Tls:
    """How to recognise the server. No `ca` means the machine's own trusted authorities."""

    ca: bytes | None = None
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to talk to one API server."""

    server: str
    credentials: CredentialSource = field(repr=False)
    tls: Tls = Tls()
    namespace: str = "default"
    proxy: str = field(default="", repr=False)  # may carry a password
    headers: tuple[tuple[str, str], ...] = ()  # impersonation
    origin: str = ""  # which file and context, for messages
