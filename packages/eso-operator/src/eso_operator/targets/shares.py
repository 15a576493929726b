"""What each ExternalSecret has put into a target that it shares.

The hash of a target covers all of it, and whoever repairs it writes a new one: what the others have lost meanwhile does
not show. So each remembers its own keys, as managedFields had them after its last write. A key that another
ExternalSecret took over is no loss: the last refresh wins.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.managedfields import Path, fields_of, parts_of
from eso_operator.targets.marks import field_manager_of, is_field_manager
from eso_operator.targets.target import MAX_REMEMBERED
from kuberun.meta import JsonObject, ObjectMeta, meta_of


@dataclass(frozen=True, slots=True)
class _Share:
    """`uid` and `version` are those of the target when it was last looked at."""

    uid: str
    version: str
    keys: frozenset[Path]
    intact: bool


class Shares:
    """By ExternalSecret; bounded, oldest out."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Share] = OrderedDict()

    def keep(self, es: ExternalSecret, target: JsonObject) -> None:
        """All that it wants is in there."""
        mine = fields_of(target, field_manager_of(es.metadata.name)).ours
        self._remember(es, meta_of(target), keys=frozenset(path for path in mine if "data" in path[:-1]), intact=True)

    def verdict(self, es: ExternalSecret, metadata: ObjectMeta) -> bool | None:
        """Whether this very version of its target holds all that is its own; None if that one was not looked at."""
        share = self._known.get(es.metadata.uid)
        if share is None or (share.uid, share.version) != (metadata.uid, metadata.resource_version):
            return None
        return share.intact

    def look(self, es: ExternalSecret, target: JsonObject) -> bool | None:
        """Whether its target still holds all that is its own; None if it is not known what that is."""
        share = self._known.get(es.metadata.uid)
        if share is None:
            return None
        intact = share.keys <= parts_of(target, is_field_manager)
        self._remember(es, meta_of(target), keys=share.keys, intact=intact)
        return intact

    def _remember(self, es: ExternalSecret, metadata: ObjectMeta, *, keys: frozenset[Path], intact: bool) -> None:
        self._known[es.metadata.uid] = _Share(metadata.uid, metadata.resource_version, keys, intact)
        self._known.move_to_end(es.metadata.uid)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
