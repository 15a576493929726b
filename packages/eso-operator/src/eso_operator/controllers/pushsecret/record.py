"""`status.syncedPushSecrets`: the entries that are ours, by store. Pure.

    store key -> entry key -> the entry as it was pushed

Keys are those of the existing operator (`remoteKey`, `remoteKey/property`), so that either can take over from the
other. Entries are identified by the remote ref inside, because `a/b` and property `b` of `a` have the same key.

The places of pushed values, and the known state of a value at its place.

The record of one PushSecret in one bounded table (`eso_operator.memory`).

    field                           kept for                                       if the bound evicts it
    uid, written_on, depends_on     as for all kinds (`memory.py`)
    last, values                    an unchanged value is not pushed again         it is pushed once more
    unrecorded, pushed_for          values whose record could not be written yet   recorded when they are pushed again
    emptied                         a deleted PushSecret is emptied only once      it is emptied once more
    announced                       recorded values that were not pushed yet       they count as pushed
    tried                           failed removals end after a while              counting restarts
    unreported                      the status of generated values is written      the backend is asked (`pending.py`)
    intents                         a retry repeats a generator call               cleaned up and generated again

An evicted object is reconciled again within minutes. Records end with the process, so a value may be pushed once more
after a restart. Digests are keyed with a key of this process, so they reveal nothing about a value.

`Memory.forget` removes the object from these indexes: writers of a remote key (`rivals.py`), dependants
(`dependencies/dependencies.py`), metric series (`controllers/base.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from eso_api.pushsecret import PushData, PushSecret
from eso_api.references import CORE_GROUP
from eso_api.values import SecretBytes
from eso_operator.generators.ledger import NO_INTENTS, Intent
from eso_operator.memory import Record
from eso_operator.sources.templates import TemplateVersion
from eso_wire.values import PushItem, SourceSecret


class Announcement(Enum):
    """The known state of an announced value."""

    ANNOUNCED = "announced"
    """Not pushed yet."""
    SENT = "sent"
    """Being pushed. If the response is lost, the value may have been written."""
    REFUSED = "refused"


NOTHING_ANNOUNCED: Final[Mapping[Place, Announcement]] = MappingProxyType({})


class Attempts(NamedTuple):
    """The number of failed attempts, and the time (monotonic) of the first one."""

    made: int
    since: float


NOTHING_TRIED: Final[Mapping[str, Attempts]] = MappingProxyType({})


Recorded = Mapping[str, Mapping[str, PushData]]

Versions = Mapping[str, Mapping[str, str]]


class Spot(NamedTuple):
    """A place inside one store."""

    remote_key: str
    property: str
    location: str = ""
    """The location that the metadata of the entry sets, if any: `spec.remoteNamespace` of a Kubernetes store."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One entry of ours, with its version if the provider reports one."""

    data: PushData
    version: str = ""


def split_key(key: str) -> tuple[str, str, str]:
    """Group, kind and name of a store that the status names."""
    parts = key.split("/")
    match parts:
        case [kind, name]:
            return CORE_GROUP, kind, name
        case [group, kind, name]:
            return group, kind, name
        case _:
            return CORE_GROUP, "SecretStore", key


def spot_of(data: PushData) -> Spot:
    ref = data.match.remote_ref
    return Spot(ref.remote_key, ref.property, _location(data.metadata))


def _location(metadata: Any) -> str:
    spec = metadata.get("spec") if isinstance(metadata, Mapping) else None
    said = spec.get("remoteNamespace") if isinstance(spec, Mapping) else None
    return said if isinstance(said, str) else ""


def entry_key(data: PushData) -> str:
    ref = data.match.remote_ref
    return f"{ref.remote_key}/{ref.property}" if ref.property else ref.remote_key


def spots_of(recorded: Recorded, store: str) -> frozenset[Spot]:
    """Return the recorded entries of one store."""
    return frozenset(map(spot_of, recorded.get(store, {}).values()))


