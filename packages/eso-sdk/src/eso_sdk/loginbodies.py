"""The body of a login: texts of credentials, and bodies that stay the same.

key = text(self, auth.key_ref, "/auth/keyRef")        raises invalid_config if the value cannot be a credential
body = fixed({"key": key})                            for a form of login that makes no body of its own
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from eso_api.references import SecretKeySelector
from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_config

Body = Mapping[str, Any]
MakeBody = Callable[[], Awaitable[Body]]


class Keyring(Protocol):
    """An opened store or generator, as far as its credentials go."""

    def secret(self, reference: SecretKeySelector, /) -> SecretBytes: ...


def text(keyring: Keyring, reference: SecretKeySelector | None, field: str) -> str:
    """Return a part of the credentials, without the line break that editors leave at its end."""
    if reference is None or not reference.name:
        raise invalid_config(field, "is needed: name the Secret and the key")
    try:
        found = keyring.secret(reference).reveal().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise invalid_config(field, "names a value that is not UTF-8 text") from None
    if not found:
        raise invalid_config(field, "names an empty value")
    return found


def optional_text(keyring: Keyring, reference: SecretKeySelector | None, field: str) -> str:
    """Return a part of the credentials as `text` does, and an empty text if none is named."""
    return text(keyring, reference, field) if reference is not None and reference.name else ""


def fixed(body: Body) -> MakeBody:
    """Return a maker of a body that does not change."""

    async def make() -> Body:
        return body

    return make
