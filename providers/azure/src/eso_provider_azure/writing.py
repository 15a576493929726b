"""Writing objects: everything that is pushed to one secret becomes one new version, or none when nothing changed.

| present object | what a push does |
|---|---|
| nothing | creates it with our tag `managed-by` |
| ours | writes a version if value or settings differ |
| ours, deleted but recoverable | recovers it, then writes; its former value does not count. A bare 409 is looked up |
| without our tag, also if deleted | nothing: OWNERSHIP_CONFLICT |
| disabled | nothing: the error reports that it is disabled |

Key Vault compares no versions. Writes of one session to one object wait for each other; between processes the last
writer wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from azure.core.rest import HttpRequest

from eso_provider_azure import certificates, keys
from eso_provider_azure.api import Api
from eso_provider_azure.errors import ConflictError, DeletedError
from eso_provider_azure.names import Kind, Name
from eso_provider_azure.objects import MARK, OWNER, Stored
from eso_provider_azure.reading import DOTS, Reader
from eso_provider_azure.settings import Settings, merged, settings_of
from eso_sdk.drafts import Draft, payload_of, removed, text_of
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Pushed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome
from kubebase.deadline import Deadline

RECOVER_SECONDS: Final = 20.0
"""Seconds for a recovery; Key Vault mostly needs a few."""
RECOVER_PAUSE: Final = 1.0

_COLLECTIONS: Final = {Kind.SECRET: "secrets", Kind.KEY: "keys", Kind.CERTIFICATE: "certificates"}
_TITLES: Final = {Kind.SECRET: "Secret", Kind.KEY: "Key", Kind.CERTIFICATE: "Certificate"}

T = TypeVar("T")


class Writer:
    """Writes the objects of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        name = Name.parse(items[0].remote.key)
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name.kind is Kind.SECRET:
                return await self._push_secret(name, items)
            return [await self._imported(name, item) for item in items]

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        name = Name.parse(items[0].remote.key)
        async with self._locks.setdefault(name, asyncio.Lock()):
            present = await self._reader.current(name)
            if present is None:
                return [False] * len(items)
            self._check_ours(name, present, items[0].owner_token or OWNER)
            if name.kind is not Kind.SECRET or any(not item.remote.property for item in items):
                await self._delete(name)
                return [True] * len(items)
            return await self._remove_properties(name, present, items)

    # --- secrets -----------------------------------------------------------------------------------------------------

    async def _push_secret(self, name: Name, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        owner = items[0].owner_token or OWNER
        present = await self._reader.current(name)
        if present is not None:
            self._check_ours(name, present, owner)
        draft = Draft(present.value if present else None, DOTS)
        settings_of_items: list[Settings] = []
        outcomes = [await _put(draft, item, settings_of_items) for item in items]
        if not settings_of_items or draft.value is None:
            return [outcome for outcome in outcomes if outcome is not None]
        settings = merged(settings_of_items)
        if present is not None and draft.value == present.value and settings.fit(present):
            done = Pushed(PushOutcome.UNCHANGED, present.version)
        else:
            version = await self._set(name, draft.value, present, settings, owner)
            done = Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED, version)
        return [done if outcome is None else outcome for outcome in outcomes]

    async def _set(self, name: Name, value: bytes, present: Stored | None, settings: Settings, owner: str) -> str:
        content_type = present.content_type if present else ""

        async def write() -> str:
            made = await self._api.call(
                self._api.subject("SetSecret", name),
                lambda: self._api.vault.secrets.set_secret(
                    name.name,
                    value.decode(),
                    enabled=True,
                    tags={**settings.tags, MARK: owner},
                    content_type=settings.content_type or content_type or None,
                    expires_on=settings.expires,
                ),
            )
            return made.properties.version or ""

        return await self._recovered(name, owner, write)

    async def _remove_properties(
        self, name: Name, present: Stored, items: Sequence[DeleteItem]
    ) -> list[bool | ProviderError]:
        draft = Draft(present.value, DOTS)
        outcomes = [await removed(draft, item) for item in items]
        if not any(outcome is True for outcome in outcomes):
            return outcomes
        if draft.value is None:
            await self._delete(name)
        else:
            tags = {tag: value for tag, value in present.tags.items() if tag != MARK}
            settings = Settings(present.expires, present.content_type, tags)
            await self._set(name, draft.value, present, settings, present.tags[MARK])
        return outcomes

    # --- keys and certificates ---------------------------------------------------------------------------------------

    async def _imported(self, name: Name, item: PushItem) -> Pushed | ProviderError:
        try:
            return await self._import(name, item, item.owner_token or OWNER)
        except ProviderError as refused:
            return refused

    async def _import(self, name: Name, item: PushItem, owner: str) -> Pushed:
        raw, settings = payload_of(item), settings_of(item)
        if item.remote.property:
            raise invalid_request(f'"{item.remote.key}" is a {name.kind.label} and has no properties; remove property')
        present = await self._reader.current(name)
        if present is not None:
            self._check_ours(name, present, owner)
        tags = {**settings.tags, MARK: owner}
        imports = keys if name.kind is Kind.KEY else certificates
        prepared = imports.prepared(raw, item.remote.key)
        if present is not None and prepared.equals(present.value):
            return Pushed(PushOutcome.UNCHANGED, present.version)
        subject = self._api.subject(f"Import{_TITLES[name.kind]}", name)

        async def write() -> str:
            return await self._api.call(subject, lambda: prepared.write(self._api.vault, name.name, tags, settings))

        version = await self._recovered(name, owner, write)
        return Pushed(PushOutcome.CREATED if present is None else PushOutcome.UPDATED, version)

    # --- all of them -------------------------------------------------------------------------------------------------

    async def _delete(self, name: Name) -> None:
        """Delete an object. The method of the library would wait until the deletion is complete."""
        await self._send(f"Delete{_TITLES[name.kind]}", name, "DELETE", f"{_COLLECTIONS[name.kind]}/{name.name}")

    async def _recovered(self, name: Name, owner: str, write: Callable[[], Awaitable[T]]) -> T:
        """Write; if the name belongs to a deleted object of ours, recover that first."""
        try:
            return await write()
        except ConflictError as conflict:
            last = conflict
        await self._recover(name, owner, last)
        try:
            async with Deadline(self._api.clock, RECOVER_SECONDS):
                while True:
                    await self._api.clock.sleep(RECOVER_PAUSE)
                    try:
                        return await write()
                    except ConflictError as still:
                        last = still
        except TimeoutError:
            message = f"{self._api.subject('Recover', name)} is still being recovered; pushed again later"
            raise ProviderError(ErrorReason.BACKEND_TIMEOUT, message, backend_code=last.backend_code) from None

    async def _recover(self, name: Name, owner: str, conflict: ConflictError) -> None:
        """Recover the deleted object that a write conflicts with. Raise the conflict if there is none."""
        path, title = f"deleted{_COLLECTIONS[name.kind]}/{name.name}", _TITLES[name.kind]
        try:
            response = await self._send(f"GetDeleted{title}", name, "GET", path)
        except ProviderError as failed:
            if failed.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise
            if not isinstance(conflict, DeletedError):
                raise conflict from None
            return  # it is between both states
        tags = response.get("tags") or {} if isinstance(response, dict) else {}
        if tags.get(MARK) != owner:
            message = (
                f"{self._api.subject('Recover', name)} is deleted and was not created by External Secrets: it has no"
                f" tag {MARK}: {owner}; purge or recover it, or choose another remoteKey"
            )
            raise ProviderError(ErrorReason.OWNERSHIP_CONFLICT, message)
        await self._send(f"RecoverDeleted{title}", name, "POST", f"{path}/recover")

    async def _send(self, operation: str, name: Name, method: str, path: str) -> Any:
        """Make a call that the library has only together with waiting. Any of its clients can send it."""

        async def send() -> Any:
            response = await self._api.vault.secrets.send_request(HttpRequest(method, path))
            response.raise_for_status()
            return msgspec.json.decode(await response.read())

        return await self._api.call(self._api.subject(operation, name), send)

    def _check_ours(self, name: Name, present: Stored, owner: str) -> None:
        if not present.is_of(owner):
            raise ProviderError(
                ErrorReason.OWNERSHIP_CONFLICT,
                f"{self._api.subject('Get', name)} exists and was not created by External Secrets: it has no"
                f" tag {MARK}: {owner}; choose another remoteKey, or add that tag to hand it over",
            )


async def _put(draft: Draft, item: PushItem, settings_of_items: list[Settings]) -> ProviderError | None:
    """Put one item into the draft; return its error if that is impossible."""
    try:
        settings = settings_of(item)
        text = text_of(payload_of(item), item.remote.key, item.remote.property)
        await draft.put(item.remote.key, item.remote.property, text.encode())
    except ProviderError as refused:
        return refused
    settings_of_items.append(settings)
    return None
