"""What is known of the target of each ExternalSecret: its last written or read version, and the keys that it owns.

Several ExternalSecrets can write to one target. The hash covers all of it, and an ExternalSecret that repairs its
own keys writes a new hash, which hides lost keys of the others. So each ExternalSecret remembers its keys from
managedFields after its last write. A key that another ExternalSecret took over does not count as lost: the last refresh
wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eso_api.externalsecret import ExternalSecret
from eso_operator.memory import Memory
from eso_operator.targets.metadata import Path, field_manager_of, fields_of, is_field_manager, parts_of
from kubebase.meta import JsonObject, ObjectKey, ObjectMeta, meta_of


@dataclass(frozen=True, slots=True)
class ObservedTarget:
    """The last written or read version of a target."""

    key: ObjectKey
    uid: str
    resource_version: str
    wanted: str
    """The digest of the desired content that it has; empty if it was only read."""
    valid: bool

    def is_of(self, metadata: ObjectMeta) -> bool:
        return (self.uid, self.resource_version) == (metadata.uid, metadata.resource_version)


@dataclass(frozen=True, slots=True)
class Share:
    """The keys of one ExternalSecret. `uid` and `version` are those of the target at the last read."""

    uid: str
    version: str
    keys: frozenset[Path]
    intact: bool


class HasTarget(Protocol):
    """The fields of a record that are used here."""

    uid: str
    target: ObservedTarget | None
    share: Share | None


TargetMemory = Memory[HasTarget]


class ObservedTargets:
    """The last observed version of the target of each ExternalSecret."""

    def __init__(self, memory: TargetMemory) -> None:
        self._memory = memory

    def of(self, es: ExternalSecret, metadata: ObjectMeta) -> ObservedTarget | None:
        """Return what is known of exactly this version; None if nothing is."""
        found = self._of(es)
        return found if found is not None and found.is_of(metadata) else None

    def keep(self, es: ExternalSecret, metadata: ObjectMeta, *, wanted: str, valid: bool) -> None:
        found = ObservedTarget(metadata.key, metadata.uid, metadata.resource_version, wanted, valid)
        self._memory.of(es.key, es.metadata.uid).target = found

    def written_by_us(self, key: ObjectKey, metadata: ObjectMeta) -> bool:
        """Return whether the ExternalSecret of this key wrote exactly this version, and it is valid."""
        record = self._memory.find(key)
        found = None if record is None else record.target
        return found is not None and found.is_of(metadata) and found.valid and bool(found.wanted)

    def has(self, es: ExternalSecret, key: ObjectKey) -> bool:
        """Return whether any version of the target is remembered."""
        found = self._of(es)
        return found is not None and found.key == key

    def forget(self, es: ExternalSecret) -> None:
        if (record := self._memory.known(es.key, es.metadata.uid)) is not None:
            record.target = None

    def _of(self, es: ExternalSecret) -> ObservedTarget | None:
        record = self._memory.known(es.key, es.metadata.uid)
        return None if record is None else record.target


class KeyShares:
    """The share of each ExternalSecret in its target."""

    def __init__(self, memory: TargetMemory) -> None:
        self._memory = memory

    def keep(self, es: ExternalSecret, target: JsonObject) -> None:
        """Record the keys of an ExternalSecret in a target that holds all of them."""
        mine = fields_of(target, field_manager_of(es.metadata.name)).ours
        self._remember(es, meta_of(target), keys=frozenset(path for path in mine if "data" in path[:-1]), intact=True)

    def verdict(self, es: ExternalSecret, metadata: ObjectMeta) -> bool | None:
        """Return whether this version of the target holds all its keys; None if this version was not checked."""
        share = self._of(es)
        if share is None or (share.uid, share.version) != (metadata.uid, metadata.resource_version):
            return None
        return share.intact

    def check(self, es: ExternalSecret, target: JsonObject) -> bool | None:
        """Return whether the target still holds all its keys, and remember the result; None if its keys are unknown."""
        share = self._of(es)
        if share is None:
            return None
        intact = share.keys <= parts_of(target, is_field_manager)
        self._remember(es, meta_of(target), keys=share.keys, intact=intact)
        return intact

    def _remember(self, es: ExternalSecret, metadata: ObjectMeta, *, keys: frozenset[Path], intact: bool) -> None:
        share = Share(metadata.uid, metadata.resource_version, keys, intact)
        self._memory.of(es.key, es.metadata.uid).share = share

    def _of(self, es: ExternalSecret) -> Share | None:
        record = self._memory.known(es.key, es.metadata.uid)
        return None if record is None else record.share
