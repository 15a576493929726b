"""Requests to one GitLab: its address, the access token, and the errors of projects and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from yarl import URL

from eso_api.values import SecretBytes
from eso_sdk.authorization import FixedHeaders, header_text
from eso_sdk.backend import Backend
from eso_sdk.errors import invalid_config
from eso_sdk.rest import Rest, RestSettings, segments
from eso_wire.errors import ErrorReason, ProviderError

DEFAULT_URL: Final = "https://gitlab.com"
REFUSED: Final = (403, 404)

_API: Final = "/api/v4"


@dataclass(frozen=True, slots=True)
class Place:
    """A project or a group, by id or path."""

    collection: str
    """`projects` or `groups`."""
    id: str

    def __str__(self) -> str:
        return f'{self.collection.removesuffix("s")} "{self.id}"'

    def path(self, *more: str) -> str:
        return segments(self.collection, self.id, *more)


def project(place: str) -> Place:
    return Place("projects", place)


def group(place: str) -> Place:
    return Place("groups", place)


def base_of(url: str) -> URL:
    """Return the address of the API. `url` may contain its path already, as GitLab's own clients accept it."""
    try:
        base = URL((url or DEFAULT_URL).rstrip("/").removesuffix(_API) + _API)
    except ValueError:
        raise invalid_config("/url", "must be a URL such as https://gitlab.example.com") from None
    if base.scheme not in ("http", "https") or not base.host:
        raise invalid_config("/url", "must be a URL such as https://gitlab.example.com")
    if base.user is not None or base.password is not None:
        raise invalid_config("/url", "must not contain a user or a password")
    return base


def connect(backend: Backend[Any], url: str, token: SecretBytes, *, field: str, ca: bytes = b"") -> Rest:
    """Open the connection of a session. `field` names the token in the configuration."""
    base = base_of(url)
    settings = RestSettings(f"GitLab {base.origin()}", base, ca=ca)
    return Rest(backend, settings, FixedHeaders({"PRIVATE-TOKEN": header_text(token, field)}))


def refusal(status: int, place: Place, rights: str) -> ProviderError:
    """Return the error for a project or group that answers 403 or 404: neither says that a variable is absent."""
    problem = (
        f"{place} denies access; the access token needs {rights}"
        if status == 403
        else f"{place} does not exist, or the access token may not see it; check its id, and grant {rights}"
    )
    return ProviderError(ErrorReason.PERMISSION_DENIED, f"GitLab: {problem}", backend_code=str(status))
