"""Writing: everything that is pushed to one item becomes one write, or none if nothing changed.

    versions of the vaults -> the item, by id or title -> set every field -> equal: stop -> create or replace the item
    -> wait until the backend shows it

1Password cannot store a mark of ownership. A push changes only the fields that it names, and a deletion removes
only those; the item is deleted when nothing else is left in it. A push of a whole Secret is the exception: the fields
of the item become exactly the keys of the Secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeVar
from weakref import WeakValueDictionary

from eso_api.values import SecretBytes
from eso_provider_onepassword.items import (
    DEFAULT_FIELD,
    Field,
    File,
    Item,
    Overview,
    VaultCache,
    all_parts_of,
    name_of,
    part_of,
    parts_of,
)
from eso_sdk.errors import invalid_request
from eso_sdk.matching import Matcher
from eso_sdk.operations import side_by_side
from eso_sdk.processwide import shared_table
from eso_sdk.provider import Check, Pushed, Value
from eso_sdk.push import MetadataSpec, decode_metadata, text_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, FindQuery, Found, PushItem, PushOutcome, RemoteRef, ValueMetadata
from kubebase.clock import Clock

# --- Reading: values and maps of items, and finds over all items -----------------------------------------------------


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
        overviews = [each for each in await self._vault_cache.overviews() if _matches(each, query)]
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


def _matches(overview: Overview, query: FindQuery) -> bool:
    """Return whether an item has the title and all tags of a query. Tags of 1Password have no values."""
    return query.path in ("", overview.title) and set(query.tags) <= set(overview.tags)


def _metadata(item: Item) -> ValueMetadata:
    return ValueMetadata(provider_version=item.overview.version)


def _late(_request: object, error: ProviderError) -> ProviderError:
    return error


# --- Writing ---------------------------------------------------------------------------------------------------------


FieldType = Literal["", "text", "concealed", "email", "url", "phone", "date", "monthyear"]


class ConnectMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata, for a Connect server."""

    tags: list[str] | None = None
    """Tags of the item; they replace those that it has."""
    vault: str = ""
    """Vault of the item: one of the store's; absent searches all, and creates the item in the first one."""


class SDKMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata, with a service account."""

    tags: list[str] | None = None
    """Tags of the item; they replace those that it has."""
    field_type: FieldType = ""
    """Type of the fields that are written; absent means concealed for new fields."""


M = TypeVar("M", ConnectMetadata, SDKMetadata)


def metadata_of(items: Sequence[PushItem] | Sequence[DeleteItem], kind: type[M]) -> M:
    """Decode the metadata of the items of one key; the last item that has some counts."""
    found = kind()
    for item in items:
        if item.provider_metadata:
            found = decode_metadata(item.provider_metadata, kind, item.remote.key)
    return found


ATTEMPTS: Final = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draft:
    """An item as it should be."""

    title: str
    tags: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Fields to set, by label."""
    removed: frozenset[str] = frozenset()
    """Labels of fields to remove."""
    field_type: str = ""
    whole: bool = False
    """Whether the item is all of a Secret."""


class Sink(Protocol):
    """What both forms of 1Password can write."""

    async def create(self, vault: str, draft: Draft) -> Item: ...

    async def replace(self, item: Item, draft: Draft) -> Item: ...

    async def remove(self, item: Item) -> None: ...


@dataclass(frozen=True, slots=True)
class PushSettings:
    """The settings of a push beside its values."""

    vault: str = ""
    """Where the item is searched and created; empty searches all vaults and creates it in the first one."""
    tags: Sequence[str] | None = None
    field_type: str = ""


