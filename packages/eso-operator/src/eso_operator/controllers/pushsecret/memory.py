"""The record of one PushSecret in one bounded table (`eso_operator.memory`).

    field                           kept for                                       if the bound evicts it
    uid, written_on, depends_on     as for all kinds (`controllers/memory.py`)
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
(`dependencies/dependencies.py`), metric series (`report/reporter.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from eso_api.pushsecret import PushSecret
from eso_api.values import SecretBytes
from eso_operator.controllers.contention import PushedKey
from eso_operator.controllers.memory import Record
from eso_operator.controllers.pushsecret.claims import NOTHING_ANNOUNCED, Fate
from eso_operator.controllers.pushsecret.patience import NOTHING_TRIED, Attempts
from eso_operator.controllers.pushsecret.places import Known, Place
from eso_operator.controllers.pushsecret.records import Pushed, Spot, union, without
from eso_operator.controllers.pushsecret.rivals import Rivals
from eso_operator.generators.values import NO_INTENTS, Intent
from eso_operator.memory import Memory
from eso_operator.sources.templates import TemplateVersion
from eso_wire.values import PushItem, SourceSecret
from kubebase.meta import ObjectKey

MAX_VALUES: Final = 1_000_000
"""The limit for all objects together. The oldest records are evicted first."""

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
    announced: Mapping[Place, Fate] = field(default_factory=lambda: NOTHING_ANNOUNCED)
    tried: Mapping[str, Attempts] = field(default_factory=lambda: NOTHING_TRIED)
    unreported: Unreported | None = None
    intents: Mapping[str, Intent] = field(default_factory=lambda: NO_INTENTS)


class Pushes:
    """The pushed values of each object. Both the records and the values in them are bounded."""

    def __init__(self, memory: Memory[PushSecretRecord], max_values: int = MAX_VALUES) -> None:
        self.rivals = Rivals()
        self._memory = memory
        self._max_values = max_values
        self._values = 0
        memory.on_forget(self._forgotten)

    def last(self, push: PushSecret) -> LastPush | None:
        return self._of(push).last

    def values(self, push: PushSecret) -> Mapping[Place, Known]:
        return self._of(push).values

    def remote_keys(self, key: ObjectKey) -> Iterator[PushedKey]:
        """Yield the remote keys that hold values of the object, at the location of the store itself."""
        found = self._memory.find(key)
        for place, known in found.values.items() if found is not None else ():
            if not place.location:
                yield PushedKey(place.store, place.remote_key, key, known.written)

    def unrecorded(self, push: PushSecret) -> Unrecorded:
        """Return the pushed values that may not be in the status."""
        return self._of(push).unrecorded

    def unrecorded_of(self, key: ObjectKey) -> PushSecret | None:
        """Return the object, which may be deleted by now, whose pushed values may be missing in its status."""
        found = self._memory.find(key)
        return found.pushed_for if found is not None and found.unrecorded else None

    def wrote(self, push: PushSecret, values: Mapping[Place, Known], new: Unrecorded) -> None:
        """Remember values that are in their stores now, recorded or not."""
        known = self._of(push)
        self._keep(push, {**known.values, **values}, union(new, known.unrecorded), push)

    def removed(self, push: PushSecret, gone: Mapping[str, Iterable[Spot]]) -> None:
        """Forget values that are no longer in their stores."""
        known = self._of(push)
        places = {Place(store, *spot) for store, spots in gone.items() for spot in spots}
        values = {place: value for place, value in known.values.items() if place not in places}
        self._keep(push, values, without(known.unrecorded, gone), known.pushed_for)

    def recorded(self, push: PushSecret, learned: Learned | None) -> None:
        """Record that the status lists all pushed values. After a successful push, only its values are remembered."""
        if learned is None:
            self._keep(push, self._of(push).values)
            return
        self._keep(push, dict(learned.values))
        self._memory.of(push.key, push.metadata.uid).last = learned.last

    def clear(self, push: PushSecret) -> None:
        """Record that no store holds a value of the object."""
        self._keep(push, NOTHING_KNOWN)
        self._memory.of(push.key, push.metadata.uid).last = None

    def _of(self, push: PushSecret) -> PushSecretRecord:
        """Return the record of this object, not of a former object with its name."""
        return self._memory.known(push.key, push.metadata.uid) or PushSecretRecord(push.metadata.uid)

    def _keep(
        self,
        push: PushSecret,
        values: Mapping[Place, Known],
        unrecorded: Unrecorded = NOTHING_UNRECORDED,
        pushed_for: PushSecret | None = None,
    ) -> None:
        record = self._memory.of(push.key, push.metadata.uid)
        old, record.values = record.values, values
        record.unrecorded, record.pushed_for = unrecorded, pushed_for
        self._values += len(values) - len(old)
        self.rivals.update(push.key, old, values)
        while self._values > self._max_values and len(self._memory) > 1:
            self._memory.evict_oldest()

    def _forgotten(self, key: ObjectKey, record: PushSecretRecord) -> None:
        self._values -= len(record.values)
        self.rivals.update(key, record.values, NOTHING_KNOWN)


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
