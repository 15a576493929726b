"""What is recorded of a PushSecret: in its status, and in the memory of this process.

`status.syncedPushSecrets` lists the entries that are ours: store key -> entry key -> the entry as it was pushed. Both
keys are those of the existing operator (`Kind/name`, `remoteKey` or `remoteKey/property`), so that either operator can
take over from the other. Here an entry is identified by its `RemoteKey`, because `a/b` and property `b` of `a` have the
same entry key.

The record in memory (`eso_operator.memory`, one bounded table):

    field                           kept for                                       if the bound evicts it
    uid, written_on, depends_on     as for all kinds (`memory.py`)
    last, values                    an unchanged value is not pushed again         it is pushed once more
    unrecorded, pushed_for          values whose record could not be written yet   recorded when they are pushed again
    emptied                         a deleted PushSecret is emptied only once      it is emptied once more
    announced                       recorded values that were not pushed yet       they count as pushed
    removals                        failed removals end after a while              counting restarts
    unreported                      the status of generated values is written      the backend is asked (`pending.py`)
    intents                         a retry repeats a generator call               cleaned up and generated again

An evicted object is reconciled again within minutes. Records end with the process, so a value may be pushed once more
after a restart. `Memory.forget` removes the object from these indexes: writers of a remote key (`ownership.py`),
dependants (`dependencies.py`), metric series (`controllers/base.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from eso_api.pushsecret import PushData, PushSecret, PushSecretStatus
from eso_api.references import CORE_GROUP
from eso_operator.generators.ledger import NO_INTENTS, Intent
from eso_operator.memory import Record
from eso_operator.sources.templates import TemplateVersion

_CLUSTER_KIND: Final = "Cluster"
"""Prefix of cluster-scoped kinds, whose name means the same object in every namespace."""


class RemoteKey(NamedTuple):
    """The place of one value in one store: a remote key, or a property of it."""

    store: str
    """The key of the store in the status."""
    name: str
    property: str
    location: str = ""
    """The location that the metadata of the entry sets, if any: `spec.remoteNamespace` of a Kubernetes store."""

    @staticmethod
    def of(store: str, data: PushData) -> RemoteKey:
        ref = data.match.remote_ref
        return RemoteKey(store, ref.remote_key, ref.property, _location(data.metadata))

    def whole(self) -> RemoteKey:
        """Return the remote key that this one is a property of."""
        return self._replace(property="")

    def contains(self, other: RemoteKey) -> bool:
        """Return whether the other one is a part of this one: a property of the whole, or `a.b` of `a`."""
        if self.whole() != other.whole() or self.property == other.property:
            return False
        return not self.property or other.property.startswith(f"{self.property}.")

    def overlaps(self, other: RemoteKey) -> bool:
        """Return whether writing or deleting one of them affects the other."""
        return self == other or self.contains(other) or other.contains(self)


SharedKey = tuple[str, RemoteKey]
"""A whole remote key, whoever pushes it. The namespace is that of the store, empty for cluster-scoped stores."""


def shared_key(key: RemoteKey, namespace: str) -> SharedKey:
    """Return the remote key of a PushSecret in that namespace, as all its writers know it."""
    _, kind, _ = split_key(key.store)
    return "" if kind.startswith(_CLUSTER_KIND) else namespace, key.whole()


def split_key(key: str) -> tuple[str, str, str]:
    """Return group, kind and name of a store that the status names."""
    parts = key.split("/")
    match parts:
        case [kind, name]:
            return CORE_GROUP, kind, name
        case [group, kind, name]:
            return group, kind, name
        case _:
            return CORE_GROUP, "SecretStore", key


def _location(metadata: Any) -> str:
    spec = metadata.get("spec") if isinstance(metadata, Mapping) else None
    location = spec.get("remoteNamespace") if isinstance(spec, Mapping) else None
    return location if isinstance(location, str) else ""


# --- status.syncedPushSecrets -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyncedEntry:
    """One entry of ours, with its version if the provider reports one."""

    data: PushData
    version: str = ""


SyncedEntries = Mapping[RemoteKey, SyncedEntry]


def entry_key(data: PushData) -> str:
    ref = data.match.remote_ref
    return f"{ref.remote_key}/{ref.property}" if ref.property else ref.remote_key


def keys_of(status: PushSecretStatus) -> Iterator[RemoteKey]:
    """Yield the remote keys that the status lists."""
    for store, entries in status.synced_push_secrets.items():
        for data in entries.values():
            yield RemoteKey.of(store, data)


def entries_of(status: PushSecretStatus) -> dict[RemoteKey, SyncedEntry]:
    """Return the entries that the status lists."""
    return {
        RemoteKey.of(store, data): SyncedEntry(data, status.synced_versions.get(store, {}).get(key, ""))
        for store, entries in status.synced_push_secrets.items()
        for key, data in entries.items()
    }


def status_fields(entries: SyncedEntries) -> dict[str, Any]:
    """Return the two fields of the status that list these entries: the reverse of `entries_of`.

    If two entries of a store have the same entry key, the second gets a different one.
    """
    synced: dict[str, dict[str, PushData]] = {}
    versions: dict[str, dict[str, str]] = {}
    for remote, entry in sorted(entries.items()):
        of_store, key = synced.setdefault(remote.store, {}), entry_key(entry.data)
        while key in of_store:
            key += "/"
        of_store[key] = entry.data
        if entry.version:
            versions.setdefault(remote.store, {})[key] = entry.version
    return {"synced_push_secrets": synced, "synced_versions": versions}


V = TypeVar("V")


def without(entries: Mapping[RemoteKey, V], gone: Collection[RemoteKey]) -> dict[RemoteKey, V]:
    """Return the entries except those."""
    return {key: entry for key, entry in entries.items() if key not in gone}


# --- memory -----------------------------------------------------------------------------------------------------------


class RemoteValue(NamedTuple):
    """What this process knows of a value that it pushed, or found: then the digest is empty."""

    digest: bytes
    version: str
    ours: bool = True
    value: bytes = b""
    """Digest of the value alone, to compare PushSecrets; empty under IfNotExists, where any value is accepted."""
    order: int = 0
    """The number of its write; it grows with every write of this process."""
    made: str = ""
    """The version that this write gave the remote key. `version` may be a later one that was read with our value."""
    written: int = 0
    """The number of the last write that changed the value there; 0 if none did."""


class Announcement(Enum):
    """The state of an entry that was recorded before it was pushed."""

    ANNOUNCED = "announced"
    """Not pushed yet."""
    SENT = "sent"
    """Being pushed. If the response is lost, the value may have been written."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LastPush:
    """The last successful push."""

    at: datetime
    version: str
    """The version of the PushSecret: `status.syncedResourceVersion`."""
    sources: frozenset[str]
    """Each Secret with its uid and resourceVersion."""
    stores: frozenset[str]
    renew_at: datetime | None = None
    """When generated values must be renewed."""
    templates: frozenset[TemplateVersion] = frozenset()


