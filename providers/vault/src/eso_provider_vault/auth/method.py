"""A login method of any kind: its mount, its identity, and the login request."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from yarl import URL

from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_config
from eso_sdk.processidentity import ProcessIdentity
from eso_sdk.refusals import Pauses
from eso_wire.values import Token
from kubebase.clock import Clock

Body = Mapping[str, str]
MakeBody = Callable[[], Awaitable[Body]]


class Secrets(Protocol):
    """The part of a session that login methods need."""

    clock: Clock
    process_identity: ProcessIdentity

    def secret(self, reference: SecretKeySelector) -> SecretBytes: ...

    def token(self, reference: ServiceAccountSelector) -> Token: ...


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Certificate and key for the connection that logs in, in PEM."""

    certificate: SecretBytes
    key: SecretBytes


@dataclass(frozen=True, slots=True)
class Method:
    """One configured login."""

    name: str
    """The field of `auth` that configures it."""
    mount: str
    who: tuple[str, ...]
    """Role or user, and everything else that determines the identity. Equal for all sessions of one identity."""
    body: MakeBody = field(repr=False)
    proof: bytes = field(repr=False)
    """A digest of the credentials, or of the account whose tokens are replaced all the time."""
    label: str = ""
    """Role or user, for messages."""
    user: str = ""
    """The last segment of the login path, for methods with users."""
    certificate: ClientCertificate | None = None
    pauses: Pauses = field(default_factory=Pauses)
    advice: str = ""
    """What to check when the server rejects the login."""

    @property
    def path(self) -> str:
        return f"auth/{self.mount}/login/{self.user}" if self.user else f"auth/{self.mount}/login"

    @property
    def field(self) -> str:
        return f"/auth/{self.name}"


def digest(*parts: bytes | SecretBytes | str) -> bytes:
    """Hash credentials. Lengths separate "ab" and "c" from "a" and "bc"."""
    hashed = hashlib.sha256()
    for part in parts:
        raw = part.reveal() if isinstance(part, SecretBytes) else part.encode() if isinstance(part, str) else part
        hashed.update(len(raw).to_bytes(8, "big"))
        hashed.update(raw)
    return hashed.digest()


def mount_of(path: str, otherwise: str, pointer: str) -> str:
    """Return the mount of a method without slashes at its ends; raise if the server would read it as another path."""
    mount = (path or otherwise).strip("/")
    if not mount or any(segment in ("", ".", "..") for segment in mount.split("/")) or not mount.isprintable():
        raise invalid_config(pointer, "must be the path of an auth method below auth/, such as kubernetes or team/jwt")
    return mount


def needed(reference: SecretKeySelector | None, pointer: str, what: str) -> SecretKeySelector:
    """Return a reference that the method cannot do without."""
    if reference is None or not reference.name:
        raise invalid_config(pointer, f"is needed: name the Secret and the key that hold {what}")
    return reference


def named(value: str, pointer: str, what: str) -> str:
    """Return a trimmed name that must not be empty."""
    if not (trimmed := value.strip()):
        raise invalid_config(pointer, f"is needed: {what}")
    return trimmed


def text(value: SecretBytes, pointer: str) -> str:
    """Return a credential as text, as it is."""
    try:
        return value.reveal().decode()
    except UnicodeDecodeError:
        raise invalid_config(pointer, "names a value that is not UTF-8 text") from None


def line(value: SecretBytes, pointer: str) -> str:
    """Return a credential that never holds line breaks, without the one that editors leave at its end."""
    if not (found := text(value, pointer).strip("\r\n")):
        raise invalid_config(pointer, "names an empty value")
    return found


def own_identity(secrets: Secrets, own: str, server: str, pointer: str, instead: str) -> None:
    """Refuse to log in with the identity of the provider itself, unless its administrator allows it for this server."""
    secrets.process_identity.use(own, field=pointer, instead=instead)
    secrets.process_identity.prove(own, URL(server), field="/server")


def fixed(body: Body) -> MakeBody:
    """Return a maker of a body that does not change."""

    async def make() -> Body:
        return body

    return make


def same_account(token: Token) -> tuple[str, ...]:
    """Return what identifies the ServiceAccount of a token; nothing if an older operator does not say."""
    return (token.namespace, token.name, token.uid, *token.audiences) if token.name and token.uid else ()


def account_proof(token: Token) -> bytes:
    """Return a digest of the account, or of the token if the account is not known."""
    account = same_account(token)
    return digest(*account) if account else digest(token.token)
