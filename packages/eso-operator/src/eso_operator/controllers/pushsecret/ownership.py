"""Which PushSecret owns a remote value: who may write it, who yields, who deletes it, and when to give that up.

All PushSecrets share one mark at the backend, so only the operator can tell whose a value is. To write, the last writer
owns it: a PushSecret that was overwritten yields until its own value changes, and pushes again when the other one stops
(`Writes`). To delete, the last PushSecret that records it owns it: a value that another one records too is left to that
one, and a value that another one records and has not pushed yet is not deleted before that push has ended (`Owners`).
So a value moves to another PushSecret, or to another store of the same backend, without ever being deleted: its
successor records it first. A removal that keeps failing is given up in the end, so that a backend that is gone cannot
block an object or its namespace forever (`RemovalAttempts`).

Details that the guarantees depend on:

- Entries are recorded before they are pushed. What was pushed and may not be recorded is `unrecorded`, and counts.
- A property is a part of its remote key: whoever records or writes one of the two has a claim on the other. A write of
  the whole may have removed the property, so the property is pushed again.
- Equal values of one namespace do not conflict. Values of two namespaces are never compared, and always conflict:
  otherwise a tenant who may use a ClusterSecretStore could push guesses to the remote key of another tenant, and learn
  from a condition, an event or a skipped write which guess is right. Nothing that a tenant can observe may depend on
  that, so even the children of a ClusterPushSecret that push equal values to one place conflict.
- The order of writes is known for this process only, so a value is pushed once more after a restart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Final

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.base import TerminatingNamespaces
from eso_operator.controllers.contention import PushedKey
from eso_operator.controllers.pushsecret.record import (
    NOTHING,
    Announcement,
    Attempts,
    LastPush,
    PushSecretRecord,
    RemoteKey,
    RemoteValue,
    SharedKey,
    SyncedEntries,
    keys_of,
    shared_key,
    without,
)
from eso_operator.controllers.refresh import RetryLimit
from eso_operator.memory import Memory
from eso_operator.stores.resolved import Reason
from kubebase.clock import Clock
from kubebase.meta import ObjectKey, ObjectMeta
from kuberun.cache import Cache

OWNER_TOKEN: Final = "external-secrets"  # noqa: S105 - a mark, not a credential
"""Backends keep it as `managed-by`. All PushSecrets share it, so that several of them may write one remote key."""

MAX_VALUES: Final = 1_000_000
"""The limit for all PushSecrets together. The oldest records are evicted first."""

# --- writing ----------------------------------------------------------------------------------------------------------

_Values = Mapping[RemoteKey, RemoteValue]


class Decision(Enum):
    """What other PushSecrets mean for a value that this one has pushed, and that has not changed since."""

    KEEP = "keep"
    YIELD = "yield"
    """Another PushSecret, in conflict with this one, wrote after it and still pushes there: the last writer wins."""
    PUSH_AGAIN = "push again"
    """It was overwritten, and no PushSecret conflicts with it now."""


@dataclass(frozen=True, slots=True)
class ValueConflict:
    """Other PushSecrets push something else there, or push there from another namespace."""

    key: RemoteKey
    others: tuple[ObjectKey, ...]


class Writes:
    """The values that this process has pushed, by PushSecret and by remote key, in the order of their writes.

    The process has one. Both the records and the values in them are bounded.
    """

    def __init__(self, memory: Memory[PushSecretRecord], max_values: int = MAX_VALUES) -> None:
        self._memory = memory
        self._max_values = max_values
        self._count = 0
        self._writers: dict[SharedKey, dict[ObjectKey, dict[RemoteKey, RemoteValue]]] = {}
        self._overwritten: dict[ObjectKey, set[RemoteKey]] = {}
        self._orders = itertools.count(1)
        self._listener: Callable[[ObjectKey], None] = lambda _: None
        memory.on_forget(self._forgotten)

    def on_change(self, listener: Callable[[ObjectKey], None]) -> None:
        """Call `listener` with each PushSecret that must be reconciled because of a push of another one."""
        self._listener = listener

    def next_order(self) -> int:
        """Return the number of a write that has just been answered."""
        return next(self._orders)

    # The values of one PushSecret.

    def last(self, push: PushSecret) -> LastPush | None:
        return self._of(push).last

    def values(self, push: PushSecret) -> _Values:
        return self._of(push).values

    def pushed_keys(self, push: ObjectKey) -> Iterator[PushedKey]:
        """Yield the remote keys that hold values of the object, at the location of the store itself."""
        record = self._memory.find(push)
        for key, value in record.values.items() if record is not None else ():
            if not key.location:
                yield PushedKey(key.store, key.name, push, value.written)

    def unrecorded(self, push: PushSecret) -> SyncedEntries:
        return self._of(push).unrecorded

    def unrecorded_of(self, push: ObjectKey) -> PushSecret | None:
        """Return the object, which may be deleted by now, whose pushed values may be missing in its status."""
        record = self._memory.find(push)
        return record.pushed_for if record is not None and record.unrecorded else None

    def wrote(self, push: PushSecret, values: _Values, entries: SyncedEntries) -> None:
        """Remember values that are in their stores now, recorded or not."""
        old = self._of(push)
        self._replace(push, {**old.values, **values}, {**entries, **old.unrecorded}, push)

    def removed(self, push: PushSecret, gone: Collection[RemoteKey]) -> None:
        """Forget values that are no longer in their stores."""
        old = self._of(push)
        self._replace(push, without(old.values, gone), without(old.unrecorded, gone), old.pushed_for)

    def recorded(self, push: PushSecret, last: LastPush | None = None, values: _Values = NOTHING) -> None:
        """Record that the status lists all entries. After a successful push, only its values are remembered."""
        self._replace(push, self.values(push) if last is None else values)
        if last is not None:
            self._memory.of(push.key, push.metadata.uid).last = last

    def clear(self, push: PushSecret) -> None:
        """Record that no store holds a value of the object."""
        self._replace(push, NOTHING)
        self._memory.of(push.key, push.metadata.uid).last = None

    # Among PushSecrets.

    def decide(self, push: ObjectKey, key: RemoteKey) -> Decision:
        """Return what other PushSecrets mean for a value."""
        mine = self._writers.get(shared_key(key, push.namespace), {}).get(push, {}).get(key)
        if mine is None:
            return Decision.KEEP
        later = [other for other in self._others(push, key) if other[1].order > mine.order]
        if later and _in_conflict((push, mine), max(later, key=_order)):
            return Decision.YIELD
        return Decision.PUSH_AGAIN if key in self._overwritten.get(push, ()) else Decision.KEEP

    def is_expected(self, push: ObjectKey, key: RemoteKey, version: str) -> bool:
        """Return whether a PushSecret gave the remote key this version, after this value was written to it."""
        writers = self._writers.get(shared_key(key, push.namespace), {})
        mine = writers.get(push, {}).get(key)
        return (
            mine is not None
            and version not in ("", mine.version)
            and any(
                each.made == version and each.order > mine.order
                for values in writers.values()
                for each in values.values()
            )
        )

    def has_freed(self, push: ObjectKey) -> bool:
        """Return whether a value that was overwritten can be pushed again."""
        return any(self.decide(push, key) is Decision.PUSH_AGAIN for key in self._overwritten.get(push, ()))

    def conflicts(self, push: ObjectKey, values: _Values) -> Sequence[ValueConflict]:
        """Return the remote keys for which other PushSecrets conflict with it."""
        found = []
        for key, mine in values.items():
            others = [other for other, theirs in self._others(push, key) if _in_conflict((push, mine), (other, theirs))]
            if others:
                found.append(ValueConflict(key, tuple(sorted(others, key=lambda each: (each.namespace, each.name)))))
        return sorted(found, key=lambda conflict: conflict.key)

    def _of(self, push: PushSecret) -> PushSecretRecord:
        """Return the record of this object, not of a former object with its name."""
        return self._memory.known(push.key, push.metadata.uid) or PushSecretRecord(push.metadata.uid)

    def _replace(
        self,
        push: PushSecret,
        values: _Values,
        unrecorded: SyncedEntries = NOTHING,
        pushed_for: PushSecret | None = None,
    ) -> None:
        record = self._memory.of(push.key, push.metadata.uid)
        old, record.values = record.values, values
        record.unrecorded, record.pushed_for = unrecorded, pushed_for
        self._update(push.key, old, values)
        while self._count > self._max_values and len(self._memory) > 1:
            self._memory.evict_oldest()

    def _forgotten(self, push: ObjectKey, record: PushSecretRecord) -> None:
        self._update(push, record.values, NOTHING)

    def _update(self, push: ObjectKey, before: _Values, after: _Values) -> None:
        """Index the values by remote key, find out what was overwritten, and notify other PushSecrets."""
        self._count += len(after) - len(before)
        changed = [key for key in {**before, **after} if before.get(key) is not after.get(key)]
        for key in changed:
            self._index(push, key, after.get(key))
        changed = [key for key in changed if not _same_write(before.get(key), after.get(key))]
        affected: set[ObjectKey] = set()
        for key in changed:
            self._mark(push, key, overwritten=False)
            if (new := after.get(key)) is not None:
                self._mark_overwritten(push, key, new)
            affected.update(self._affected(push, key, before.get(key), new))
        for other, key in list(self._removed_by_write(push, [key for key in changed if key in after], after)):
            self._mark(other, key, overwritten=True)
            affected.add(other)
        for other in affected - {push}:
            self._listener(other)

    def _index(self, push: ObjectKey, key: RemoteKey, value: RemoteValue | None) -> None:
        shared = shared_key(key, push.namespace)
        if value is not None:
            self._writers.setdefault(shared, {}).setdefault(push, {})[key] = value
        elif (writers := self._writers.get(shared)) is not None and (mine := writers.get(push)) is not None:
            mine.pop(key, None)
            if not mine:
                del writers[push]
            if not writers:
                del self._writers[shared]

    def _mark(self, push: ObjectKey, key: RemoteKey, *, overwritten: bool) -> None:
        if overwritten:
            self._overwritten.setdefault(push, set()).add(key)
        elif (keys := self._overwritten.get(push)) is not None:
            keys.discard(key)
            if not keys:
                del self._overwritten[push]

    def _mark_overwritten(self, push: ObjectKey, key: RemoteKey, new: RemoteValue) -> None:
        """Mark the values that the last write replaced by something else."""
        writers = [(push, new), *self._others(push, key)]
        last = max(writers, key=_order)
        for writer, value in writers:
            if value.order < last[1].order:
                self._mark(writer, key, overwritten=_in_conflict((writer, value), last))

    def _affected(
        self, push: ObjectKey, key: RemoteKey, old: RemoteValue | None, new: RemoteValue | None
    ) -> Iterator[ObjectKey]:
        """Yield other PushSecrets whose conflict here begins or ends, or whose condition names this one.

        If the others conflict among themselves, one more or less changes nothing for those of other namespaces, unless
        it was the last writer: thousands of children of one ClusterPushSecret must not wake each other.
        """
        others = list(self._others(push, key))
        in_conflict = len({(other.namespace, theirs.value) for other, theirs in others if theirs.value}) > 1
        for other, theirs in others:
            conflicts = _in_conflict((push, new), (other, theirs))
            if conflicts == _in_conflict((push, old), (other, theirs)):
                continue
            named = not conflicts and other.namespace == push.namespace
            if not in_conflict or named or self.decide(other, key) is Decision.PUSH_AGAIN:
                yield other

    def _removed_by_write(
        self, push: ObjectKey, written: Iterable[RemoteKey], after: _Values
    ) -> Iterator[tuple[ObjectKey, RemoteKey]]:
        """Yield values within remote keys that were written later, which may have removed them."""
        outer: dict[SharedKey, dict[str, RemoteValue]] = {}
        for key in written:
            outer.setdefault(shared_key(key, push.namespace), {})[key.property] = after[key]
        for shared, by_property in outer.items():
            for writer, values in self._writers.get(shared, {}).items():
                for inner, value in values.items():
                    around = [by_property[path] for path in _paths_around(inner.property) if path in by_property]
                    if value.value and any(value.order < each.order for each in around):
                        yield writer, inner

    def _others(self, push: ObjectKey, key: RemoteKey) -> Iterator[tuple[ObjectKey, RemoteValue]]:
        """Yield the values that other PushSecrets wrote to exactly this place."""
        for other, values in self._writers.get(shared_key(key, push.namespace), {}).items():
            if other != push and (theirs := values.get(key)) is not None:
                yield other, theirs


def _order(write: tuple[ObjectKey, RemoteValue]) -> int:
    return write[1].order


def _paths_around(path: str) -> list[str]:
    """Return the properties that contain a property: the whole, and each prefix of its path."""
    steps = path.split(".") if path else []
    return [".".join(steps[:count]) for count in range(len(steps))]


def _same_write(old: RemoteValue | None, new: RemoteValue | None) -> bool:
    """Return whether nothing was written in between, whatever versions were read."""
    return old is not None and new is not None and (old.order, old.value) == (new.order, new.value)


def _in_conflict(one: tuple[ObjectKey, RemoteValue | None], other: tuple[ObjectKey, RemoteValue | None]) -> bool:
    """Return whether two writers of a place are in conflict. A writer that accepts any value never is."""
    (writer, mine), (second, theirs) = one, other
    if not (mine and theirs and mine.value and theirs.value):
        return False
    return writer.namespace != second.namespace or mine.value != theirs.value


# --- deleting ---------------------------------------------------------------------------------------------------------

KEYS_INDEX: Final = "remote keys"
_ANY_STORE: Final = ""


def keys_index(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: every remote key that the status records, in its store and in any store."""
    keys = list(keys_of(push.status))
    return {shared_key(key, push.metadata.namespace) for key in keys} | {_in_any_store(key) for key in keys}


