"""The keys that each ExternalSecret owns in a target that several ExternalSecrets write to.

The hash covers the whole target, and an ExternalSecret that repairs its own keys writes a new hash, which hides lost
keys of the others. So each ExternalSecret remembers its keys from managedFields after its last write. A key that
another ExternalSecret took over does not count as lost: the last refresh wins.
"""

from __future__ import annotations

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.managedfields import Path, fields_of, parts_of
from eso_operator.targets.marks import field_manager_of, is_field_manager
from eso_operator.targets.memory import Share, TargetMemory
from kubebase.meta import JsonObject, ObjectMeta, meta_of


class Shares:
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

    def look(self, es: ExternalSecret, target: JsonObject) -> bool | None:
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
