"""Values that several PushSecrets count as theirs: the last one to go takes them along, not the first.

All PushSecrets share one owner token, so no backend can tell their values apart. Without claims, a PushSecret that is
renamed, or replaced by another, would delete what its successor has just pushed. A property is part of its remote key,
so whoever pushed one of the two has a claim on the other: the whole is not deleted while another PushSecret's property
is in it, nor a part of another PushSecret's whole. A value that is recorded and not pushed yet is no settled claim: if
the backend refuses it, a value that was left to the successor would have no owner.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eso_api.pushsecret import PushSecret
from eso_operator.pushsecret.places import Place, RemoteKey
from eso_operator.pushsecret.records import Spot, spot_of
from kuberun.cache import Store
from kuberun.meta import ObjectKey

PLACES_INDEX: Final = "places"


def places_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: the remote key of every place that the status records."""
    return {RemoteKey.of(place, push.metadata.namespace) for place in _recorded(push)}


class _Fate(Enum):
    """What became of a value that was announced."""

    ANNOUNCED = "announced"
    """Not pushed yet."""
    SENT = "sent"
    """On its way; if nobody hears what became of it, it may have landed."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Claim:
    """Another PushSecret that records the place; settled when, as far as known, the backend has taken its value."""

    by: ObjectKey
    settled: bool


class Claims:
    """One for the process."""

    def __init__(self, objects: Store[PushSecret]) -> None:
        self._objects = objects
        self._announced: dict[ObjectKey, dict[Place, _Fate]] = {}

    def announce(self, push: PushSecret, places: Iterable[Place]) -> None:
        """They go on record now, and are pushed then. A push before that was interrupted counts as landed."""
        self._drop(push, _Fate.SENT)
        self._announced.setdefault(push.key, {}).update(dict.fromkeys(places, _Fate.ANNOUNCED))

    def withdraw(self, push: PushSecret) -> None:
        """The announcement certainly did not get on record: whoever has it there by now is somebody else."""
        self._drop(push, _Fate.ANNOUNCED)

    def sent(self, push: PushSecret) -> None:
        """What was announced is on its way to the backends."""
        announced = self._announced.get(push.key, {})
        announced.update({place: _Fate.SENT for place, fate in announced.items() if fate is _Fate.ANNOUNCED})

    def pushed(self, push: PushSecret, landed: Iterable[Place]) -> None:
        """What was announced and did not land was refused; what may have landed counts as landed."""
        if (announced := self._announced.get(push.key)) is None:
            return
        for place in landed:
            announced.pop(place, None)
        announced.update(dict.fromkeys(announced, _Fate.REFUSED))

    def refused(self, push: PushSecret) -> dict[str, list[Spot]]:
        """What it announced and no backend took, by store: its status may say otherwise if it could not be written."""
        found: dict[str, list[Spot]] = {}
        for place, fate in self._announced.get(push.key, {}).items():
            if fate is _Fate.REFUSED:
                found.setdefault(place.store, []).append(Spot(place.remote_key, place.property, place.location))
        return found

    def forget(self, key: ObjectKey) -> None:
        self._announced.pop(key, None)

    def other(self, push: PushSecret, place: Place) -> Claim | None:
        """Of a PushSecret that is not about to go. A refused value is no claim, whatever the status says by now."""
        for other in self._others(push, place):
            announced = self._announced.get(other.key, {})
            fates = {announced.get(each) for each in _recorded(other) if each.overlaps(place)}
            if fates - {_Fate.REFUSED}:
                return Claim(other.key, settled=None in fates)
        return None

    def recording(self, push: PushSecret, place: Place) -> list[PushSecret]:
        """The other PushSecrets that record exactly this place."""
        return [other for other in self._others(push, place) if place in set(_recorded(other))]

    def _others(self, push: PushSecret, place: Place) -> Iterator[PushSecret]:
        """Other PushSecrets that record the remote key and are not being deleted."""
        for other in self._objects.find(PLACES_INDEX, RemoteKey.of(place, push.metadata.namespace)):
            if other.metadata.uid != push.metadata.uid and other.metadata.deletion_timestamp is None:
                yield other

    def _drop(self, push: PushSecret, gone: _Fate) -> None:
        left = {place: fate for place, fate in self._announced.pop(push.key, {}).items() if fate is not gone}
        if left:
            self._announced[push.key] = left


def _recorded(push: PushSecret) -> Iterator[Place]:
    for store, entries in push.status.synced_push_secrets.items():
        for data in entries.values():
            yield Place(store, *spot_of(data))
