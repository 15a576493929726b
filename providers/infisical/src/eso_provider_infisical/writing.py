"""Writing secrets: everything that is pushed to one key becomes one new version, or none if nothing changed.

What the pushes of one call need at the same time is sent together: their reads as one list of each folder, and, if
the server has the API v4, their writes as one batch of each folder and kind of change.

Infisical compares no versions. Writes of one session to one secret wait for each other; between processes the last
writer wins.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from eso_provider_infisical.secrets import Change, MovedError, SecretLocation, Secrets, location_of
from eso_sdk.drafts import Draft, payload_of, removed, text_of
from eso_sdk.errors import backend_error
from eso_sdk.provider import Pushed
from eso_wire.errors import ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")


class Together(Generic[T, R]):
    """Collects the items that tasks hand over before the event loop comes round, and works on them at once."""

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R | ProviderError]]]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, item: T) -> R:
        """Return the result of one item, or raise its error."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._run())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return await future

    async def _run(self) -> None:
        batch, self._waiting = self._waiting, []
        try:
            results: Sequence[R | Exception] = await self._work([item for item, _ in batch])
        except Exception as failed:  # noqa: BLE001 - every task that waits gets it
            results = [failed] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # its task was cancelled
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, secrets: Secrets, scope_path: str) -> None:
        self._secrets = secrets
        self._scope_path = scope_path
        self._locks: WeakValueDictionary[SecretLocation, asyncio.Lock] = WeakValueDictionary()
        self._stored: Together[Change, bytes | None] = Together(self._read)
        self._change: Together[Change, None] = Together(self._write)

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        return await self._serialised(items[0].remote.key, lambda location: self._push(location, items))

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        return await self._serialised(items[0].remote.key, lambda location: self._delete(location, items))

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _serialised(self, key: str, attempt: Callable[[SecretLocation], Awaitable[A]]) -> A:
        """Serialise the writes to one secret. Look at it again if its project was made anew."""
        location = location_of(key, self._scope_path)
        async with self._locks.setdefault(location, asyncio.Lock()):
            try:
                return await attempt(location)
            except MovedError:
                pass
            try:
                return await attempt(location)
            except MovedError:
                raise backend_error(f'the project of "{key}" was made anew twice; tried again later') from None

    async def _push(self, location: SecretLocation, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        key = items[0].remote.key
        present = await self._stored(Change(location, key, ""))
        draft = Draft(present)
        refused = [await _put(draft, item) for item in items]
        done = Pushed(PushOutcome.UNCHANGED)
        if draft.value is not None and (present is None or as_stored(draft.value) != present):
            await self._change(Change(location, key, draft.value.decode(), exists=present is not None))
            done = Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED)
        return [refusal or done for refusal in refused]

    async def _delete(self, location: SecretLocation, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        key = items[0].remote.key
        present = await self._stored(Change(location, key))
        draft = Draft(present)
        outcomes = [await removed(draft, item) for item in items]
        if present is not None and draft.value is None:
            await self._change(Change(location, key))
        elif draft.value is not None and draft.value != present:
            await self._change(Change(location, key, draft.value.decode()))
        return outcomes

    async def _read(self, changes: Sequence[Change]) -> list[bytes | ProviderError | None]:
        """Return the stored value of each secret that is to be changed; several of one folder cost one list.

        A list leaves out what the identity may not see. Creating that fails, but a deletion would seem done: so what is
        to be deleted and not in the list is requested.
        """
        folders = Counter(each.location.folder for each in changes)
        listed = {folder: await self._secrets.all_stored(folder) for folder, count in folders.items() if count > 1}

        async def one(change: Change) -> bytes | ProviderError | None:
            known = listed.get(change.location.folder)
            try:
                if known is not None and change.location.name in known:
                    return known[change.location.name].value(change.key)
                if known is not None and change.value is not None:
                    return None
                return await self._secrets.stored(change.location, change.key)
            except ProviderError as failed:
                return failed

        return list(await asyncio.gather(*(one(each) for each in changes)))

    async def _write(self, changes: Sequence[Change]) -> list[ProviderError | None]:
        """Make the changes of each folder and kind together."""
        groups: dict[tuple[str, str], list[Change]] = {}
        for change in changes:
            groups.setdefault((change.location.folder, change.method), []).append(change)
        failed: dict[SecretLocation, ProviderError | None] = {}
        for group in groups.values():
            try:
                outcomes = await self._secrets.change(group)
            except ProviderError as refused:
                outcomes = [refused] * len(group)
            failed |= dict(zip((each.location for each in group), outcomes, strict=True))
        return [failed[change.location] for change in changes]


def as_stored(value: bytes) -> bytes:
    """Return a value as Infisical stores it: without blanks at its ends, except one line break at its end."""
    text = value.decode()
    return (text.strip() + ("\n" if text.endswith("\n") else "")).encode()


async def _put(draft: Draft, item: PushItem) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        raw = payload_of(item)
        text_of(raw, item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, raw)
    except ProviderError as refused:
        return refused
    return None