@dataclass(frozen=True, slots=True)
class ValueOwner:
    """Another PushSecret that records a value; `confirmed` if, as far as known, the backend has accepted it."""

    push: ObjectKey
    confirmed: bool


@dataclass(frozen=True, slots=True)
class OwnerInOtherStore:
    """A PushSecret that records the same remote key under another store, which may be the same backend."""

    push: PushSecret
    store: str
    owner: ValueOwner


class Owners:
    """The PushSecrets that record a value as theirs in their status. The process has one."""

    def __init__(self, objects: Cache[PushSecret], memory: Memory[PushSecretRecord]) -> None:
        self._objects = objects
        self._memory = memory

    # An entry from its announcement to the end of its push.

    def announce(self, push: PushSecret, keys: Iterable[RemoteKey]) -> None:
        """Note entries that are recorded now and pushed next. Those of an interrupted push count as pushed."""
        left = {key: state for key, state in self._announced(push).items() if state is not Announcement.SENT}
        self._note(push, {**left, **dict.fromkeys(keys, Announcement.ANNOUNCED)})

    def withdraw(self, push: PushSecret) -> None:
        """Drop an announcement that was certainly not recorded: a record of it belongs to another PushSecret."""
        announced = self._announced(push).items()
        self._note(push, {key: state for key, state in announced if state is not Announcement.ANNOUNCED})

    def sending(self, push: PushSecret) -> None:
        """Note that the announced entries are being pushed."""
        sent = {Announcement.ANNOUNCED: Announcement.SENT}
        self._note(push, {key: sent.get(state, state) for key, state in self._announced(push).items()})

    def sent(self, push: PushSecret, landed: Collection[RemoteKey]) -> None:
        """Note that the announced entries that did not land were refused. `landed` has all that may have."""
        self._note(push, {key: Announcement.REFUSED for key in self._announced(push) if key not in landed})

    def refused(self, push: PushSecret) -> AbstractSet[RemoteKey]:
        """Return the announced entries that no backend accepted; the status may list them if it was not written."""
        return {key for key, state in self._announced(push).items() if state is Announcement.REFUSED}

    # Who else owns a value.

    def other(self, push: PushSecret, key: RemoteKey) -> ValueOwner | None:
        """Return another owner of a value that is not being deleted."""
        return next((owner for each in self._others(push, key) if (owner := self._owner(each, key)) is not None), None)

    def in_other_stores(self, push: PushSecret, key: RemoteKey) -> Iterator[OwnerInOtherStore]:
        """Yield owners of the same remote key in other stores: cluster-scoped ones, or ones of the same namespace."""
        namespace = push.metadata.namespace
        for other in self._alive(push, _in_any_store(key)):
            for store in sorted(set(other.status.synced_push_secrets) - {key.store}):
                there = key._replace(store=store)
                reachable = other.metadata.namespace == namespace or not shared_key(there, namespace)[0]
                if reachable and (owner := self._owner(other, there)) is not None:
                    yield OwnerInOtherStore(other, store, owner)

    def recording(self, push: PushSecret, key: RemoteKey) -> list[PushSecret]:
        """Return the other PushSecrets that record exactly this key."""
        return [other for other in self._others(push, key) if key in set(keys_of(other.status))]

    def _owner(self, other: PushSecret, key: RemoteKey) -> ValueOwner | None:
        """Return the other one as an owner. An entry that was refused is none, even if the status lists it."""
        announced = self._announced(other)
        states = {announced.get(each) for each in keys_of(other.status) if each.overlaps(key)}
        return ValueOwner(other.key, confirmed=None in states) if states - {Announcement.REFUSED} else None

    def _others(self, push: PushSecret, key: RemoteKey) -> Iterator[PushSecret]:
        return self._alive(push, shared_key(key, push.metadata.namespace))

    def _alive(self, push: PushSecret, index_key: Hashable) -> Iterator[PushSecret]:
        """Yield the other PushSecrets under this key of the index that are not being deleted."""
        for other in self._objects.find(KEYS_INDEX, index_key):
            if other.metadata.uid != push.metadata.uid and other.metadata.deletion_timestamp is None:
                yield other

    def _announced(self, push: PushSecret) -> Mapping[RemoteKey, Announcement]:
        record = self._memory.known(push.key, push.metadata.uid)
        return NOTHING if record is None else record.announced

    def _note(self, push: PushSecret, announced: Mapping[RemoteKey, Announcement]) -> None:
        if announced or self._announced(push):
            self._memory.of(push.key, push.metadata.uid).announced = announced


