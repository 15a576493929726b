"""The fake store: configured values and pushed values.

Configured entries are found by key and version, pushed ones by key alone. Every method first applies the faults that
are scripted for it; without a script it behaves like any other provider.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

import msgspec

from eso_api.stores.fake import FakeProvider, FakeValue
from eso_api.values import SecretBytes
from eso_provider_fake.faults import Effect, Events, FaultFile, Faults, Method, Oversize, Point, Truncate, rule_of_key
from eso_sdk.errors import (
    CutStream,
    backend_error,
    invalid_config,
    invalid_request,
    not_found,
    not_ours,
    version_differs,
    version_not_found,
)
from eso_sdk.extract import property_in
from eso_sdk.matching import Matcher
from eso_sdk.provider import Check, Pushed, Store, Value, finds, pushes, reads
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Context,
    DeleteItem,
    FindQuery,
    Found,
    Heartbeat,
    ObjectRef,
    PushItem,
    PushOutcome,
    PushPrecondition,
    RemoteRef,
    SourceSecret,
    Validation,
    ValidationState,
    ValueMetadata,
    WatchItem,
)
from kubebase.clock import Clock

# --- The pushed values: the backend of the fake provider, in the memory of its process -------------------------------
#
# Each store object has its own memory, identified by namespace, name and uid, so stores of equal name do not share
# values. The memory lasts as long as the process. Values of a store's configuration are in its session, not here.


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


# --- The fake store --------------------------------------------------------------------------------------------------


_VALIDATIONS: Final = {0: ValidationState.READY, 1: ValidationState.UNKNOWN}
_METHODS: Final[dict[str, Method]] = {
    "Handshake": "handshake",
    "Validate": "validate",
    "GetSecrets": "get",
    "FindSecrets": "find",
    "CheckSecrets": "check",
    "PushSecrets": "push",
    "DeleteSecrets": "delete",
    "Subscribe": "subscribe",
}
"""The calls of the protocol, as scripts name them."""
_FROM_RESERVED_KEY: Final = b"fault"
"""The value of a reserved key whose fault lets the read succeed."""


@dataclass(frozen=True, slots=True)
class World:
    """The state that outlives a session: pushed values and scripted faults."""

    memory: Memory = field(default_factory=Memory)
    faults: Faults = field(default_factory=Faults)
    files: list[FaultFile] = field(default_factory=list)
    version_key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    """Versions of spec entries are made from their values; without this key they could be guessed back."""

    async def before_call(self, method: str, context: Context | None, clock: Clock) -> None:
        """Apply the faults of whole calls; they have the same names as those of items."""
        self.refresh()
        store = context.store.name if context is not None else ""
        if (name := _METHODS.get(method)) is not None:
            await self.faults.strike(Point(name, store, level="call"), clock)

    def refresh(self) -> None:
        for file in self.files:
            file.refresh()


class FakeStore(Store[FakeProvider]):
    """One opened fake store. `fake_provider` gives it a world."""

    WORLD: ClassVar[World]

    @classmethod
    def check_config(cls, config: FakeProvider) -> tuple[str, ...]:
        for position, entry in enumerate(config.data):
            for name, given in (("key", entry.key), ("value", entry.value or entry.value_map)):
                if not given:
                    raise invalid_config(f"/data/{position}/{name}", "must not be empty")
        return ()

    async def open(self) -> None:
        self._spec = {(entry.key, entry.version): entry for entry in self.config.data}
        self._configured: dict[str, str] = {}
        """Configured keys, and of each the version that is the last by the alphabet: the one that find shows."""
        for key, version in self._spec:
            self._configured[key] = max(version, self._configured.get(key, ""))

    async def validate(self) -> Validation:
        await self._meet("validate")
        state = _VALIDATIONS.get(self.config.validation_result, ValidationState.INVALID)
        if state is ValidationState.READY:
            return Validation(state)
        what = f"validationResult is {self.config.validation_result}; set it to 0 for a ready store"
        return Validation(state, error=ProviderError(ErrorReason.CONFIG_INVALID, what))

    # --- reading -----------------------------------------------------------------------------------------------------

    # The original ignores metadataPolicy: a metadata read returns the value, too.
    @reads("metadata", "not_found")
    async def get(self, ref: RemoteRef) -> Value:
        for effect in await self._meet("get", ref.key):
            if isinstance(effect, Oversize):
                return Value.of(bytes(effect.size))
        whole = self._whole(ref.key, ref.version)
        return Value(SecretBytes(await property_in(whole.raw.reveal(), ref)), whole.metadata)

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        effects = await self._meet("find", query.name_regexp)
        if not query.name_regexp:
            raise invalid_request("the fake provider finds keys by name only; give find.name.regexp")
        matcher = Matcher(query)
        limit = next((effect.after for effect in effects if isinstance(effect, Truncate)), None)
        matching = [key for key in self._keys() if await matcher.accepts(key)]
        for count, key in enumerate(matching):
            if count == limit:
                raise CutStream
            value = self._newest(key)
            yield Found(key, value.raw, value.metadata)
        if limit is not None:
            raise CutStream

    async def check(self, ref: RemoteRef) -> Check:
        await self._meet("check", ref.key)
        if ref.key in self._configured or ref.key in self._memory.entries:
            return Check(exists=True, version=self._newest(ref.key).metadata.provider_version)
        return Check(exists=False)

    # --- writing -----------------------------------------------------------------------------------------------------

    @pushes("whole_secret", "if_absent", "if_version")
    async def push(self, item: PushItem, source: SourceSecret) -> Pushed:
        del source
        await self._meet("push", item.remote.key)
        if item.remote.key in self._configured:
            if item.precondition is PushPrecondition.IF_ABSENT:
                return Pushed(PushOutcome.SKIPPED_EXISTS)
            raise not_ours(item.remote.key)
        # The original writes nothing for a whole Secret; tests of existing manifests rely on the key alone.
        value = item.payload if isinstance(item.payload, SecretBytes) else SecretBytes(b"")
        return self._memory.push(item, value=value, now=self.clock.now())

    async def delete(self, item: DeleteItem) -> bool:
        """Remove a pushed value. Configured values stay: they are not ours to delete."""
        await self._meet("delete", item.remote.key)
        return self._memory.delete(item.remote.key, item.owner_token, self.clock.now())

    # --- changes -----------------------------------------------------------------------------------------------------

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        changes = self._memory.changes
        position: int | None = changes.latest
        if resume_token:
            position = changes.position(resume_token)
        watches = _Watches(items)
        for effect in await self._meet("subscribe"):
            if isinstance(effect, Events):
                async for event in self._storm(effect, watches):
                    yield event
        for event in self._overtaken(items):
            yield event
        if position is not None:
            yield Heartbeat(self.clock.now(), changes.token(position))
        while True:
            recent = None if position is None else changes.after(position)
            if recent is None:
                position = changes.latest
                yield ChangeEvent(ChangeType.RESYNC, resume_token=changes.token(position))
                continue
            for change in recent:
                position = change.sequence
                if ids := watches.of(change.key):
                    token = changes.token(position)
                    yield ChangeEvent(change.type, ids, change.version, change.at, resume_token=token)
            await changes.wait(position or 0)

    def _overtaken(self, items: Sequence[WatchItem]) -> Iterator[ChangeEvent]:
        """Yield the watches whose known version is no longer the current one."""
        for item in items:
            if item.ref is None or not item.known_version:
                continue
            try:
                version = self._whole(item.ref.key, item.ref.version).metadata.provider_version
            except ProviderError:
                yield ChangeEvent(ChangeType.DELETED, (item.watch_id,), observed_at=self.clock.now())
                continue
            if version != item.known_version:
                yield ChangeEvent(ChangeType.UPDATED, (item.watch_id,), version, self.clock.now())

    async def _storm(self, storm: Events, watches: _Watches) -> AsyncIterator[ChangeEvent]:
        for _ in range(storm.count):
            ids = () if storm.change == "RESYNC" else watches.ids
            yield ChangeEvent(ChangeType(storm.change), ids, observed_at=self.clock.now())
            if storm.pause:
                await self.clock.sleep(storm.pause)

    # --- entries -----------------------------------------------------------------------------------------------------

    @property
    def _memory(self) -> StoreMemory:
        return self.WORLD.memory.of(StoreId.of(self.call.store if self.call.store.name else self.holder))

    async def _meet(self, method: Method, key: str = "") -> tuple[Effect, ...]:
        self.WORLD.refresh()
        has_value = key in self._configured or key in self._memory.entries
        return await self.WORLD.faults.strike(Point(method, self.call.store.name, key, has_value=has_value), self.clock)

    def _whole(self, key: str, version: str) -> Value:
        if (entry := self._spec.get((key, version))) is not None:
            return self._configured_value(entry)
        if not version and (pushed := self._memory.entries.get(key)) is not None:
            metadata = ValueMetadata(provider_version=pushed.version, updated_at=pushed.updated_at)
            return Value(pushed.value, metadata)
        if key in self._configured or key in self._memory.entries:
            raise version_not_found(key, version)
        if rule_of_key(key) is not None:
            return Value.of(_FROM_RESERVED_KEY)
        raise not_found(key, known=self._keys())

    def _newest(self, key: str) -> Value:
        return self._whole(key, self._configured.get(key, ""))

    def _keys(self) -> list[str]:
        return sorted(self._configured.keys() | self._memory.entries.keys())

    def _configured_value(self, entry: FakeValue) -> Value:
        raw = entry.value.encode() or msgspec.json.encode(entry.value_map, order="sorted")
        digest = hmac.new(self.WORLD.version_key, raw, hashlib.sha256).hexdigest()[:16]
        attributes = {"version": entry.version} if entry.version else {}
        return Value(SecretBytes(raw), ValueMetadata(provider_version=digest, attributes=attributes))


class _Watches:
    """Which watches a key concerns."""

    def __init__(self, items: Sequence[WatchItem]) -> None:
        self.ids = tuple(item.watch_id for item in items)
        self._by_key: dict[str, list[str]] = {}
        self._by_name: list[tuple[str, Matcher]] = []
        for item in items:
            if item.ref is not None:
                self._by_key.setdefault(item.ref.key, []).append(item.watch_id)
            elif item.name_regexp:
                self._by_name.append((item.watch_id, Matcher(FindQuery(name_regexp=item.name_regexp))))

    def of(self, key: str) -> tuple[str, ...]:
        named = (watch_id for watch_id, matcher in self._by_name if matcher.matches(key))
        return (*self._by_key.get(key, ()), *named)
