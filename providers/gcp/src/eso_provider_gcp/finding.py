"""Finding secrets: ListSecrets gives ids and labels, then the latest version of every match is read.

The service filters where it can; the comparison here decides. A regional store lists its own location. A name wins over
tags. Keys of the result are ids.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_gcp.api import Api
from eso_provider_gcp.reading import Reader, ReadRequest, SecretValue
from eso_sdk.errors import invalid_request
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason
from eso_wire.values import FindQuery, Found, ValueMetadata

PAGE: Final = 1000
MAX_SECRETS: Final = 20_000
READ_AT_ONCE: Final = 200

_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_LABEL: Final = re.compile(r"[\w-]+")
_NO_VALUE: Final = frozenset({ErrorReason.SECRET_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND})


class Finder:
    """Finds the secrets of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching secrets with their values.

        Secrets without a value, or deleted since the listing, are left out. A disabled one is an error: leaving it out
        would remove its key from the target.
        """
        ids = await self.ids(query)
        for start in range(0, len(ids), READ_AT_ONCE):
            requests = [ReadRequest(each) for each in ids[start : start + READ_AT_ONCE]]
            results = await self._reader.results(requests)
            for request in requests:
                result = results[request]
                if isinstance(result, SecretValue):
                    metadata = ValueMetadata(provider_version=result.version)
                    yield Found(request.key, SecretBytes(result.value), metadata)
                elif result.reason not in _NO_VALUE:
                    raise result

    async def ids(self, query: FindQuery) -> list[str]:
        """Return the ids of all matching secrets, sorted. A find of everything is refused, as a path alone is."""
        if not query.name_regexp and not query.tags:
            raise invalid_request("find needs name.regexp or tags; to find all secrets, set name.regexp to .*")
        tags: Mapping[str, str] = {} if query.name_regexp else query.tags
        matcher = Matcher(FindQuery(path=query.path, name_regexp=query.name_regexp, tags=tags))
        request = {"parent": self._api.parent, "page_size": PAGE, "filter": _filter(query.path, tags)}
        ids: list[str] = []
        async for page in self._api.pages("ListSecrets", request, "secrets"):
            for secret in page:
                each = secret.name.rpartition("/")[2]
                if await matcher.accepts(each, dict(secret.labels)):
                    ids.append(each)
            if len(ids) > MAX_SECRETS:
                raise invalid_request(
                    f"more than {MAX_SECRETS} secrets match; narrow find.name, find.path or find.tags"
                )
        return sorted(ids)


def _filter(path: str, tags: Mapping[str, str]) -> str:
    """Return a filter that narrows the list as far as the service can. Unusual characters are compared here only."""
    parts = [f"name:{path}"] if _ID.fullmatch(path) else []
    parts += [f"labels.{k}={v}" for k, v in sorted(tags.items()) if _LABEL.fullmatch(k) and _LABEL.fullmatch(v)]
    return " ".join(parts)
