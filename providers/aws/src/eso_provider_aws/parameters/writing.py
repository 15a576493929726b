"""Writing parameters: all values pushed to one parameter become one new version, or none if nothing changed.

    read value and tags -> may we write it? -> set every item -> differs: PutParameter -> update tags

| existing parameter | what a push does |
|---|---|
| nothing | PutParameter with tags and overwrite off; if another writer created it first, the round starts again |
| ours | PutParameter with overwrite on if value or type differ; then tags, if the metadata names any |
| without our tag `managed-by` | nothing: OWNERSHIP_CONFLICT |

Parameter Store compares no versions. Writes of one session to one parameter wait for each other; between processes the
last writer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

from eso_provider_aws.api import Api
from eso_provider_aws.ownership import DESCRIPTION, MARK, foreign, listed, owner_of
from eso_provider_aws.parameters.metadata import ParameterMetadata, merged, metadata_of
from eso_provider_aws.parameters.names import name_to_write
from eso_provider_aws.parameters.reading import KIND, Reader, about
from eso_provider_aws.parameters.requests import payload_of, put_request, refused_write
from eso_sdk.drafts import Draft, removed
from eso_sdk.provider import Pushed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, PushPrecondition

ATTEMPTS: Final = 3
_RESERVED: Final = "aws:"
"""The prefix of tags that AWS sets itself; they cannot be removed."""


class ConflictError(Exception):
    """Another writer created the parameter between our read and our write."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The parameter before a write."""

    value: bytes | None = field(default=None, repr=False)
    type: str = ""
    version: int = 0
    tags: dict[str, str] = field(default_factory=dict)

    def is_of(self, owner: str) -> bool:
        return self.tags.get(MARK) == owner


class Writer:
    """Writes the parameters of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem], _call_key: str = "") -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        name = name_to_write(self._reader.key(items[0].remote.key))
        async with self._alone(name):
            for _ in range(ATTEMPTS):
                try:
                    return await self._push(name, items)
                except ConflictError:
                    continue
        raise self._contended(name)

    async def delete(self, items: Sequence[DeleteItem], _call_key: str = "") -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        try:
            name = name_to_write(self._reader.key(items[0].remote.key))
        except ProviderError:
            return [False] * len(items)  # nothing can have been pushed there
        async with self._alone(name):
            standing = await self._standing(name, valued=any(item.remote.property for item in items))
            if standing is None or not standing.is_of(owner_of(items)):
                return [False] * len(items)
            draft = Draft(standing.value)
            outcomes = [await removed(draft, item) for item in items]
            if True not in outcomes:
                return outcomes
            if draft.value is not None:
                told = merged(metadata_of(item) for item in items)
                await self._overwrite(name, draft.value, told, standing)
            elif not await self._remove(name):
                return [False] * len(items)
            return outcomes

    @asynccontextmanager
    async def _alone(self, name: str) -> AsyncIterator[None]:
        """Serialise the writes of one store to one parameter."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            yield

    # --- one attempt -------------------------------------------------------------------------------------------------

    async def _push(self, name: str, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        standing = await self._standing(name)
        owner = owner_of(items)
        draft = Draft(standing.value if standing else None)
        told: list[ParameterMetadata] = []
        outcomes = [await self._set(item, draft, standing, told) for item in items]
        if not told or draft.value is None:
            return outcomes
        metadata = merged(told)
        if standing is None:
            version = await self._create(name, draft.value, metadata, owner)
            return [_reported(outcome, PushOutcome.CREATED, version) for outcome in outcomes]
        version, changed = standing.version, False
        if draft.value != standing.value or metadata.secret_type not in (None, standing.type):
            version, changed = await self._overwrite(name, draft.value, metadata, standing), True
        changed |= await self._align_tags(name, metadata, standing, owner)
        outcome = PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED
        return [_reported(each, outcome, version) for each in outcomes]

    async def _set(
        self, item: PushItem, draft: Draft, standing: Standing | None, told: list[ParameterMetadata]
    ) -> Pushed | ProviderError:
        """Put one item into the draft, and collect its metadata."""
        try:
            if item.precondition is PushPrecondition.IF_ABSENT and standing and await draft.has(item.remote.property):
                return Pushed(PushOutcome.SKIPPED_EXISTS)
            if standing is not None and not standing.is_of(owner_of([item])):
                name = self._reader.key(item.remote.key)
                raise foreign(str(self._api.asked("PutParameter", about(name))))
            metadata = metadata_of(item)
            await draft.put(item.remote.key, item.remote.property, payload_of(item, metadata))
        except ProviderError as refused:
            return refused
        told.append(metadata)
        return Pushed(PushOutcome.UNCHANGED)

    async def _align_tags(self, name: str, metadata: ParameterMetadata, standing: Standing, owner: str) -> bool:
        """Set exactly the tags of the metadata, if it names any; return whether a tag changed."""
        if metadata.tags is None:
            return False
        wanted = {**metadata.tags, MARK: owner}
        obsolete = [key for key in standing.tags if key not in wanted and not key.startswith(_RESERVED)]
        missing = {key: value for key, value in wanted.items() if standing.tags.get(key) != value}
        of = {"about": about(name), "ResourceType": KIND, "ResourceId": name}
        if obsolete:
            await self._api.call("RemoveTagsFromResource", **of, TagKeys=obsolete)
        if missing:
            await self._api.call("AddTagsToResource", **of, Tags=listed(missing))
        return bool(obsolete or missing)

    # --- the service -------------------------------------------------------------------------------------------------

    async def _standing(self, name: str, *, valued: bool = True) -> Standing | None:
        """Read the parameter, with its value if needed; None if it does not exist."""
        try:
            if not valued:
                return Standing(b"", tags=await self._reader.tags(name))
            there = await self._reader.current(name)
            return Standing(there.value, there.type, there.version, await self._reader.tags(name))
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                return None
            raise

    async def _create(self, name: str, value: bytes, metadata: ParameterMetadata, owner: str) -> int:
        request = put_request(name, value, metadata, type_now="")
        request |= {"Tags": listed({**(metadata.tags or {}), MARK: owner}), "Overwrite": False}
        request.setdefault("Description", DESCRIPTION)
        try:
            return await self._put(name, request)
        except ProviderError as failed:
            if failed.reason is ErrorReason.ALREADY_EXISTS:
                raise ConflictError from None
            raise

    async def _overwrite(self, name: str, value: bytes, metadata: ParameterMetadata, standing: Standing) -> int:
        return await self._put(name, put_request(name, value, metadata, type_now=standing.type) | {"Overwrite": True})

    async def _put(self, name: str, request: dict[str, Any]) -> int:
        try:
            told = await self._api.call("PutParameter", about=about(name), **request)
        except ProviderError as failed:
            raise refused_write(failed, self._api.asked("PutParameter", about(name)), request) from None
        return int(told.get("Version", 0))

    async def _remove(self, name: str) -> bool:
        try:
            await self._api.call("DeleteParameter", about=about(name), Name=name)
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                return False
            raise
        return True

    def _contended(self, name: str) -> ProviderError:
        words = f"{self._api.asked('PutParameter', about(name))} is being written by others; pushed again later"
        return ProviderError(ErrorReason.PRECONDITION_FAILED, words)


def _reported(outcome: Pushed | ProviderError, made: PushOutcome, version: int) -> Pushed | ProviderError:
    """Return the outcome of an item: its effect on the draft, or its error."""
    if not isinstance(outcome, Pushed) or outcome.outcome is PushOutcome.SKIPPED_EXISTS:
        return outcome
    return Pushed(made, str(version))
