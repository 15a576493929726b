"""Bitwarden behind its companion server, which has Bitwarden's own SDK inside.

Every request carries the access token; the server logs in with it each time. Reads are GET requests with a JSON body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eso_api.stores.bitwarden import BitwardenProvider
from eso_provider_bitwarden.client import Draft, Entry, Listed
from eso_provider_bitwarden.failures import MISSING, failure_of
from eso_sdk.errors import backend_error, not_found
from eso_sdk.rest import Rest, RestRequest, RestResponse

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
