"""Finding secrets: the list has names and tags, then the values of matching secrets are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_azure.api import Api, vault_itself
from eso_provider_azure.names import Kind, Name
from eso_provider_azure.objects import Stored, tags_of
from eso_provider_azure.reading import Reader, ReadRequest
from eso_sdk.errors import invalid_request
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason
from eso_wire.values import FindQuery, Found

MAX_SECRETS: Final = 20_000
READ_AT_ONCE: Final = 200


class Finder:
    """Finds the secrets of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching secrets with their values. Secrets that were deleted since the listing are left out."""
        names = await self._names(query)
        for start in range(0, len(names), READ_AT_ONCE):
            requests: list[ReadRequest] = [
                (Name(Kind.SECRET, name), "") for name in names[start : start + READ_AT_ONCE]
            ]
            results = await self._reader.results(requests)
            for request in requests:
                result = results[request]
                if isinstance(result, Stored):
                    yield Found(request[0].name, SecretBytes(result.value), result.metadata)
                elif result.reason is not ErrorReason.SECRET_NOT_FOUND:
                    raise result

    async def _names(self, query: FindQuery) -> list[str]:
        """Return the names of all enabled secrets that match, sorted. A path has always been ignored."""
        matcher = Matcher(replace(query, path=""))
        names: list[str] = []
        listed = self._api.vault.secrets.list_properties_of_secrets().by_page()
        async for page in self._api.pages(vault_itself(self._api.vault, Kind.SECRET), listed):
            names += [each.name for each in page if each.enabled and await matcher.accepts(each.name, tags_of(each))]
            if len(names) > MAX_SECRETS:
                raise invalid_request(f"more than {MAX_SECRETS} secrets match; narrow find.name or find.tags")
        return sorted(names)
