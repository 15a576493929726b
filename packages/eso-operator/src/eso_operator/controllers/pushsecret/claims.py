"""Values that several PushSecrets record as theirs: such a value is deleted with the last of them.

All PushSecrets share one owner token, so no backend can distinguish their values. Without claims, a PushSecret that is
renamed or replaced would delete the value that its successor has just pushed.

A property is part of its remote key, so a PushSecret that pushed one of the two has a claim on the other. A whole value
is not deleted while it contains another PushSecret's property, and a property is not deleted from another PushSecret's
whole value.

Two stores may lead to the same place, such as a v1 store and its v2 successor while PushSecrets switch one after the
other. `elsewhere` returns the candidates; `removal.py` finds out whether their store leads to the same place.

A claim is settled once its value was pushed. Until then a removal waits: if the backend rejects the push, a value that
is left to the other PushSecret would have no owner.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.pushsecret.places import Place, RemoteKey
from eso_operator.controllers.pushsecret.records import Spot, spot_of
from eso_operator.memory import Memory
from kubebase.meta import ObjectKey
from kuberun.cache import Cache

PLACES_INDEX: Final = "places"


def places_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: the remote key of every place that the status records, with and without store."""
    places = list(_recorded(push))
    within = {RemoteKey.of(place, push.metadata.namespace) for place in places}
    return within | {_Anywhere(place.remote_key, place.location) for place in places}


class _Anywhere(NamedTuple):
    """A remote key in any store."""

    remote_key: str
    location: str


class Fate(Enum):
    """The known state of an announced value."""

    ANNOUNCED = "announced"
    """Not pushed yet."""
    SENT = "sent"
    """Being pushed. If the response is lost, the value may have been written."""
    REFUSED = "refused"


NOTHING_ANNOUNCED: Final[Mapping[Place, Fate]] = MappingProxyType({})


class HasClaims(Protocol):
    """The fields of a record that are used here."""

    uid: str
    announced: Mapping[Place, Fate]
    """Values that are recorded in the status, and are not known to be in the backend."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Another PushSecret that records the place; settled if, as far as known, the backend has accepted its value."""

    by: ObjectKey
    settled: bool


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another PushSecret that records the same remote key under another store."""

    push: PushSecret
    store: str
    claim: Claim


class Claims:
    """The claims of all PushSecrets. The process has one."""

    def __init__(self, objects: Cache[PushSecret], memory: Memory[HasClaims]) -> None:
        self._objects = objects
        self._memory = memory

    def announce(self, push: PushSecret, places: Iterable[Place]) -> None:
        """Announce values that are recorded now and pushed next.

        Values of an earlier push that was interrupted count as pushed.
        """
        self._drop(push, Fate.SENT)
        self._note(push, {**self._announced(push), **dict.fromkeys(places, Fate.ANNOUNCED)})

    def withdraw(self, push: PushSecret) -> None:
        """Drop an announcement that was certainly not recorded: a record of it belongs to another PushSecret."""
        self._drop(push, Fate.ANNOUNCED)

    def sent(self, push: PushSecret) -> None:
        """Mark the announced values as being pushed."""
        sent = {place: Fate.SENT for place, fate in self._announced(push).items() if fate is Fate.ANNOUNCED}
        self._note(push, {**self._announced(push), **sent})

    def pushed(self, push: PushSecret, landed: Iterable[Place]) -> None:
        """Mark the announced values that did not land as rejected. Values that may have landed count as pushed."""
        gone = set(landed)
        self._note(push, {place: Fate.REFUSED for place in self._announced(push) if place not in gone})

    def refused(self, push: PushSecret) -> dict[str, list[Spot]]:
        """Return the announced values that no backend accepted, by store.

        The status may still list them if it could not be written.
        """
        found: dict[str, list[Spot]] = {}
        for place, fate in self._announced(push).items():
            if fate is Fate.REFUSED:
                found.setdefault(place.store, []).append(Spot(place.remote_key, place.property, place.location))
        return found

    def other(self, push: PushSecret, place: Place) -> Claim | None:
        """Return the claim of another PushSecret that is not being deleted.

        A rejected value is not a claim, even if the status lists it.
        """
        for other in self._others(push, place):
            if (claim := self._claim(other, place)) is not None:
                return claim
        return None

    def elsewhere(self, push: PushSecret, place: Place) -> Iterator[Elsewhere]:
        """Yield claims on the same remote key in other stores: cluster-scoped ones, or ones of the same namespace."""
        home = push.metadata.namespace
        for other in self._objects.find(PLACES_INDEX, _Anywhere(place.remote_key, place.location)):
            if other.metadata.uid == push.metadata.uid or other.metadata.deletion_timestamp is not None:
                continue
            for store in sorted(set(other.status.synced_push_secrets) - {place.store}):
                there = place._replace(store=store)
                near = other.metadata.namespace == home or not RemoteKey.of(there, home).namespace
                if near and (claim := self._claim(other, there)) is not None:
                    yield Elsewhere(other, store, claim)

    def _claim(self, other: PushSecret, place: Place) -> Claim | None:
        announced = self._announced(other)
        fates = {announced.get(each) for each in _recorded(other) if each.overlaps(place)}
        return Claim(other.key, settled=None in fates) if fates - {Fate.REFUSED} else None

    def recording(self, push: PushSecret, place: Place) -> list[PushSecret]:
        """Return the other PushSecrets that record exactly this place."""
        return [other for other in self._others(push, place) if place in set(_recorded(other))]

    def _others(self, push: PushSecret, place: Place) -> Iterator[PushSecret]:
        """Yield the other PushSecrets that record the remote key and are not being deleted."""
        for other in self._objects.find(PLACES_INDEX, RemoteKey.of(place, push.metadata.namespace)):
            if other.metadata.uid != push.metadata.uid and other.metadata.deletion_timestamp is None:
                yield other

    def _drop(self, push: PushSecret, gone: Fate) -> None:
        self._note(push, {place: fate for place, fate in self._announced(push).items() if fate is not gone})

    def _announced(self, push: PushSecret) -> Mapping[Place, Fate]:
        known = self._memory.known(push.key, push.metadata.uid)
        return NOTHING_ANNOUNCED if known is None else known.announced

    def _note(self, push: PushSecret, announced: Mapping[Place, Fate]) -> None:
        if announced or self._announced(push):
            self._memory.of(push.key, push.metadata.uid).announced = announced


def _recorded(push: PushSecret) -> Iterator[Place]:
    for store, entries in push.status.synced_push_secrets.items():
        for data in entries.values():
            yield Place(store, *spot_of(data))
