"""PushSecrets that write to one remote key: their values, the order of their writes, and conflicts between them.

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
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eso_operator.controllers.pushsecret.places import Known, Place, RemoteKey
from kubebase.meta import ObjectKey

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
