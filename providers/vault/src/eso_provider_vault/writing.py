"""Writing keys: all values pushed to one key become one new version, or none if nothing changed.

    read the key -> may we write it? -> set every item -> equal: stop -> write, if the version is still the one read

A write to a version 2 engine carries the version that was read (check-and-set), so a parallel write is detected: the
key is read again and the items are set again. Version 1 engines have no versions; there the last writer wins.

The mark that a key belongs to External Secrets is `managed-by: external-secrets`: in the custom metadata of version 2,
in a member `custom_metadata` of version 1. Other custom metadata stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakValueDictionary

from eso_api.values import SecretBytes
from eso_provider_vault.api import Api, Mounts
from eso_provider_vault.reading import READ, is_deleted
from eso_provider_vault.replies import Json, Members, NotJsonError, Number, Reply, at, integer, members, parse, same
from eso_provider_vault.settings import Location, locate
from eso_sdk.errors import invalid_request, unsupported, version_differs
from eso_sdk.provider import Pushed
from eso_sdk.push import payload_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, PushPrecondition

WRITE: Final = "WriteSecretData"
DELETE: Final = "DeleteSecret"
MARK: Final = "managed-by"
OWNER: Final = "external-secrets"
ATTEMPTS: Final = 5

_CUSTOM: Final = "custom_metadata"


class ConflictError(Exception):
    """Another writer changed the key between our read and our write."""


@dataclass(frozen=True, slots=True)
class SecretState:
    """The state of a location before a write."""

    data: Members | None = field(repr=False)
    """None if there is no value: never written, or its latest version is deleted."""
    custom: Members = field(default_factory=dict, repr=False)
    """The custom metadata."""
    version: int = 0
    """The version that a write must expect; 0 for a key that was never written."""
    metadata_version: int | None = None
    """The version of the metadata, if the server counts versions of it."""
    owner: str = OWNER
    """The owner that the mark of written keys names."""

    @property
    def is_ours(self) -> bool:
        return self.custom.get(MARK) == self.owner


class Writer:
    """Writes one engine."""

    def __init__(self, api: Api, mounts: Mounts) -> None:
        self._api = api
        self._mounts = mounts
        self._locks: WeakValueDictionary[Location, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        location = locate(items[0].remote.key, self._api.settings)
        async with self._serialised(location):
            for _ in range(ATTEMPTS):
                try:
                    return await self._push(location, items)
                except ConflictError:
                    continue
        raise self._contended(location)

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        location = locate(items[0].remote.key, self._api.settings)
        async with self._serialised(location):
            for _ in range(ATTEMPTS):
                try:
                    return await self._delete(location, items)
                except ConflictError:
                    continue
        raise self._contended(location)

    @asynccontextmanager
    async def _serialised(self, location: Location) -> AsyncIterator[None]:
        """Serialise the writes of one open store to a key: concurrent writes would conflict at the server."""
        lock = self._locks.setdefault(location, asyncio.Lock())
        async with lock:
            yield

    # --- one attempt -------------------------------------------------------------------------------------------------

    async def _push(self, location: Location, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        state = replace(await self._read_state(location), owner=items[0].owner_token or OWNER)
        draft = Draft(state.data)
        outcomes = [self._set(item, draft, state) for item in items]
        desired = storable(draft.document) if location.versioned else self._marked(draft.document, state)
        unchanged = state.data is not None and same(desired, state.data)
        writes = any(_writes(outcome) for outcome in outcomes)
        version = state.version
        if writes and not (unchanged and state.is_ours):
            version = await self._write(location, state, desired)
        reported_version = str(version) if location.versioned and version else ""
        return [_reported(outcome, reported_version, unchanged=unchanged) for outcome in outcomes]

    def _set(self, item: PushItem, draft: Draft, state: SecretState) -> Pushed | ProviderError:
        """Put one item into the draft."""
        try:
            if item.precondition is PushPrecondition.IF_ABSENT and state.data is not None:
                if draft.has(item.remote.property):
                    return Pushed(PushOutcome.SKIPPED_EXISTS)
            elif item.precondition is PushPrecondition.IF_VERSION:
                self._expect(item, state)
            if state.data is not None and not state.is_ours:
                return self._foreign(item.remote.key)
            changed = draft.put(item)
        except ProviderError as refused:
            return refused
        if state.data is None:
            return Pushed(PushOutcome.CREATED)
        return Pushed(PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED)

    def _expect(self, item: PushItem, state: SecretState) -> None:
        if self._api.settings.version == "v1":
            raise unsupported(f'"{item.remote.key}": version 1 engines have no versions to compare with')
        if item.expected_version != (str(state.version) if state.version else ""):
            raise version_differs(item.remote.key)

    async def _delete(self, location: Location, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        state = replace(await self._read_state(location), owner=items[0].owner_token or OWNER)
        if state.data is None or not state.is_ours:
            return [False] * len(items)
        draft = Draft(state.data)
        outcomes: list[bool | ProviderError] = []
        for item in items:
            try:
                outcomes.append(draft.remove(item.remote.property))
            except ProviderError as refused:
                outcomes.append(refused)
        if any(outcome is True for outcome in outcomes):
            rest = {name: value for name, value in draft.document.items() if location.versioned or name != _CUSTOM}
            if rest:
                await self._write(location, state, draft.document)
            else:
                await self._remove(location)
        return outcomes

    # --- the server --------------------------------------------------------------------------------------------------

    async def _read_state(self, location: Location) -> SecretState:
        """Read the state that a write depends on."""
        reply = await self._api.send("GET", location.data, call=READ)
        if not location.versioned:
            return await self._read_state_v1(reply, location)
        if reply.ok or (reply.status == 404 and is_deleted(reply)):
            if reply.ok and not isinstance(reply.data.get("data"), dict):
                await self._mounts.confirm(location.data)
            return await self._read_state_v2(reply, location)
        if reply.status != 404 or reply.errors != ():
            await self._explain(reply, location)
        await self._mounts.confirm(location.data)
        return await self._prepared(location)

    async def _read_state_v1(self, reply: Reply, location: Location) -> SecretState:
        if reply.ok:
            return SecretState(reply.data, members(reply.data.get(_CUSTOM)))
        if reply.status != 404 or reply.errors != ():
            await self._explain(reply, location)
        await self._mounts.confirm(location.data)
        return SecretState(None)

    async def _read_state_v2(self, reply: Reply, location: Location) -> SecretState:
        version = integer(reply.data, "metadata", "version") or 0
        data = reply.data["data"]
        about = members(reply.data.get("metadata"))
        if _CUSTOM not in about:  # servers before 1.9 leave it out
            about = await self._about(location)
        return SecretState(data if isinstance(data, dict) else None, members(about.get(_CUSTOM)), version)

    async def _prepared(self, location: Location) -> SecretState:
        """Read the metadata of a key without versions; another writer or an interrupted push may have created it."""
        about = await self._about(location)
        if integer(about, "current_version"):
            raise ConflictError  # another writer created the first version since our read
        metadata_version = integer(about, "current_metadata_version") if about else 0
        return SecretState(None, members(about.get(_CUSTOM)), metadata_version=metadata_version)

    async def _about(self, location: Location) -> Members:
        reply = await self._api.send("GET", location.metadata, call=READ)
        if reply.status == 404 and reply.errors == ():
            return {}
        if not reply.ok:
            raise await self._api.refused(reply, location.metadata)
        return reply.data

    async def _write(self, location: Location, state: SecretState, document: Members) -> int:
        """Write the document; on a new key write the mark first, because a mark without a value is harmless."""
        if not location.versioned:
            reply = await self._api.send("POST", location.data, call=WRITE, body=document)
            await self._accepted(reply, location.data)
            return 0
        if not state.is_ours:
            await self._mark(location, state)
        body: Members = {"data": document, "options": {"cas": _number(state.version)}}
        reply = await self._api.send("POST", location.data, call=WRITE, body=body)
        await self._accepted(reply, location.data)
        return integer(reply.data, "version") or 0

    async def _mark(self, location: Location, state: SecretState) -> None:
        body: Members = {_CUSTOM: {**state.custom, MARK: state.owner}}
        if state.metadata_version is not None:
            body["metadata_cas"] = _number(state.metadata_version)
        reply = await self._api.send("POST", location.metadata, call=WRITE, body=body)
        await self._accepted(reply, location.metadata)

    async def _remove(self, location: Location) -> None:
        """Delete the value with all its versions and metadata."""
        for path in (location.data, location.metadata) if location.versioned else (location.data,):
            reply = await self._api.send("DELETE", path, call=DELETE)
            if reply.status != 404:
                await self._accepted(reply, path)

    async def _accepted(self, reply: Reply, path: str) -> None:
        if reply.ok:
            return
        if reply.status == 400 and reply.mentions("check-and-set") and not reply.mentions("required"):
            raise ConflictError
        raise await self._api.refused(reply, path)

    async def _explain(self, reply: Reply, location: Location) -> None:
        if reply.status == 404 and reply.is_json and not reply.errors:
            await self._mounts.confirm(location.data)
        raise await self._api.refused(reply, location.data)

    # --- errors ----------------

    def _marked(self, document: Members, state: SecretState) -> Members:
        """Return the value with the mark: in version 1 it is part of the value."""
        custom = members(at(document, _CUSTOM)) or state.custom
        return {**document, _CUSTOM: {**custom, MARK: state.owner}}

    def _foreign(self, key: str) -> ProviderError:
        endpoint = self._api.endpoint(locate(key, self._api.settings).data)
        return ProviderError(
            ErrorReason.OWNERSHIP_CONFLICT,
            f'"{key}" exists and was not created by External Secrets: {endpoint} has no custom metadata'
            f" {MARK}: {OWNER}; choose another remoteKey, or add that metadata to hand the key over",
        )

    def _contended(self, location: Location) -> ProviderError:
        return ProviderError(
            ErrorReason.PRECONDITION_FAILED,
            f"other writers changed {self._api.endpoint(location.data)} {ATTEMPTS} times while it was being written;"
            " the push is tried again later",
        )


def _reported(outcome: Pushed | ProviderError, version: str, *, unchanged: bool) -> Pushed | ProviderError:
    """Return an outcome with the version of the key; items that cancelled each other out are reported as unchanged."""
    if not isinstance(outcome, Pushed):
        return outcome
    unwritten = unchanged and _writes(outcome)
    return Pushed(PushOutcome.UNCHANGED if unwritten else outcome.outcome, version)


def _writes(outcome: Pushed | ProviderError) -> bool:
    return isinstance(outcome, Pushed) and outcome.outcome is not PushOutcome.SKIPPED_EXISTS


def _number(value: int) -> Number:
    return Number(str(value))


class Draft:
    """A document in preparation."""

    def __init__(self, existing: Members | None) -> None:
        self.document: Members = dict(existing or {})

    def has(self, name: str) -> bool:
        """Return whether the property exists; without a property, whether there is a value."""
        return not name or name in self.document

    def put(self, item: PushItem) -> bool:
        """Set the value of an item; return whether the document changed."""
        before = self.document
        self.document = self._with(item)
        return not same(storable(before), storable(self.document))

    def remove(self, name: str) -> bool:
        """Remove a property, or everything if there is no name; return whether it existed."""
        if not self.has(name):
            return False
        self.document = {key: value for key, value in self.document.items() if name and key != name}
        return True

    def _with(self, item: PushItem) -> Members:
        key, name = item.remote.key, item.remote.property
        if not name:
            return _whole(item)
        value = item.payload
        raw = value.reveal() if isinstance(value, SecretBytes) else payload_of(item)
        return {**self.document, name: _text(raw, key, name)}


def storable(document: Members) -> Members:
    """Return the document as a version 2 engine returns it.

    Those engines return numbers as 64-bit floats. A number that would lose digits is stored as a string, which reads
    the same as a property.
    """
    return {name: _storable(value) for name, value in document.items()}


def _storable(value: Json) -> Json:
    match value:
        case Number():
            return value if value.fits_a_float else value.text
        case dict():
            return {name: _storable(entry) for name, entry in value.items()}
        case list():
            return [_storable(entry) for entry in value]
        case _:
            return value


def _whole(item: PushItem) -> Members:
    """Return the document that replaces the whole value."""
    key = item.remote.key
    if not isinstance(item.payload, SecretBytes):
        return _texts(item.payload, key)
    try:
        document = parse(item.payload.reveal())
    except NotJsonError:
        document = None
    if not isinstance(document, dict):
        raise invalid_request(
            f'the value for "{key}" is not a JSON object, and Vault stores nothing else; set remoteRef.property to'
            " store it as one member"
        )
    return document


def _texts(whole: Mapping[str, SecretBytes], key: str) -> Members:
    return {name: _text(value.reveal(), key, name) for name, value in whole.items()}


def _text(raw: bytes, key: str, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # The decoder's own message quotes the value.
        raise invalid_request(
            f'the value for "{name}" of "{key}" is binary, and Vault stores text; encode it first, for example with'
            " b64enc in spec.template of the PushSecret"
        ) from None