class Attempts(NamedTuple):
    """The number of failed attempts, and the time (monotonic) of the first one."""

    made: int
    since: float


@dataclass(frozen=True, slots=True)
class Unreported:
    """A successful push of generated values whose status could not be written yet."""

    generation: int
    """The generation of the object that was pushed."""
    entries: SyncedEntries
    last: LastPush
    values: Mapping[RemoteKey, RemoteValue]


NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class PushSecretRecord(Record):
    """The record of one PushSecret. The table above says what each field is for."""

    last: LastPush | None = None
    values: Mapping[RemoteKey, RemoteValue] = field(default_factory=lambda: NOTHING)
    unrecorded: SyncedEntries = field(default_factory=lambda: NOTHING)
    """Entries that were pushed and may not be in the status."""
    pushed_for: PushSecret | None = None
    """The object as it was at the push, while some of its entries are unrecorded."""
    emptied: bool = False
    """True if all values of a PushSecret that is being deleted were removed."""
    announced: Mapping[RemoteKey, Announcement] = field(default_factory=lambda: NOTHING)
    removals: Mapping[str, Attempts] = field(default_factory=lambda: NOTHING)
    """Failed removals, by store."""
    unreported: Unreported | None = None
    intents: Mapping[str, Intent] = field(default_factory=lambda: NO_INTENTS)
