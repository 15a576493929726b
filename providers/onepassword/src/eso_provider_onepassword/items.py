"""Items as both forms of 1Password have them, and the part of an item that a reference names.

| `property` | part |
|---|---|
| absent | the field `password`; the first file of a document |
| `field/LABEL`, `file/NAME` | that field, that file |
| any other | a file of this name if the item is a document, else a field of this label |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from eso_sdk.backend import CURRENT_CALL, Call
from eso_sdk.errors import invalid_config, invalid_request, property_not_found, unavailable
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict, ExpiringDict
from kubebase.clock import Clock
from kubebase.hints import with_hint

DEFAULT_FIELD: Final = "password"
DOCUMENT: Final = "DOCUMENT"

_ID: Final = re.compile(r"[0-9a-z]{26}")
_FIELD, _FILE = "field/", "file/"

T = TypeVar("T", "Field", "File")


@dataclass(frozen=True, slots=True)
class Vault:
    """A vault. `version` changes with every change of its contents."""

    id: str
    name: str
    version: str
    count: int = 0
    """How many items it has."""


@dataclass(frozen=True, slots=True)
class Overview:
    """An item without its values. `version` changes with every change of the item."""

    id: str
    vault: str
    title: str
    version: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an item. `value` is secret."""

    label: str
    value: str = field(repr=False)
    id: str = ""
    is_note: bool = False
    """Whether it is the field for notes that 1Password adds to items."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of an item, without its content."""

    id: str
    name: str
    size: int = 0
    origin: Any = field(default=None, repr=False)
    """The file as the backend describes it."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item with the values of its fields."""

    overview: Overview
    category: str
    fields: tuple[Field, ...] = ()
    files: tuple[File, ...] = ()
    sections: int = 0
    whole: bool = False
    """Whether External Secrets created it from a whole Secret."""
    origin: Any = field(default=None, repr=False)
    """The item as the backend describes it, so that a write changes nothing else."""

    @property
    def size(self) -> int:
        """Return about how many bytes the item occupies."""
        return 1024 + sum(256 + len(each.value) for each in self.fields)


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id: 26 small letters and digits."""
    return _ID.fullmatch(text) is not None


def part_of(item: Item, key: str, name: str) -> Field | File:
    """Return the one field or file that a property names."""
    if not _names_file(item, name):
        label = name.removeprefix(_FIELD) or DEFAULT_FIELD
        fields = [each for each in item.fields if each.label == label]
        return _only(fields, key, label, [each.label for each in item.fields])
    label = name.removeprefix(_FILE)
    if not label and item.files:
        return item.files[0]
    files = [each for each in item.files if each.name == label]
    return _only(files, key, label, [each.name for each in item.files])


def parts_of(item: Item, name: str) -> Sequence[Field | File]:
    """Return all fields, or all files of a document; a property selects among them."""
    if _names_file(item, name):
        label = name.removeprefix(_FILE)
        return [each for each in item.files if label in ("", each.name)]
    label = name.removeprefix(_FIELD)
    return [each for each in item.fields if label in ("", each.label)]


def all_parts_of(item: Item) -> Sequence[Field | File]:
    """Return all fields and all files."""
    return (*item.fields, *item.files)


def name_of(part: Field | File) -> str:
    return part.label if isinstance(part, Field) else part.name


def _names_file(item: Item, name: str) -> bool:
    if name.startswith((_FIELD, _FILE)):
        return name.startswith(_FILE)
    return item.category == DOCUMENT


def _only(found: Sequence[T], key: str, name: str, known: Iterable[str]) -> T:
    if not found:
        raise property_not_found(key, name, known=known)
    if len(found) > 1:
        raise invalid_request(f'"{key}" has {len(found)} parts named "{name}"; rename all but one in 1Password')
    return found[0]


# ---------------------------------------------------------------------------------------------------------------------
# The vaults of a store, in their order, as the backend showed them last; with as few calls as possible.
#
# | state of the vaults | calls of a refresh |
# |---|---|
# | nothing changed | 1: the vaults with their versions |
# | something changed in a vault | + 1 for its items without values, + 1 for each changed item that is read |
# | a key was missing less than a minute ago | 0 |
#
# One call of the operator reads the versions once, however many keys it reads. A listing is trusted for an hour at
# most, in case a backend forgets to change the version of a vault.


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Holds values until they are replaced, dropped or evicted."""

    def __init__(self, entries: int, size: int) -> None:
        self._size = size
        self._held = 0
        self._entries: BoundedDict[K, tuple[int, V]] = BoundedDict(entries, on_evict=self._evicted)

    def get(self, key: K) -> V | None:
        found = self._entries.use(key)
        return None if found is None else found[1]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value, unless it takes more than a quarter of the space."""
        self.drop(key)
        if size > self._size // 4:
            return
        self._held += size
        self._entries[key] = (size, value)
        while self._held > self._size:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        if (found := self._entries.pop(key, None)) is not None:
            self._held -= found[0]

    def drop_if(self, obsolete: Callable[[K, V], bool]) -> None:
        """Drop the entries for which the function returns True."""
        for key, (_, value) in list(self._entries.items()):
            if obsolete(key, value):
                self.drop(key)

    def _evicted(self, _key: K, entry: tuple[int, V]) -> None:
        self._held -= entry[0]


MISSING_SECONDS: Final = 60.0
"""A missing item or vault costs one call a minute, also with a refresh interval of seconds."""
TRUSTED_SECONDS: Final = 3600.0
MAX_MISSING: Final = 4096
MAX_CALLS: Final = 256
MAX_ITEMS, MAX_BYTES = 1000, 4 * 1024 * 1024
"""Bounds of the items and files that one session caches."""


class Source(Protocol):
    """What both forms of 1Password can do."""

    async def vaults(self) -> Sequence[Vault]: ...

    async def overviews(self, vault: Vault) -> Sequence[Overview]: ...

    async def items(self, overviews: Sequence[Overview]) -> Sequence[Item | ProviderError]:
        """Return each item with its values, or its error."""
        ...

    async def content(self, item: Item, file: File) -> bytes: ...


@dataclass(slots=True)
class Listing:
    """The items of a vault without their values."""

    version: str
    until: float
    by_id: dict[str, Overview] = field(default_factory=dict)
    by_title: dict[str, list[Overview]] = field(default_factory=dict)

    def add(self, overviews: Iterable[Overview]) -> None:
        for each in overviews:
            self.by_id[each.id] = each
            self.by_title.setdefault(each.title, []).append(each)


class VaultCache:
    """The vaults of one session. `pointer` names the spec field with the vaults."""

    def __init__(self, source: Source, names: Sequence[str], *, pointer: str, clock: Clock) -> None:
        self._source = source
        self._names = names
        self._pointer = pointer
        self._clock = clock
        self._lock = asyncio.Lock()
        self._checked: BoundedDict[int, Call] = BoundedDict(MAX_CALLS)
        """The calls for which the versions were read, by their ids."""
        self._vaults: Sequence[Vault] = ()
        self._listings: dict[str, Listing] = {}
        self._items: SizedCache[str, Item] = SizedCache(MAX_ITEMS, MAX_BYTES)
        self._contents: SizedCache[tuple[str, str, str], bytes] = SizedCache(MAX_ITEMS, MAX_BYTES)
        self._missing: ExpiringDict[str, ProviderError] = ExpiringDict(MAX_MISSING, clock)

    async def check_all(self) -> None:
        """Raise if one of the vaults cannot be read."""
        for name in self._names:
            await self.vault(name)

    async def vault(self, name: str) -> Vault:
        """Return a vault of the store, with its current version."""
        self.repeat_missing(f"vault {name}")
        await self._check_versions()
        found = [each for each in self._vaults if each.id == name] or [v for v in self._vaults if v.name == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise invalid_config(self._pointer, f'{len(found)} vaults have the name "{name}"; use the id of one')
        message = f'the token does not give access to a vault "{name}"; check the name, and the vaults of the token'
        # Not "not found": the item may exist in that vault, and deletion policies act on "not found".
        error = invalid_config(self._pointer, with_hint(message, name, [each.name for each in self._vaults]))
        self.note_missing(f"vault {name}", error)
        raise error

    async def locate(self, key: str, *, only: str = "") -> Overview:
        """Return the item with this id or title: that of the first vault that has one. `only` searches one vault."""
        remembered = f"item {only} {key}"
        self.repeat_missing(remembered)
        known: list[str] = []
        for name in [only] if only else self._names:
            vault = await self.vault(name)
            listing = await self._listing(vault)
            if (found := _match(listing, key, vault)) is not None:
                return found
            known += listing.by_title
        error = self._absent(key, only, known)
        self.note_missing(remembered, error)
        raise error

    async def find(self, key: str, *, only: str = "") -> Item:
        """Return the item with this id or title, with its values."""
        (found,) = await self.items([await self.locate(key, only=only)])
        if isinstance(found, ProviderError):
            raise found
        return found

    async def overviews(self) -> Sequence[Overview]:
        """Return the items of all vaults without their values, in the order of the vaults."""
        return [each for name in self._names for each in (await self._listing(await self.vault(name))).by_id.values()]

    async def items(self, overviews: Sequence[Overview]) -> list[Item | ProviderError]:
        """Return each item with its values, or its error. Unchanged items are not read again."""
        found: dict[str, Item | ProviderError] = {}
        for each in overviews:
            cached = self._items.get(each.id)
            if cached is not None and cached.overview.version == each.version:
                found[each.id] = cached
        unknown = [each for each in overviews if each.id not in found]
        for each, item in zip(unknown, await self._source.items(unknown) if unknown else (), strict=True):
            found[each.id] = item
            if isinstance(item, Item):
                self._items.put(each.id, item, item.size)
            elif item.is_not_found:
                # Only a listing shows that an item does not exist: the next read requests a new one.
                self._listings.pop(each.vault, None)
                found[each.id] = unavailable(
                    f'item "{each.title}" is listed, but cannot be read now; tried again later'
                )
        return [found[each.id] for each in overviews]

    async def content(self, item: Item, file: File) -> bytes:
        """Return the content of a file."""
        key = (item.overview.id, item.overview.version, file.id)
        if (cached := self._contents.get(key)) is not None:
            return cached
        found = await self._source.content(item, file)
        self._contents.put(key, found, len(found) + 256)
        return found

    def forget(self, vault: str) -> None:
        """List a vault again at its next use, and request again everything that was missing: after a write."""
        self._listings.pop(vault, None)
        self._checked.clear()
        self.forget_missing()

    def forget_missing(self) -> None:
        """Ask again for everything that was missing, before a write."""
        for name in list(self._missing):
            self._missing.discard(name)

    def repeat_missing(self, name: str) -> None:
        """Raise the error of something that was missing less than a minute ago."""
        if (error := self._missing.get(name)) is not None:
            raise error

    def note_missing(self, name: str, error: ProviderError) -> None:
        self._missing.put(name, error, MISSING_SECONDS)

    async def _check_versions(self) -> None:
        """Ask for the versions of the vaults, once for each call of the operator."""
        call = CURRENT_CALL.get()
        async with self._lock:
            if id(call) not in self._checked:
                self._vaults = await self._source.vaults()
                self._checked[id(call)] = call

    async def _listing(self, vault: Vault) -> Listing:
        async with self._lock:
            cached = self._listings.get(vault.id)
            if cached is not None and cached.version == vault.version and self._clock.monotonic() < cached.until:
                return cached
            listing = Listing(vault.version, self._clock.monotonic() + TRUSTED_SECONDS)
            listing.add(await self._source.overviews(vault))
            if vault.count and not listing.by_id:
                # A server that has lost sight of its items must not make deletion policies act.
                raise unavailable(f'vault "{vault.name}" has {vault.count} items, but 1Password lists none of them now')
            self._listings[vault.id] = listing
            known = {each.id: each.version for listed in self._listings.values() for each in listed.by_id.values()}
            self._items.drop_if(lambda key, item: known.get(key) != item.overview.version)
            self._contents.drop_if(lambda key, _: known.get(key[0]) != key[1])
            return listing

    def _absent(self, key: str, only: str, known: Iterable[str]) -> ProviderError:
        names = [only] if only else self._names
        quoted = ", ".join(f'"{name}"' for name in names)
        where = "vault" if len(names) == 1 else "vaults"
        message = with_hint(f'1Password has no item "{key}" in {where} {quoted}', key, known)
        return ProviderError(ErrorReason.SECRET_NOT_FOUND, message)


def _match(listing: Listing, key: str, vault: Vault) -> Overview | None:
    if is_id(key) and key in listing.by_id:
        return listing.by_id[key]
    found = listing.by_title.get(key, [])
    if len(found) > 1:
        raise invalid_request(f'vault "{vault.name}" has {len(found)} items titled "{key}"; use the id of one as key')
    return found[0] if found else None
