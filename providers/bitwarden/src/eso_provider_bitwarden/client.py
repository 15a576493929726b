"""Secrets of one organization as the store reads them, through the companion server or the native SDK."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from eso_api.stores.bitwarden import BitwardenProvider
from eso_sdk.errors import backend_error, error_for_status, not_found
from eso_sdk.http import HttpResponse
from eso_sdk.rest import Rest, RestRequest, RestResponse
from eso_wire.errors import ProviderError


class Entry(msgspec.Struct, rename={"organization_id": "organizationId", "project_id": "projectId"}, frozen=True):
    """One secret."""

    id: str
    key: str
    value: str
    note: str = ""
    organization_id: str = ""
    project_id: str | None = None

    def __repr__(self) -> str:
        return f"<secret {self.id}>"


class Listed(msgspec.Struct, rename={"project_ids": "projectIds"}, frozen=True):
    """One secret without its value. Older companion servers do not list the projects: then they are None."""

    id: str
    key: str
    project_ids: list[str] | None = None

    def may_be_in(self, project: str) -> bool:
        return self.project_ids is None or project in self.project_ids


class Draft(msgspec.Struct, frozen=True):
    """A secret to write."""

    key: str
    value: str
    note: str

    def __repr__(self) -> str:
        return f"<draft of {self.key}>"


class BitwardenClient(Protocol):
    """Calls to Bitwarden with one access token."""

    async def listed(self) -> list[Listed]:
        """Return everything of the organization that the machine account can read."""
        ...

    async def get(self, identifier: str) -> Entry | None:
        """Return one secret; None if Bitwarden has none for this machine account."""
        ...

    async def get_all(self, identifiers: Sequence[str]) -> list[Entry]:
        """Return secrets that were listed just now; those that are gone meanwhile are left out."""
        ...

    async def create(self, draft: Draft) -> None: ...

    async def update(self, identifier: str, draft: Draft) -> None: ...

    async def delete(self, identifier: str) -> None: ...

    async def close(self) -> None: ...


# ---------------------------------------------------------------------------------------------------------------------
# What failed at Bitwarden, from the text of its SDK: the companion server passes that text on, with status 400.
#
# The text may quote the request, so only a status and a few fixed terms are searched, and nothing of it is repeated.


MISSING: Final = 404
UNCLEAR: Final = 400

_REJECTED: Final = 401
_UNREACHED: Final = 503
_WRAPPED: Final = frozenset({400, 500})
"""Statuses of the companion server that come with a text of the SDK."""
_STATUS: Final = re.compile(r"\[(\d{3})[ \]]")
_NO_RESPONSE: Final = ("error sending request", "dns error", "timed out", "onnection", "builder error")
_LOGIN: Final = ("failed to login", "ccess token", "invalid_client", "decryption key", "not authenticated")


def meaning(text: str, *, login: bool = False) -> int:
    """Return the status that a text of the SDK means."""
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    if status == 429 or status >= 500:
        return status
    if not status and any(term in text for term in _NO_RESPONSE):
        return _UNREACHED
    if login or status == _REJECTED or any(term in text for term in _LOGIN):
        return _REJECTED
    return status or UNCLEAR


def status_of(response: HttpResponse) -> int:
    """Return the status of Bitwarden behind a response of the companion server."""
    if response.status not in _WRAPPED:
        return response.status
    return meaning(response.body.decode("utf-8", "replace"))


def failure_of(text: str, subject: str, *, login: bool = False) -> ProviderError:
    """Return the error for a text of the SDK."""
    status = meaning(text, login=login)
    return error_for_status(status, subject) or backend_error(f"{subject} responds with HTTP {status}")


# --- Bitwarden behind its companion server, which has Bitwarden's own SDK inside -------------------------------------
#
# Every request carries the access token; the server logs in with it each time. Reads are GET requests with a JSON body.


AT_ONCE: Final = 8

_ONE: Final = "rest/api/1/secret"
_MANY: Final = "rest/api/1/secrets"
_BY_IDS: Final = "rest/api/1/secrets-by-ids"
_NO_PATH: Final = b"404 page not found"


class _List(msgspec.Struct, frozen=True):
    data: list[Listed] | None = None


class _Entries(msgspec.Struct, frozen=True):
    data: list[Entry] | None = None


class _Deleted(msgspec.Struct, frozen=True):
    id: str
    error: str | None = None


class _Deletions(msgspec.Struct, frozen=True):
    data: list[_Deleted] = []


class Companion:
    """Requests of one session."""

    def __init__(self, rest: Rest, config: BitwardenProvider) -> None:
        self._rest = rest
        self._config = config
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._one_by_one = False
        """Whether the server is too old for reading many secrets at once."""

    async def listed(self) -> list[Listed]:
        response = await self._send("GET", _MANY, "ListSecrets", {"organizationID": self._config.organization_id})
        if response is None:
            raise backend_error(f"{self._rest.settings.subject} knows no organization with the id of organizationID")
        return response.read(_List).data or []

    async def get(self, identifier: str) -> Entry | None:
        async with self._gate:
            response = await self._send("GET", _ONE, "GetSecret", {"id": identifier})
        return None if response is None else response.read(Entry)

    async def get_all(self, identifiers: Sequence[str]) -> list[Entry]:
        if len(identifiers) > 1 and not self._one_by_one:
            request = RestRequest(
                "GET", _BY_IDS, "GetSecretsByIds", json={"ids": list(identifiers)}, allowed=(MISSING, 405)
            )
            response = await self._rest.send(request)
            if response.status == 200:
                return response.read(_Entries).data or []
            # One that is gone makes Bitwarden refuse all; an old server does not have the path.
            self._one_by_one = response.status == 405 or _NO_PATH in response.body
        found = await asyncio.gather(*(self.get(each) for each in identifiers))
        return [entry for entry in found if entry is not None]

    async def create(self, draft: Draft) -> None:
        await self._written("POST", "CreateSecret", draft, {})

    async def update(self, identifier: str, draft: Draft) -> None:
        await self._written("PUT", "UpdateSecret", draft, {"id": identifier})

    async def delete(self, identifier: str) -> None:
        response = await self._send("DELETE", _ONE, "DeleteSecret", {"ids": [identifier]})
        for each in response.read(_Deletions).data if response is not None else ():
            if each.error:
                raise failure_of(each.error, self._rest.settings.subject)

    async def close(self) -> None:
        await self._rest.close()

    async def _written(self, method: str, call: str, draft: Draft, more: dict[str, str]) -> None:
        body = {
            **more,
            "key": draft.key,
            "value": draft.value,
            "note": draft.note,
            "organizationId": self._config.organization_id,
            "projectIds": [self._config.project_id],
        }
        if await self._send(method, _ONE, call, body) is None:
            raise not_found(draft.key)

    async def _send(self, method: str, path: str, call: str, body: Any) -> RestResponse | None:
        """Send a request; return None if Bitwarden responds with 404."""
        response = await self._rest.send(RestRequest(method, path, call, json=body, allowed=(MISSING,)))
        if response.status == MISSING and _NO_PATH in response.body:
            raise backend_error(f"{self._rest.settings.subject} does not know the path {path}; check its address")
        return None if response.status == MISSING else response
