"""Finding parameters: by hierarchy with values at once, or listed first and read ten at a time.

| query | calls |
|---|---|
| names below a path | GetParametersByPath, recursive |
| the same, where that is denied | DescribeParameters, then GetParameters |
| tags | DescribeParameters with a filter for each tag, then GetParameters |

The root has all parameters, also those whose names do not begin with a slash.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.parameters.reading import Address, Parameter, ParameterReader, ParameterRequest
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, Found

ROOT: Final = "/"
PAGE: Final = 50
"""Most that DescribeParameters lists at a time."""
READ_AT_ONCE: Final = 100
"""Names that are read together; full batches, however few names of a page match."""


class ParameterFinder:
    """Finds parameters of one session."""

    def __init__(self, api: Api, reader: ParameterReader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching parameters with their values. A name wins over tags."""
        path = f"/{query.path.strip('/')}"
        matcher = Matcher(FindQuery(name_regexp=query.name_regexp))
        if query.tags and not query.name_regexp:
            tags = [_filter(f"tag:{key}", "Equals", value) for key, value in query.tags.items()]
            async for found in self._listed(tags, path, matcher):
                yield found
            return
        yielded: set[str] = set()
        try:
            async for found in self._below(path, matcher):
                yielded.add(found.key)
                yield found
        except ProviderError as failed:
            if failed.reason is not ErrorReason.PERMISSION_DENIED:
                raise
            # The call itself may be denied, or the KMS key of a parameter that does not even match.
            async for found in self._listed([], path, matcher, denied=failed):
                if found.key not in yielded:
                    yield found

    async def _below(self, path: str, matcher: Matcher) -> AsyncIterator[Found]:
        about = f'parameters below "{path}"'
        async for page in self._api.pages(
            "GetParametersByPath", about=about, Path=path, Recursive=True, WithDecryption=True
        ):
            for entry in page.get("Parameters", ()):
                if await matcher.accepts(entry["Name"]):
                    yield _found(entry["Name"], Parameter.of(entry))

    async def _listed(
        self, filters: Sequence[dict[str, Any]], path: str, matcher: Matcher, *, denied: ProviderError | None = None
    ) -> AsyncIterator[Found]:
        """List names, then read those that match. `denied` is the error that made the listing necessary."""
        below = [] if path == ROOT else [_filter("Path", "Recursive", path)]
        unread: list[str] = []
        async for names in self._names([*filters, *below], path, denied):
            unread += [name for name in names if await matcher.accepts(name)]
            while len(unread) >= READ_AT_ONCE:
                for found in await self._values(unread[:READ_AT_ONCE]):
                    yield found
                del unread[:READ_AT_ONCE]
        for found in await self._values(unread):
            yield found

    async def _names(
        self, filters: list[dict[str, Any]], path: str, denied: ProviderError | None
    ) -> AsyncIterator[list[str]]:
        about = f'parameters below "{path}"'
        try:
            async for page in self._api.pages(
                "DescribeParameters", about=about, ParameterFilters=filters, MaxResults=PAGE
            ):
                yield [entry["Name"] for entry in page.get("Parameters", ())]
        except ProviderError as failed:
            # The permission to read a hierarchy is the one to name: it needs fewer calls.
            raise (denied if denied and failed.reason is ErrorReason.PERMISSION_DENIED else failed) from None

    async def _values(self, names: Sequence[str]) -> list[Found]:
        """Return the values of listed parameters.

        Parameters deleted since then are left out; other errors are raised.
        """
        results = await self._reader.results(ParameterRequest(Address(name)) for name in names)
        found: list[Found] = []
        for request, result in results.items():
            if isinstance(result, Parameter):
                found.append(_found(request.address.name, result))
            elif result.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise result
        return found


def _filter(key: str, option: str, value: str) -> dict[str, Any]:
    return {"Key": key, "Option": option, "Values": [value]}


def _found(name: str, parameter: Parameter) -> Found:
    return Found(name, SecretBytes(parameter.value), parameter.metadata)
