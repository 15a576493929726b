"""Reading: values and maps of items, and finds over all items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_onepassword.items import Field, File, Item, Overview, all_parts_of, name_of, part_of, parts_of
from eso_provider_onepassword.vaultcache import VaultCache
from eso_sdk.batches import side_by_side
from eso_sdk.errors import invalid_request
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, Found, RemoteRef, ValueMetadata
from kubebase.clock import Clock

CONCURRENCY: Final = 8
"""Calls of one read at a time: a Connect server is small."""


class Reader:
    """Reads the items of one session."""

    def __init__(self, vault_cache: VaultCache, clock: Clock) -> None:
        self._vault_cache = vault_cache
        self._clock = clock
        self._gate = asyncio.Semaphore(CONCURRENCY)

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference; every item is read once."""
        located = {key: await self._located(key) for key in dict.fromkeys(ref.key for ref in refs)}
        overviews = {each.id: each for each in located.values() if isinstance(each, Overview)}
        items = dict(zip(overviews, await self._vault_cache.items(list(overviews.values())), strict=True))

        async def value(ref: RemoteRef) -> Value | ProviderError:
            located_item = located[ref.key]
            item = items[located_item.id] if isinstance(located_item, Overview) else located_item
            try:
                refuse_version(ref)
                return item if isinstance(item, ProviderError) else await self._value(item, ref)
            except ProviderError as failed:
                return failed

        return list(await side_by_side(refs, value, late=_late, gate=self._gate, clock=self._clock))

    async def map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        """Return all fields, or all files of a document, by label or name."""
        refuse_version(ref)
        item = await self._vault_cache.find(ref.key)
        found: dict[str, bytes] = {}
        for part in parts_of(item, ref.property):
            name = name_of(part)
            if name in found:
                raise invalid_request(f'"{ref.key}" has several parts named "{name}"; rename all but one in 1Password')
            found[name] = await self._content(item, part)
        if ref.property and not found:
            part_of(item, ref.key, ref.property)  # raises
        return found

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether an item exists, and its field if a property names one."""
        item = await self._vault_cache.find(ref.key)
        if ref.property:
            part_of(item, ref.key, ref.property)
        return Check(exists=True, version=item.overview.version)

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield fields and files whose names match, of the items with the title and all tags; the first one wins."""
        matcher = Matcher(FindQuery(name_regexp=query.name_regexp))
        overviews = [each for each in await self._vault_cache.overviews() if _is_asked_for(each, query)]
        known: set[str] = set()
        for item in await self._vault_cache.items(overviews):
            if isinstance(item, ProviderError):
                raise item
            for part in all_parts_of(item):
                name = name_of(part)
                if name not in known and await matcher.accepts(name):
                    known.add(name)
                    yield Found(name, SecretBytes(await self._content(item, part)), _metadata(item))

    async def _located(self, key: str) -> Overview | ProviderError:
        try:
            return await self._vault_cache.locate(key)
        except ProviderError as failed:
            return failed

    async def _value(self, item: Item, ref: RemoteRef) -> Value:
        raw = await self._content(item, part_of(item, ref.key, ref.property))
        return Value(SecretBytes(raw), _metadata(item))

    async def _content(self, item: Item, part: Field | File) -> bytes:
        return part.value.encode() if isinstance(part, Field) else await self._vault_cache.content(item, part)


def refuse_version(ref: RemoteRef) -> None:
    if ref.version:
        message = f'1Password gives no access to versions of an item, also not to "{ref.version}" of "{ref.key}"'
        raise ProviderError(ErrorReason.VERSION_NOT_FOUND, f"{message}; remove remoteRef.version")


def _is_asked_for(overview: Overview, query: FindQuery) -> bool:
    """Return whether an item has the title and all tags of a query. Tags of 1Password have no values."""
    return query.path in ("", overview.title) and set(query.tags) <= set(overview.tags)


def _metadata(item: Item) -> ValueMetadata:
    return ValueMetadata(provider_version=item.overview.version)


def _late(_request: object, error: ProviderError) -> ProviderError:
    return error
