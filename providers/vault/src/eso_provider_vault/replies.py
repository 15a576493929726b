"""One decoded response of a server, with the address of its request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from eso_provider_vault.documents import Json, Members, at, members

_OK: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a server. `repr` shows nothing of the body: it may contain secrets or repeat the request."""

    status: int
    json: Json = field(repr=False)
    """The decoded body; None when it is empty."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Header names are lower-case."""
    is_json: bool = True
    """False if the body is not a JSON object: then a proxy responded, not Vault."""

    @property
    def ok(self) -> bool:
        return self.status in _OK

    @property
    def data(self) -> Members:
        return members(at(self.json, "data"))

    @property
    def errors(self) -> tuple[str, ...] | None:
        """Return the list `errors`, to classify by; never quote it. None if the body has none."""
        found = at(self.json, "errors")
        return tuple(str(entry) for entry in found) if isinstance(found, list) else None

    def mentions(self, text: str) -> bool:
        """Return whether an error of the body has this text."""
        return any(text in error.lower() for error in self.errors or ())


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Server, namespace and path of a request, for messages."""

    server: str
    path: str
    namespace: str = ""
    has_auth: bool = True
    """False if the store has no `auth`: then its requests carry no token."""

    def __str__(self) -> str:
        inside = f', namespace "{self.namespace}"' if self.namespace else ""
        return f'"{self.path}" (server {shown(self.server)}{inside})'


def shown(server: str) -> str:
    """Return an address for messages, without user and password."""
    parts = urlsplit(server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