def _in_any_store(key: RemoteKey) -> RemoteKey:
    return key._replace(property="", store=_ANY_STORE)


# --- giving up --------------------------------------------------------------------------------------------------------

_GONE: Final = frozenset({Reason.NOT_FOUND, Reason.CONFIG_NOT_FOUND, Reason.CREDENTIALS_NOT_FOUND})
"""Causes that mean that the store, or something that it needs, no longer exists."""
TURNED_OFF: Final = frozenset({Reason.FEATURE_DISABLED})
GONE_LIMIT: Final = RetryLimit(4, 5.0)
FAILING_LIMIT: Final = RetryLimit(15, 1800.0)


@dataclass(frozen=True, slots=True)
class RemovalAttempts:
    """Counts failed removals of each PushSecret from each store, and decides when the values are abandoned."""

    clock: Clock
    memory: Memory[PushSecretRecord]
    terminating: TerminatingNamespaces
    gone: RetryLimit = GONE_LIMIT
    """The limit if the store or something that it needs does not exist."""
    failing: RetryLimit = FAILING_LIMIT
    """The limit for everything else, if the PushSecret waits for it."""

    def give_up(self, push: ObjectMeta, store: str, reasons: AbstractSet[object], *, final: bool) -> bool:
        """Count a failure with these reasons. Return whether the values are abandoned now.

        A PushSecret that lives on can wait as long as its store exists. A deletion (`final`) waits as long as the kind
        of the store is turned off, which is no failure, unless that blocks the deletion of a namespace.
        """
        now, record = self.clock.monotonic(), self.memory.of(push.key, push.uid)
        count, since = record.removals.get(store, Attempts(0, now))
        record.removals = {**record.removals, store: Attempts(count + 1, since)}
        if reasons <= _GONE:
            return self.gone.is_over(count + 1, now - since)
        if not final or (reasons <= TURNED_OFF and self.terminating.ending(push.namespace) is None):
            return False
        return self.failing.is_over(count + 1, now - since)

    def forget(self, push: ObjectKey) -> None:
        """Begin to count again: everything was removed."""
        if (record := self.memory.find(push)) is not None:
            record.removals = NOTHING
