"""Writing static secrets: everything that is pushed to one name becomes one new version, or none if nothing changed.

Akeyless compares no versions. Writes of one session to one name wait for each other; between processes the last writer
wins. Only items with our tag are overwritten or deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from eso_provider_akeyless.items import STATIC, Item, Items
from eso_provider_akeyless.reading import Reader
from eso_sdk.drafts import Draft, payload_of, removed, text_of
from eso_sdk.errors import invalid_request, not_ours
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome

OWNER: Final = "external-secrets"


def mark_of(owner: str) -> str:
    """Return the tag of items that an owner pushed; `k8s-external-secrets` for the operator itself."""
    return f"k8s-{owner or OWNER}"


class Writer:
    """Writes the items of one session."""

    def __init__(self, items: Items, reader: Reader) -> None:
        self._items = items
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[PushOutcome | ProviderError]:
        """Write all items of one name; return one outcome for each."""
        name, mark = items[0].remote.key, mark_of(items[0].owner_token)
        async with self._locks.setdefault(name, asyncio.Lock()):
            item = await self._items.describe(name, remembered=False)
            if item is not None:
                _check(item, name, mark)
            present = None if item is None else await self._present(item, name)
            draft = Draft(present)
            refused = [await _put(draft, each) for each in items]
            done = PushOutcome.UNCHANGED
            if draft.value is not None and draft.value != present:
                await self._write(name, draft.value, mark if item is None else "")
                done = PushOutcome.CREATED if item is None else PushOutcome.UPDATED
        return [refusal or done for refusal in refused]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one name; return for each whether it existed. What is not ours stays."""
        name, mark = items[0].remote.key, mark_of(items[0].owner_token)
        async with self._locks.setdefault(name, asyncio.Lock()):
            item = await self._items.describe(name, remembered=False)
            if item is None or mark not in (item.item_tags or ()):
                return [False for _ in items]
            _check(item, name, mark)
            # Without properties the value does not matter.
            present = await self._present(item, name) if any(each.remote.property for each in items) else b""
            draft = Draft(present)
            outcomes = [await removed(draft, each) for each in items]
            if present is not None and draft.value is None:
                await self._items.delete(name)
                self._reader.forget(name)
            elif draft.value is not None and draft.value != present:
                await self._write(name, draft.value, "")
        return outcomes

    async def value(self, name: str) -> bytes | None:
        """Return the value of a static secret; None if it does not exist."""
        found = (await self._reader.values([(name, "")]))[name, ""]
        if isinstance(found, ProviderError):
            if found.reason is ErrorReason.SECRET_NOT_FOUND:
                return None
            raise found
        return found

    async def _present(self, item: Item, name: str) -> bytes | None:
        """Return the value of an item that was just described."""
        self._reader.note(Item(name, item.item_type))
        return await self.value(name)

    async def _write(self, name: str, value: bytes, mark: str) -> None:
        """Create an item with a mark, or write a new version of one if no mark is given."""
        if mark:
            await self._items.create(name, text_of(value, name), mark)
            self._reader.note(Item(name, STATIC))
        else:
            await self._items.update(name, text_of(value, name))


def _check(item: Item, name: str, mark: str) -> None:
    """Refuse to change items of others and items that are not static secrets."""
    if mark not in (item.item_tags or ()):
        raise not_ours(name)
    if item.item_type != STATIC:
        raise invalid_request(
            f'"{name}" is not a static secret, and only those can be written; choose another remoteKey'
        )


async def _put(draft: Draft, item: PushItem) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None
