"""The mark of values that this operator pushes.

Values that several PushSecrets record as theirs: such a value is deleted with the last of them.

All PushSecrets share one owner token, so no backend can distinguish their values. Without claims, a PushSecret that is
renamed or replaced would delete the value that its successor has just pushed.

A property is part of its remote key, so a PushSecret that pushed one of the two has a claim on the other. A whole value
is not deleted while it contains another PushSecret's property, and a property is not deleted from another PushSecret's
whole value.

Two stores may lead to the same place, such as a v1 store and its v2 successor while PushSecrets switch one after the
other. `elsewhere` returns the candidates; `removal.py` finds out whether their store leads to the same place.

A claim is settled once its value was pushed. Until then a removal waits: if the backend rejects the push, a value that
is left to the other PushSecret would have no owner.

PushSecrets that write to one remote key: their values, the order of their writes, and conflicts between them.

    same place, same value            no conflict within a namespace
    same place, different values      contention: the last writer wins; the other PushSecret writes again when its value
                                      changes, or when the last writer stops pushing there
    same place, other namespace       contention, whatever the values are
    different properties of one key   a version that another PushSecret made is not drift
    a property within another place   a write of the outer place may have removed the property: it is pushed again

Values of two namespaces are never compared. Otherwise a tenant who may use a ClusterSecretStore could push guesses to
the remote key of another tenant, and learn from a condition, an event or a skipped write which guess is right. So the
children of a ClusterPushSecret that push to one place contend too, even if their values are equal: nothing that a
tenant can observe may depend on that.

Only pushes of this process are known, so a value is pushed once more after a restart. Digests are compared, never
values. `Memory` reports every change; PushSecrets whose situation it changes are woken.

How long the removal of pushed values is tried before it is given up, for each PushSecret and store.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.base import TerminatingNamespaces
from eso_operator.controllers.contention import PushedKey
from eso_operator.controllers.pushsecret.record import (
    NOTHING_ANNOUNCED,
    NOTHING_KNOWN,
    NOTHING_TRIED,
    NOTHING_UNRECORDED,
    Announcement,
    Attempts,
    Known,
    LastPush,
    Learned,
    Place,
    PushSecretRecord,
    RemoteKey,
    Spot,
    Unrecorded,
    spot_of,
    union,
    without,
)
from eso_operator.controllers.refresh import RetryLimit
from eso_operator.memory import Memory
from kubebase.clock import Clock
from kubebase.meta import ObjectKey, ObjectMeta
from kuberun.cache import Cache

MAX_VALUES: Final = 1_000_000
"""The limit for all objects together. The oldest records are evicted first."""


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


OWNER_TOKEN: Final = "external-secrets"  # noqa: S105 - a mark, not a credential
"""Backends keep it as `managed-by`. All PushSecrets share it, so that several of them may write one remote key."""


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


class HasClaims(Protocol):
    """The fields of a record that are used here."""

    uid: str
    announced: Mapping[Place, Announcement]
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
        self._drop(push, Announcement.SENT)
        self._note(push, {**self._announced(push), **dict.fromkeys(places, Announcement.ANNOUNCED)})

    def withdraw(self, push: PushSecret) -> None:
        """Drop an announcement that was certainly not recorded: a record of it belongs to another PushSecret."""
        self._drop(push, Announcement.ANNOUNCED)

    def sent(self, push: PushSecret) -> None:
        """Mark the announced values as being pushed."""
        sent = {
            place: Announcement.SENT for place, fate in self._announced(push).items() if fate is Announcement.ANNOUNCED
        }
        self._note(push, {**self._announced(push), **sent})

    def pushed(self, push: PushSecret, landed: Iterable[Place]) -> None:
        """Mark the announced values that did not land as rejected. Values that may have landed count as pushed."""
        gone = set(landed)
        self._note(push, {place: Announcement.REFUSED for place in self._announced(push) if place not in gone})

    def refused(self, push: PushSecret) -> dict[str, list[Spot]]:
        """Return the announced values that no backend accepted, by store.

        The status may still list them if it could not be written.
        """
        found: dict[str, list[Spot]] = {}
        for place, fate in self._announced(push).items():
            if fate is Announcement.REFUSED:
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
        return Claim(other.key, settled=None in fates) if fates - {Announcement.REFUSED} else None

    def recording(self, push: PushSecret, place: Place) -> list[PushSecret]:
        """Return the other PushSecrets that record exactly this place."""
        return [other for other in self._others(push, place) if place in set(_recorded(other))]

    def _others(self, push: PushSecret, place: Place) -> Iterator[PushSecret]:
        """Yield the other PushSecrets that record the remote key and are not being deleted."""
        for other in self._objects.find(PLACES_INDEX, RemoteKey.of(place, push.metadata.namespace)):
            if other.metadata.uid != push.metadata.uid and other.metadata.deletion_timestamp is None:
                yield other

    def _drop(self, push: PushSecret, gone: Announcement) -> None:
        self._note(push, {place: fate for place, fate in self._announced(push).items() if fate is not gone})

    def _announced(self, push: PushSecret) -> Mapping[Place, Announcement]:
        known = self._memory.known(push.key, push.metadata.uid)
        return NOTHING_ANNOUNCED if known is None else known.announced

    def _note(self, push: PushSecret, announced: Mapping[Place, Announcement]) -> None:
        if announced or self._announced(push):
            self._memory.of(push.key, push.metadata.uid).announced = announced


def _recorded(push: PushSecret) -> Iterator[Place]:
    for store, entries in push.status.synced_push_secrets.items():
        for data in entries.values():
            yield Place(store, *spot_of(data))


Wake = Callable[[ObjectKey], None]

_Values = Mapping[Place, Known]


class Standing(Enum):
    """The effect of other PushSecrets on a value since it was pushed."""

    HELD = "held"
    LOST = "lost"
    """Another PushSecret that contends for the place wrote after it, and still pushes there."""
    FREED = "freed"
    """It was overwritten, and no PushSecret contends for the place now: push it again."""


@dataclass(frozen=True, slots=True)
class Footing:
    """`expected`: a PushSecret made the version that the remote key has now, after this value was written to it."""

    standing: Standing = Standing.HELD
    expected: bool = False


UNSHARED: Final = Footing()


@dataclass(frozen=True, slots=True)
class Clash:
    """A place for which other PushSecrets contend: of this namespace with different values, or of other namespaces."""

    place: Place
    others: tuple[ObjectKey, ...]


class Rivals:
    """The pushes of all PushSecrets. The process has one."""

    def __init__(self) -> None:
        self._keys: dict[RemoteKey, dict[ObjectKey, dict[Place, Known]]] = {}
        self._overwritten: dict[ObjectKey, set[Place]] = {}
        self._orders = itertools.count(1)
        self._wake: Wake = _wake_nobody

    def listen(self, wake: Wake) -> None:
        """Call `wake` for each PushSecret that must be reconciled because of a push of another one."""
        self._wake = wake

    def next_order(self) -> int:
        """Number a write that has just been answered."""
        return next(self._orders)

    def update(self, key: ObjectKey, before: _Values, after: _Values) -> None:
        """Replace the known pushes of one PushSecret."""
        changed = [place for place in {**before, **after} if before.get(place) is not after.get(place)]
        for place in changed:
            self._store(key, place, after.get(place))
        changed = [place for place in changed if not _same_write(before.get(place), after.get(place))]
        for place in changed:
            self._mark(key, place, overwritten=False)
        written = {place: new for place in changed if (new := after.get(place)) is not None}
        for place, new in written.items():
            self._compare(key, place, new)
        woken = {other for place in changed for other in self._concerned(key, place, before, after)}
        for writer, inner in list(self._inside(key, written)):
            self._mark(writer, inner, overwritten=True)
            woken.add(writer)
        for other in woken - {key}:
            self._wake(other)

    def footing(self, key: ObjectKey, place: Place, version: str = "") -> Footing:
        """Return the state of a pushed value among other PushSecrets; `version` is the current one of the backend."""
        writers = self._keys.get(RemoteKey.of(place, key.namespace), {})
        mine = writers.get(key, {}).get(place)
        if mine is None:
            return UNSHARED
        expected = version not in ("", mine.version) and any(
            each.made == version and each.order > mine.order for values in writers.values() for each in values.values()
        )
        return Footing(self._standing(key, place, mine), expected)

    def freed(self, key: ObjectKey) -> bool:
        """Return whether an overwritten value can be pushed again."""
        places = self._overwritten.get(key, ())
        return any(self.footing(key, place).standing is Standing.FREED for place in places)

    def clashes(self, key: ObjectKey, values: _Values) -> Sequence[Clash]:
        """Return the places for which other PushSecrets contend."""
        found = []
        for place, mine in values.items():
            others = [other for other, theirs in self._others(key, place) if _contend((key, mine), (other, theirs))]
            if others:
                found.append(Clash(place, tuple(sorted(others, key=lambda each: (each.namespace, each.name)))))
        return sorted(found, key=lambda clash: clash.place)

    # --- one place ----------------------------------------------------------------------------------------------------

    def _store(self, key: ObjectKey, place: Place, known: Known | None) -> None:
        remote = RemoteKey.of(place, key.namespace)
        if known is not None:
            self._keys.setdefault(remote, {}).setdefault(key, {})[place] = known
        elif (writers := self._keys.get(remote)) is not None and (mine := writers.get(key)) is not None:
            mine.pop(place, None)
            if not mine:
                del writers[key]
            if not writers:
                del self._keys[remote]

    def _compare(self, key: ObjectKey, place: Place, new: Known) -> None:
        """Note which values were overwritten, by the order of writes."""
        here = [(key, new), *self._others(key, place)]
        last = max(here, key=lambda each: each[1].order)
        for writer, known in here:
            if known.order < last[1].order:
                self._mark(writer, place, overwritten=_contend((writer, known), last))

    def _concerned(self, key: ObjectKey, place: Place, before: _Values, after: _Values) -> Iterator[ObjectKey]:
        """Yield other PushSecrets whose contention here begins or ends, or whose condition names this one.

        If the others contend among themselves, one more or less changes nothing for those of other namespaces, unless
        it was the last writer: thousands of children of one ClusterPushSecret must not wake each other.
        """
        old, new = before.get(place), after.get(place)
        others = list(self._others(key, place))
        contended = len({(other.namespace, theirs.value) for other, theirs in others if theirs.value}) > 1
        for other, theirs in others:
            contends = _contend((key, new), (other, theirs))
            if contends == _contend((key, old), (other, theirs)):
                continue
            named = not contends and other.namespace == key.namespace
            if not contended or named or self._standing(other, place, theirs) is Standing.FREED:
                yield other

    def _standing(self, key: ObjectKey, place: Place, mine: Known) -> Standing:
        later = [each for each in self._others(key, place) if each[1].order > mine.order]
        if later and _contend((key, mine), max(later, key=lambda each: each[1].order)):
            return Standing.LOST
        return Standing.FREED if place in self._overwritten.get(key, ()) else Standing.HELD

    def _mark(self, key: ObjectKey, place: Place, *, overwritten: bool) -> None:
        if overwritten:
            self._overwritten.setdefault(key, set()).add(place)
        elif (places := self._overwritten.get(key)) is not None:
            places.discard(place)
            if not places:
                del self._overwritten[key]

    def _others(self, key: ObjectKey, place: Place) -> Iterator[tuple[ObjectKey, Known]]:
        """Yield the values that other PushSecrets wrote to exactly this place."""
        for other, values in self._keys.get(RemoteKey.of(place, key.namespace), {}).items():
            if other != key and (theirs := values.get(place)) is not None:
                yield other, theirs

    def _inside(self, key: ObjectKey, written: _Values) -> Iterator[tuple[ObjectKey, Place]]:
        """Yield values within places that were written later, which may have removed them."""
        outer: dict[RemoteKey, dict[str, Known]] = {}
        for place, new in written.items():
            outer.setdefault(RemoteKey.of(place, key.namespace), {})[place.property] = new
        for remote, places in outer.items():
            for writer, values in self._keys.get(remote, {}).items():
                for inner, known in values.items():
                    around = [places[path] for path in _paths_around(inner.property) if path in places]
                    if known.value and any(known.order < each.order for each in around):
                        yield writer, inner


def _paths_around(path: str) -> list[str]:
    """Return the places that contain a property: the whole, and each prefix of its path."""
    steps = path.split(".") if path else []
    return [".".join(steps[:count]) for count in range(len(steps))]


def _same_write(old: Known | None, new: Known | None) -> bool:
    """Return whether nothing was written in between, whatever versions were seen."""
    return old is not None and new is not None and (old.order, old.value) == (new.order, new.value)


def _contend(one: tuple[ObjectKey, Known | None], other: tuple[ObjectKey, Known | None]) -> bool:
    """Return whether two writers of a place contend. A writer that accepts any value never does."""
    (key, mine), (rival, theirs) = one, other
    if not (mine and theirs and mine.value and theirs.value):
        return False
    return key.namespace != rival.namespace or mine.value != theirs.value


def _wake_nobody(key: ObjectKey) -> None:
    """Wake nothing, until a listener is set."""


@dataclass(frozen=True, slots=True)
class RemovalLimits:
    """`gone`: the store or its credentials do not exist. `failing`: everything else, if the PushSecret waits for it.

    A kind that is turned off is not a failure: the removal waits until it is on again.
    """

    gone: RetryLimit = field(default=RetryLimit(4, 5.0))
    failing: RetryLimit = field(default=RetryLimit(15, 1800.0))


class Trial(Enum):
    """The kind of a failed removal, which decides when the value is abandoned."""

    STALE = "stale"
    FINAL = "final"
    GONE = "gone"
    OFF = "off"
    """The kind of the store is turned off by its feature gate."""


class Tries(Protocol):
    """The fields of a record that are used here."""

    uid: str
    tried: Mapping[str, Attempts]
    """Failed removals, by store."""


class Patience:
    """Counts failed attempts for each object and store."""

    def __init__(
        self, clock: Clock, limits: RemovalLimits, memory: Memory[Tries], terminating: TerminatingNamespaces
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._memory = memory
        self._terminating = terminating

    def is_over(self, push: ObjectMeta, store: str, trial: Trial) -> bool:
        """Count one more failure. Return whether the values are abandoned now.

        An object that lives on can wait as long as its store exists. A deletion waits as long as the kind of the store
        is turned off, unless it blocks the deletion of a namespace.
        """
        now, record = self._clock.monotonic(), self._memory.of(push.key, push.uid)
        count, since = record.tried.get(store, Attempts(0, now))
        record.tried = {**record.tried, store: Attempts(count + 1, since)}
        if trial is Trial.STALE or (trial is Trial.OFF and self._terminating.ending(push.namespace) is None):
            return False
        limit = self._limits.gone if trial is Trial.GONE else self._limits.failing
        return limit.is_over(count + 1, now - since)

    def forget(self, key: ObjectKey) -> None:
        """Begin to count again: everything was removed."""
        if (record := self._memory.find(key)) is not None:
            record.tried = NOTHING_TRIED

    def __len__(self) -> int:
        """Return the number of objects with failed removals."""
        return sum(1 for _, record in self._memory.items() if record.tried)