def recorded(
    pushed: Mapping[str, Iterable[Pushed]],
) -> tuple[dict[str, dict[str, PushData]], dict[str, dict[str, str]]]:
    """Return the two maps of the status: entries, and versions if there are any.

    Stores without entries are left out.
    """
    entries: dict[str, dict[str, PushData]] = {}
    versions: dict[str, dict[str, str]] = {}
    for store, each in pushed.items():
        for key, one in _keyed(each).items():
            entries.setdefault(store, {})[key] = one.data
            if one.version:
                versions.setdefault(store, {})[key] = one.version
    return entries, versions


def known(entries: Recorded, versions: Versions) -> dict[str, list[Pushed]]:
    """Return the entries of the status: the reverse of `recorded`."""
    return {
        store: [Pushed(data, versions.get(store, {}).get(key, "")) for key, data in each.items()]
        for store, each in entries.items()
    }


def union(new: Mapping[str, Iterable[Pushed]], old: Mapping[str, Iterable[Pushed]]) -> dict[str, list[Pushed]]:
    """Return both, so that no record is lost while a push is incomplete. The earlier record wins."""
    result: dict[str, list[Pushed]] = {}
    for store in (*new, *old):
        merged = {spot_of(each.data): each for each in (*new.get(store, ()), *old.get(store, ()))}
        result[store] = list(merged.values())
    return result


def stale(new: Mapping[str, Iterable[Pushed]], old: Mapping[str, Iterable[Pushed]]) -> dict[str, list[PushData]]:
    """Return the entries that were pushed before and are no longer wanted, by store."""
    result: dict[str, list[PushData]] = {}
    for store, each in old.items():
        wanted = {spot_of(one.data) for one in new.get(store, ())}
        if gone := [one.data for one in each if spot_of(one.data) not in wanted]:
            result[store] = gone
    return result


def without(old: Mapping[str, Iterable[Pushed]], gone: Mapping[str, Iterable[Spot]]) -> dict[str, list[Pushed]]:
    """Return the records without these entries; a store without entries is dropped."""
    result: dict[str, list[Pushed]] = {}
    for store, each in old.items():
        removed = set(gone.get(store, ()))
        if left := [one for one in each if spot_of(one.data) not in removed]:
            result[store] = left
    return result


def _keyed(pushed: Iterable[Pushed]) -> dict[str, Pushed]:
    """Return the entries by entry key; if two have the same key, the second gets a different one."""
    result: dict[str, Pushed] = {}
    for one in sorted(pushed, key=lambda each: spot_of(each.data)):
        key = entry_key(one.data)
        while key in result:
            key += "/"
        result[key] = one
    return result


_CLUSTER_KIND: Final = "Cluster"
"""Prefix of cluster-scoped kinds, whose name means the same object in every namespace."""


class Place(NamedTuple):
    """The place of a value: a store by its key in the status, and the location in its backend."""

    store: str
    remote_key: str
    property: str
    location: str = ""
    """As in `Spot`."""

    def contains(self, other: Place) -> bool:
        """Return whether the other place is a part of this one: a property of the whole, or `a.b` of `a`."""
        if self._replace(property="") != other._replace(property="") or self.property == other.property:
            return False
        return not self.property or other.property.startswith(f"{self.property}.")

    def overlaps(self, other: Place) -> bool:
        """Return whether writing or deleting one of them affects the other."""
        return self == other or self.contains(other) or other.contains(self)


class RemoteKey(NamedTuple):
    """One remote key, independent of who pushes it.

    `namespace` is that of the store, empty for cluster-scoped stores.
    """

    namespace: str
    store: str
    remote_key: str
    location: str = ""

    @staticmethod
    def of(place: Place, namespace: str) -> RemoteKey:
        """Return the remote key of a place of a PushSecret in that namespace."""
        _, kind, _ = split_key(place.store)
        return RemoteKey(
            "" if kind.startswith(_CLUSTER_KIND) else namespace, place.store, place.remote_key, place.location
        )


