"""Values that several PushSecrets count as theirs: the last one to go takes them along, not the first.

Backends that keep an owner's mark settle this by themselves; others would let a PushSecret that is renamed, or replaced
by another, delete what its successor has just pushed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from eso_api.pushsecret import PushSecret
from eso_operator.pushsecret.memory import Place
from eso_operator.pushsecret.records import spot_of
from eso_operator.pushsecret.stores import split_key
from kuberun.cache import Store

PLACES_INDEX: Final = "places"
_CLUSTER_KIND: Final = "Cluster"
"""How kinds begin that mean the same object in every namespace."""


def places_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: every place that the status records."""
    recorded = push.status.synced_push_secrets
    return [Place(store, *spot_of(data)) for store, entries in recorded.items() for data in entries.values()]


class Claims:
    """One for the process."""

    def __init__(self, objects: Store[PushSecret]) -> None:
        self._objects = objects

    def other(self, push: PushSecret, place: Place) -> PushSecret | None:
        """Another PushSecret, not about to go, that has pushed to the place too."""
        _, kind, _ = split_key(place.store)
        for other in self._objects.find(PLACES_INDEX, place):
            meta = other.metadata
            near = meta.namespace == push.metadata.namespace or kind.startswith(_CLUSTER_KIND)
            if near and meta.uid != push.metadata.uid and meta.deletion_timestamp is None:
                return other
        return None