class Writer:
    """Writes the items of one session. `first` is the vault of new items, `subject` names the backend."""

    def __init__(self, vault_cache: VaultCache, sink: Sink, *, first: str, subject: str, clock: Clock) -> None:
        self._vault_cache = vault_cache
        self._sink = sink
        self._first = first
        self._subject = subject
        self._clock = clock

    async def push(self, items: Sequence[PushItem], settings: PushSettings) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        return await self._serialised(items[0].remote.key, lambda: self._push(items, settings))

    async def delete(self, items: Sequence[DeleteItem], vault: str = "") -> list[bool | ProviderError]:
        """Remove the fields of one key; return for each whether it existed."""
        return await self._serialised(items[0].remote.key, lambda: self._delete(items, vault))

    async def _serialised(self, key: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Serialise the writes to one item. Look at it again if another process changed it."""
        locks = shared_table("onepassword.locks", self._clock, WeakValueDictionary[str, asyncio.Lock])
        lock = locks.setdefault(f"{self._subject} {key}", asyncio.Lock())
        async with lock:
            for left in reversed(range(ATTEMPTS)):
                try:
                    return await attempt()
                except ProviderError as failed:
                    if failed.reason is not ErrorReason.PRECONDITION_FAILED or not left:
                        raise
            raise AssertionError  # the last attempt returns or raises

    async def _push(self, items: Sequence[PushItem], settings: PushSettings) -> list[Pushed | ProviderError]:
        key = items[0].remote.key
        item = await self._existing(key, settings.vault)
        values: dict[str, str] = {}
        outcomes = [_set(each, item, values) for each in items]
        if not any(isinstance(outcome, Pushed) for outcome in outcomes):
            return outcomes
        whole = any(not isinstance(each.payload, SecretBytes) for each in items)
        removed = frozenset(each.label for each in item.fields if each.label not in values) if whole and item else ()
        tags = tuple(item.overview.tags if item else ()) if settings.tags is None else tuple(settings.tags)
        draft = Draft(
            item.overview.title if item else key, tags, values, frozenset(removed), settings.field_type, whole
        )
        if item is not None and not _differs(item, draft):
            return outcomes
        written = await self._written(item, draft, settings)
        version = written.overview.version
        return [_counted(each, version) if isinstance(each, Pushed) else each for each in outcomes]

    async def _written(self, item: Item | None, draft: Draft, settings: PushSettings) -> Item:
        vault = item.overview.vault if item else (await self._vault_cache.vault(settings.vault or self._first)).id
        try:
            return await (self._sink.create(vault, draft) if item is None else self._sink.replace(item, draft))
        finally:
            self._vault_cache.forget(vault)

    async def _existing(self, key: str, vault: str) -> Item | None:
        self._vault_cache.forget_missing()
        try:
            return await self._vault_cache.find(key, only=vault)
        except ProviderError as missing:
            if missing.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise
            return None

    async def _delete(self, items: Sequence[DeleteItem], vault: str) -> list[bool | ProviderError]:
        item = await self._existing(items[0].remote.key, vault)
        if item is None:
            return [False] * len(items)
        if item.whole and any(not each.remote.property for each in items):
            await self._remove(item)
            return [True] * len(items)
        labels = [_label(each.remote.property) for each in items]
        found = frozenset(labels) & {each.label for each in item.fields}
        if not found:
            return [False] * len(items)
        left = [each for each in item.fields if each.label not in found and not (each.is_note and not each.value)]
        if left or item.files or item.sections:
            try:
                await self._sink.replace(item, Draft(item.overview.title, item.overview.tags, {}, found))
            finally:
                self._vault_cache.forget(item.overview.vault)
        else:
            await self._remove(item)
        return [label in found for label in labels]

    async def _remove(self, item: Item) -> None:
        try:
            await self._sink.remove(item)
        finally:
            self._vault_cache.forget(item.overview.vault)


def _label(name: str) -> str:
    if name.startswith("file/"):
        raise invalid_request("files cannot be pushed to 1Password; name a field in remoteRef.property")
    return name.removeprefix("field/") or DEFAULT_FIELD


def _set(push: PushItem, item: Item | None, values: dict[str, str]) -> Pushed | ProviderError:
    """Put the value of one push, or all keys of its Secret, into the values of the item."""
    key = push.remote.key
    try:
        if isinstance(push.payload, SecretBytes):
            label = _label(push.remote.property)
            new = {label: text_of(push.payload.reveal(), key, label)}
        elif push.remote.property:
            raise invalid_request(f'"{key}": a whole Secret becomes the fields of an item; remove remoteRef.property')
        else:
            new = {name: text_of(raw.reveal(), key, name) for name, raw in push.payload.items()}
        for label in new:
            _refuse_doubles(item, key, label)
    except ProviderError as refused:
        return refused
    values |= new
    known = {each.label: each.value for each in item.fields} if item else {}
    if not new.keys() & known.keys():
        return Pushed(PushOutcome.CREATED)
    same = all(known.get(label) == value for label, value in new.items())
    return Pushed(PushOutcome.UNCHANGED if same else PushOutcome.UPDATED, item.overview.version if item else "")


def _refuse_doubles(item: Item | None, key: str, label: str) -> None:
    if item is not None and sum(each.label == label for each in item.fields) > 1:
        raise invalid_request(f'"{key}" has several fields labelled "{label}"; rename all but one in 1Password')


def _differs(item: Item, draft: Draft) -> bool:
    known = {each.label: each.value for each in item.fields}
    return bool(draft.removed) or set(draft.tags) != set(item.overview.tags) or known != {**known, **draft.values}


def _counted(pushed: Pushed, version: str) -> Pushed:
    """Say UPDATED where only tags or other fields of the item changed."""
    unchanged = pushed.outcome is PushOutcome.UNCHANGED
    return Pushed(PushOutcome.UPDATED if unchanged else pushed.outcome, version)