class Known(NamedTuple):
    """A value that is known to be at its place: the digest of our push (empty for a foreign value), version, owner."""

    digest: bytes
    version: str
    ours: bool = True
    value: bytes = b""
    """Digest of the value alone, to compare PushSecrets; empty under IfNotExists, where any value is accepted."""
    order: int = 0
    """The number of its write; it grows with every write of this process."""
    made: str = ""
    """The version that this write gave the remote key. `version` may be a later one that was seen with our value."""
    written: int = 0
    """The number of the last write that changed the value there; 0 if none did."""


_KEY: Final = secrets.token_bytes(32)

_VALUE_DIGEST: Final = 16


Unrecorded = Mapping[str, Sequence[Pushed]]
"""Pushed entries by store, as in `status.syncedPushSecrets`."""


NOTHING_KNOWN: Final[Mapping[Place, Known]] = MappingProxyType({})

NOTHING_UNRECORDED: Final[Unrecorded] = MappingProxyType({})


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
    """The time at which generated values must be renewed."""
    templates: frozenset[TemplateVersion] = frozenset()


@dataclass(frozen=True, slots=True)
class Learned:
    """The facts about a successful push, remembered once the status records the push."""

    last: LastPush
    values: Mapping[Place, Known]


@dataclass(frozen=True, slots=True)
class Unreported:
    """A successful push of generated values whose status could not be written yet."""

    generation: int
    """The generation of the object that was pushed."""
    records: Unrecorded
    learned: Learned


@dataclass(slots=True, eq=False)
class PushSecretRecord(Record):
    """The record of one PushSecret. The table above says what each field is for."""

    last: LastPush | None = None
    values: Mapping[Place, Known] = field(default_factory=lambda: NOTHING_KNOWN)
    unrecorded: Unrecorded = field(default_factory=lambda: NOTHING_UNRECORDED)
    pushed_for: PushSecret | None = None
    """The object as it was at the push, while some of its values are unrecorded."""
    emptied: bool = False
    """True if all values of a PushSecret that is being deleted were removed."""
    announced: Mapping[Place, Announcement] = field(default_factory=lambda: NOTHING_ANNOUNCED)
    tried: Mapping[str, Attempts] = field(default_factory=lambda: NOTHING_TRIED)
    unreported: Unreported | None = None
    intents: Mapping[str, Intent] = field(default_factory=lambda: NO_INTENTS)


def digest(item: PushItem, source: SourceSecret, backend: str) -> bytes:
    """Return a digest that is equal for equal pushes.

    It covers value, settings, source metadata, and the store's configuration (`backend`).
    """
    told = msgspec.json.encode(
        [
            backend,
            item.provider_metadata,
            item.remote.key,
            item.remote.property,
            source.type,
            sorted(source.labels.items()),
            sorted(source.annotations.items()),
        ],
        order="deterministic",
    )
    mark = hmac.new(_KEY, told, hashlib.sha256)
    for credential in item.resolved:
        mark.update(credential.pointer.encode())
        if isinstance(credential.value, SecretBytes):
            mark.update(credential.value.reveal())
    _add_payload(mark, item)
    return mark.digest()


def value_digest(item: PushItem) -> bytes:
    """Return a digest that is equal for equal values, whatever their source."""
    mark = hmac.new(_KEY, b"", hashlib.sha256)
    _add_payload(mark, item)
    return mark.digest()[:_VALUE_DIGEST]


def _add_payload(mark: hmac.HMAC, item: PushItem) -> None:
    if isinstance(item.payload, SecretBytes):
        _add(mark, b"value", item.payload)
    else:
        mark.update(b"whole:")
        for name in sorted(item.payload):
            _add(mark, name.encode("utf-8", "surrogateescape"), item.payload[name])


def _add(mark: hmac.HMAC, name: bytes, value: SecretBytes) -> None:
    mark.update(b"%d:%b%d:" % (len(name), name, len(value)))
    mark.update(value.reveal())


Records = Mapping[str, Sequence[Pushed]]
