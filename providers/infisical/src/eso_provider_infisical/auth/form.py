"""A configured login of any form: where it is sent, whom it proves, and its body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from eso_api.references import SecretKeySelector
from eso_api.stores.infisical import InfisicalProvider
from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_config
from kubebase.clock import Clock

Body = Mapping[str, Any]
MakeBody = Callable[[], Awaitable[Body]]


class Opened(Protocol):
    """The part of an opened store that logins need."""

    config: InfisicalProvider
    clock: Clock

    def secret(self, reference: SecretKeySelector) -> SecretBytes: ...


@dataclass(frozen=True, slots=True)
class Form:
    """One configured login."""

    name: str
    """The field of `auth`."""
    method: str
    """The segment of the login path."""
    call: str
    """The name of the call in metrics."""
    proof: tuple[str, ...] = field(repr=False)
    """Everything that determines the identity. Equal for all sessions that may share a token."""
    body: MakeBody = field(repr=False)
    advice: str
    """What to check when Infisical rejects the login."""

    @property
    def path(self) -> str:
        return f"v1/auth/{self.method}/login"


def text(store: Opened, reference: SecretKeySelector, place: str) -> str:
    """Return a part of the credentials, without the line break that editors leave at its end."""
    if not reference.name:
        raise invalid_config(place, "is needed: name the Secret and the key")
    try:
        found = store.secret(reference).reveal().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise invalid_config(place, "names a value that is not UTF-8 text") from None
    if not found:
        raise invalid_config(place, "names an empty value")
    return found


def optional_text(store: Opened, reference: SecretKeySelector | None, place: str) -> str:
    return text(store, reference, place) if reference is not None and reference.name else ""


def fixed(body: Body) -> MakeBody:
    """Return a maker of a body that does not change."""

    async def make() -> Body:
        return body

    return make
