"""The address of an API server and our identity there: values that `config` creates and `transport` uses.

Credentials are excluded from every repr.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kubebase.clock import Clock
from kuberun.errors import ConfigError


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


# --- Credentials from the fields of a kubeconfig and from files that another process rotates --------------------------
# For credentials from a program see `exec_plugin`.


REREAD_SECONDS = 60.0
"""Maximum age of credentials read from files. The kubelet rotates a token long before it expires."""

_LARGEST_FILE = 1 << 20


class ReadCredentials:
    """Credentials from a function that reads files; called again every minute, and when the server rejects them."""

    def __init__(self, read: Callable[[], Credential], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._credential: Credential | None = None
        self._read_at = 0.0

    async def current(self) -> Credential:
        if self._credential is None:
            return self._reread()
        if self._clock.monotonic() - self._read_at < REREAD_SECONDS:
            return self._credential
        try:
            return self._reread()
        except ConfigError:  # perhaps a rotation is under way; the old credential is valid until the server rejects it
            self._read_at = self._clock.monotonic()
            return self._credential

    async def refreshed(self, rejected: Credential) -> Credential | None:
        found = self._reread()
        return found if found != rejected else None

    def _reread(self) -> Credential:
        self._credential = self._read()
        self._read_at = self._clock.monotonic()
        return self._credential


class FixedCredentials:
    """One credential that never changes."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    async def refreshed(self, rejected: Credential) -> Credential | None:
        return self._credential if self._credential != rejected else None


def bearer(token: str, origin: str) -> str:
    """Return the Authorization header for a token; `origin` names the token's source in messages."""
    token = token.strip()
    if not token:
        raise ConfigError(f"{origin}: the token is empty; log in again or mount a service account token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{origin}: the token has characters that no token has; is it the right file?")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def read_file(path: Path, origin: str) -> bytes:
    """Read a small file; `origin` names the setting that refers to it in errors."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as exc:
        raise ConfigError(f"{origin}: cannot read {path}: {exc.strerror or type(exc).__name__}") from exc
    if len(data) > _LARGEST_FILE:
        raise ConfigError(f"{origin}: {path} is larger than 1 MiB; is it the right file?")
    return data
