"""The pushed values: the backend of the fake provider, in the memory of its process.

Each store object has its own memory, identified by namespace, name and uid, so stores of equal name do not share
values. The memory lasts as long as the process. Values of a store's configuration are in its session, not here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from eso_api.values import SecretBytes
from eso_sdk.errors import backend_error, not_ours, version_differs
from eso_sdk.provider import Pushed
from eso_wire.values import ChangeType, ObjectRef, PushItem, PushOutcome, PushPrecondition

MAX_STORES: Final = 10_000
MAX_BYTES: Final = 256 * 1024 * 1024
"""All pushed keys and values of the process together."""
_ENTRY_OVERHEAD: Final = 256
MAX_CHANGES: Final = 1024
"""Changes that a store remembers for those who come back."""


class StoreId(NamedTuple):
    """Which store object a memory belongs to."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, store: ObjectRef) -> StoreId:
        return cls(store.namespace, store.name, store.uid)


@dataclass(frozen=True, slots=True)
class Entry:
    """One pushed value."""

    value: SecretBytes
    version: str
    owner: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to a key. `sequence` grows by one with each change of the store."""

    sequence: int
    key: str
    type: ChangeType
    version: str
    at: datetime


class Memory:
    """The memories of all stores of one process."""

    def __init__(self) -> None:
        self.instance = secrets.token_hex(4)
        """Differs from process to process: versions and tokens of another one mean nothing here."""
        self._stores: dict[StoreId, StoreMemory] = {}
        self._bytes = 0

    def of(self, store: StoreId) -> StoreMemory:
        if store not in self._stores:
            if len(self._stores) >= MAX_STORES:
                raise backend_error(f"the fake provider remembers at most {MAX_STORES} stores; restart it")
            self._stores[store] = StoreMemory(self)
        return self._stores[store]

    def reserve(self, amount: int) -> None:
        """Reserve or release memory for values."""
        if self._bytes + amount > MAX_BYTES:
            raise backend_error(f"the fake provider stores at most {MAX_BYTES} bytes; delete something or restart it")
        self._bytes += amount


class StoreMemory:
    """The values pushed to one store. No method awaits, so each is atomic."""

    def __init__(self, memory: Memory) -> None:
        self.changes = Changes(memory.instance)
        self._memory = memory
        self._entries: dict[str, Entry] = {}

    @property
    def entries(self) -> Mapping[str, Entry]:
        return MappingProxyType(self._entries)

    def push(self, item: PushItem, *, value: SecretBytes, now: datetime) -> Pushed:
        """Write one value, if its precondition and its owner allow it."""
        key = item.remote.key
        existing = self._entries.get(key)
        if existing is not None and item.precondition is PushPrecondition.IF_ABSENT:
            return Pushed(PushOutcome.SKIPPED_EXISTS, existing.version)
        if item.precondition is PushPrecondition.IF_VERSION and item.expected_version != _version(existing):
            raise version_differs(key)
        if existing is not None:
            _check_owner(key, existing, item.owner_token)
            if existing.value == value:
                return Pushed(PushOutcome.UNCHANGED, existing.version)
        self._memory.reserve(_room(key, value) - (_room(key, existing.value) if existing else 0))
        change = self.changes.add(key, ChangeType.UPDATED, now)
        owner = item.owner_token or (existing.owner if existing else "")
        self._entries[key] = Entry(value, change.version, owner, now)
        return Pushed(PushOutcome.UPDATED if existing else PushOutcome.CREATED, change.version)

    def delete(self, key: str, owner_token: str, now: datetime) -> bool:
        """Remove one value; False when there was none."""
        existing = self._entries.get(key)
        if existing is None:
            return False
        _check_owner(key, existing, owner_token)
        del self._entries[key]
        self._memory.reserve(-_room(key, existing.value))
        self.changes.add(key, ChangeType.DELETED, now)
        return True


class Changes:
    """The latest changes of one store, and an event for the next."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._log: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._latest = 0
        self._news = asyncio.Event()

    @property
    def latest(self) -> int:
        return self._latest

    def token(self, sequence: int) -> str:
        """Return the resume token of a position."""
        return f"{self._instance}-{sequence}"

    def position(self, token: str) -> int | None:
        """Return the position of a token; None if another process issued it."""
        instance, _, sequence = token.partition("-")
        if instance != self._instance or not sequence.isdecimal() or len(sequence) > 18:
            return None
        return int(sequence) if int(sequence) <= self._latest else None

    def add(self, key: str, change: ChangeType, now: datetime) -> Change:
        """Record a change and wake all listeners."""
        self._latest += 1
        made = Change(self._latest, key, change, f"{self._instance}-{self._latest}", now)
        self._log.append(made)
        self._news.set()
        self._news = asyncio.Event()
        return made

    def after(self, sequence: int) -> Iterator[Change] | None:
        """Return later changes; None if some of them were evicted."""
        if self._log and sequence < self._log[0].sequence - 1:
            return None
        return iter([change for change in self._log if change.sequence > sequence])

    async def wait(self, sequence: int) -> None:
        """Wait for a change after `sequence`."""
        while self._latest <= sequence:
            await self._news.wait()


def _version(entry: Entry | None) -> str:
    return entry.version if entry else ""


def _room(key: str, value: SecretBytes) -> int:
    return len(key) + len(value) + _ENTRY_OVERHEAD


def _check_owner(key: str, entry: Entry, owner_token: str) -> None:
    if entry.owner and entry.owner != owner_token:
        raise not_ours(key)
