"""Writing secrets: everything that is pushed to one key becomes one new version, or none if nothing changed.

Infisical compares no versions. Writes of one session to one secret wait for each other; between processes the last
writer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from eso_provider_infisical.places import Place, place_of
from eso_provider_infisical.secrets import Secrets
from eso_sdk.drafts import Draft, payload_of, removed, text_of
from eso_sdk.provider import Pushed
from eso_wire.errors import ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, secrets: Secrets, scope_path: str) -> None:
        self._secrets = secrets
        self._scope_path = scope_path
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        key = items[0].remote.key
        place = place_of(key, self._scope_path)
        async with self._locks.setdefault(place, asyncio.Lock()):
            present = await self._secrets.stored(place, key)
            draft = Draft(present)
            refused = [_put(draft, item) for item in items]
            done = Pushed(PushOutcome.UNCHANGED)
            if draft.value is not None and (present is None or kept(draft.value) != present):
                await self._secrets.write(place, key, draft.value.decode(), exists=present is not None)
                done = Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED)
        return [refusal or done for refusal in refused]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        key = items[0].remote.key
        place = place_of(key, self._scope_path)
        async with self._locks.setdefault(place, asyncio.Lock()):
            present = await self._secrets.stored(place, key)
            draft = Draft(present)
            outcomes = [removed(draft, item) for item in items]
            if present is not None and draft.value is None:
                await self._secrets.delete(place, key)
            elif draft.value is not None and draft.value != present:
                await self._secrets.write(place, key, draft.value.decode(), exists=True)
        return outcomes


def kept(value: bytes) -> bytes:
    """Return a value as Infisical keeps it: without blanks at its ends, except one line break at its end."""
    text = value.decode()
    return (text.strip() + ("\n" if text.endswith("\n") else "")).encode()


def _put(draft: Draft, item: PushItem) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None
