"""Finding secrets: ListSecrets returns names and tags, then the values of matching secrets are read in batches.

The service filters where it can. Its filters match prefixes, and match keys and values of tags separately, so the
comparison here decides. Keys of the result are full names.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.secrets.reading import Secret, SecretReader, SecretRequest
from eso_sdk.errors import invalid_request
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason
from eso_wire.values import FindQuery, Found, ValueMetadata

PAGE: Final = 100
MAX_SECRETS: Final = 20_000
READ_AT_ONCE: Final = 200

_PLAIN: Final = re.compile(r"[A-Za-z0-9/_+=.@:-]+")
"""The characters allowed in a filter; an exclamation mark would negate it."""
_NO_VALUE: Final = frozenset({ErrorReason.SECRET_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND})


class SecretFinder:
    """Finds the secrets of one session."""

    def __init__(self, api: Api, reader: SecretReader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching secrets with their values.

        Secrets without a value, or deleted since the listing, are left out.
        """
        names = await self.names(query)
        for start in range(0, len(names), READ_AT_ONCE):
            requests = [SecretRequest(name) for name in names[start : start + READ_AT_ONCE]]
            results = await self._reader.results(requests)
            for request in requests:
                result = results[request]
                if isinstance(result, Secret):
                    yield _found(request.secret_id, result)
                elif result.reason not in _NO_VALUE:
                    raise result

    async def names(self, query: FindQuery) -> list[str]:
        """Return the names of all matching secrets, sorted."""
        matcher = Matcher(query)
        names: list[str] = []
        async for page in self._api.pages("ListSecrets", MaxResults=PAGE, **_narrowed(query)):
            for secret in page.get("SecretList", ()):
                tags = {tag["Key"]: tag.get("Value", "") for tag in secret.get("Tags", ())}
                if not secret.get("DeletedDate") and await matcher.accepts(secret["Name"], tags):
                    names.append(secret["Name"])
            if len(names) > MAX_SECRETS:
                raise invalid_request(
                    f"more than {MAX_SECRETS} secrets match; narrow find.name, find.path or find.tags"
                )
        return sorted(names)


def _narrowed(query: FindQuery) -> dict[str, Any]:
    """Return list filters that narrow the search as far as the service can."""
    criteria = (("name", query.path), ("tag-key", min(query.tags, default="")))
    filters = [{"Key": key, "Values": [text]} for key, text in criteria if _PLAIN.fullmatch(text)]
    return {"Filters": filters} if filters else {}


def _found(name: str, secret: Secret) -> Found:
    metadata = ValueMetadata(provider_version=secret.version_id, updated_at=secret.created)
    return Found(name, SecretBytes(secret.value), metadata)
