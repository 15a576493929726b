"""A configured login of any form: whom it proves, and its body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from eso_api.references import SecretKeySelector
from eso_api.stores.akeyless import AkeylessProvider
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config

Opened = Backend[AkeylessProvider]
Body = Mapping[str, str]
MakeBody = Callable[[], Awaitable[Body]]


@dataclass(frozen=True, slots=True)
class Form:
    """One configured login."""

    name: str
    """The form, for messages."""
    proof: tuple[str, ...] = field(repr=False)
    """Everything that determines the identity. Equal for all sessions that may share a token."""
    body: MakeBody = field(repr=False)
    advice: str
    """What to check when Akeyless rejects the login."""


def text(store: Opened, reference: SecretKeySelector | None, place: str) -> str:
    """Return a part of the credentials, without the line break that editors leave at its end."""
    if reference is None or not reference.name:
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
