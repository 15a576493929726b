"""What is remembered of the target of an ExternalSecret: its last written or read version, and the keys it owns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from eso_api.externalsecret import ExternalSecret
from eso_operator.memory import Memory
from eso_operator.targets.managedfields import Path
from kubebase.meta import ObjectKey, ObjectMeta


@dataclass(frozen=True, slots=True)
class Seen:
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
    """The keys of one ExternalSecret. `uid` and `version` are those of the target at the last look."""

    uid: str
    version: str
    keys: frozenset[Path]
    intact: bool


class HasTarget(Protocol):
    """The fields of a record that are used here."""

    uid: str
    target: Seen | None
    share: Share | None


TargetMemory = Memory[HasTarget]


class SeenTargets:
    """The last seen version of the target of each ExternalSecret."""

    def __init__(self, memory: TargetMemory) -> None:
        self._memory = memory

    def of(self, es: ExternalSecret, metadata: ObjectMeta) -> Seen | None:
        """Return what is known of exactly this version; None if nothing is."""
        found = self._of(es)
        return found if found is not None and found.is_of(metadata) else None

    def keep(self, es: ExternalSecret, metadata: ObjectMeta, *, wanted: str, valid: bool) -> None:
        seen = Seen(metadata.key, metadata.uid, metadata.resource_version, wanted, valid)
        self._memory.of(es.key, es.metadata.uid).target = seen

    def is_our_word(self, key: ObjectKey, metadata: ObjectMeta) -> bool:
        """Return whether the ExternalSecret of this key wrote exactly this version, and it is valid."""
        record = self._memory.find(key)
        seen = None if record is None else record.target
        return seen is not None and seen.is_of(metadata) and seen.valid and bool(seen.wanted)

    def has(self, es: ExternalSecret, key: ObjectKey) -> bool:
        """Return whether any version of the target is remembered."""
        found = self._of(es)
        return found is not None and found.key == key

    def forget(self, es: ExternalSecret) -> None:
        if (record := self._memory.known(es.key, es.metadata.uid)) is not None:
            record.target = None

    def _of(self, es: ExternalSecret) -> Seen | None:
        record = self._memory.known(es.key, es.metadata.uid)
        return None if record is None else record.target
