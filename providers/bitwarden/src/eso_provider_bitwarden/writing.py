"""Writing secrets. A name may occur several times in a project, so a push compares name, note and project.

| present secrets of the name in the project | what a push does |
|---|---|
| one with this note and another value | updates it |
| one with this note and this value | nothing |
| none with this note | creates one more |
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from eso_provider_bitwarden import client
from eso_provider_bitwarden.reading import Reader, is_id
from eso_sdk.drafts import Draft, payload_of, removed, text_of
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Pushed
from eso_wire.errors import ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, bitwarden: client.BitwardenClient, reader: Reader) -> None:
        self._client = bitwarden
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one name; return one outcome for each."""
        key = items[0].remote.key
        if is_id(key):
            raise invalid_request(f'"{key}" is an id, and Bitwarden chooses ids itself; push to a name')
        note = note_of(items[0])
        async with self._locks.setdefault(key, asyncio.Lock()):
            present = next((entry for entry in await self._reader.named(key) if entry.note == note), None)
            draft = Draft(None if present is None else present.value.encode())
            refused = [await _put(draft, item, note) for item in items]
            done = Pushed(PushOutcome.UNCHANGED)
            if draft.value is not None and (present is None or draft.value != present.value.encode()):
                done = await self._write(client.Draft(key, draft.value.decode(), note), present)
        return [refusal or done for refusal in refused]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        key = items[0].remote.key
        async with self._locks.setdefault(key, asyncio.Lock()):
            present = await self._reader.one(key)
            draft = Draft(None if present is None else present.value.encode())
            outcomes = [await removed(draft, item) for item in items]
            if present is not None and draft.value is None:
                await self._client.delete(present.id)
            elif present is not None and draft.value is not None and draft.value != present.value.encode():
                await self._write(client.Draft(present.key, draft.value.decode(), present.note), present)
        return outcomes

    async def _write(self, draft: client.Draft, present: client.Entry | None) -> Pushed:
        if present is None:
            await self._client.create(draft)
            return Pushed(PushOutcome.CREATED)
        await self._client.update(present.id, draft)
        return Pushed(PushOutcome.UPDATED)


def note_of(item: PushItem) -> str:
    """Return `note` of the metadata, wherever it is: the first one, depth first."""
    found = _first(item.provider_metadata or {})
    if found is not None and not isinstance(found, str):
        raise invalid_request(f'metadata of "{item.remote.key}": note must be a text')
    return found or ""


def _first(document: Any) -> Any:
    if isinstance(document, Mapping):
        for name, value in document.items():
            if name == "note":
                return value
            if (found := _first(value)) is not None:
                return found
    elif isinstance(document, list):
        for value in document:
            if (found := _first(value)) is not None:
                return found
    return None


async def _put(draft: Draft, item: PushItem, note: str) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        if note_of(item) != note:
            raise invalid_request(f'entries for "{item.remote.key}" have different notes; use one note for a name')
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None
