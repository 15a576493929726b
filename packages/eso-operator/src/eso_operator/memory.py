"""The records of reconciled objects: one bounded table for each controller, one record for each object.

    Memory[ExternalSecretRecord]    controllers/externalsecret/record.py
    Memory[PushSecretRecord]        controllers/pushsecret/record.py
    Memory[StateRecord]             controllers/generatorstate/controller.py
    Memory[ParentRecord]            controllers/fanout/controller.py
    Memory[Record]                  stores and classes

`wiring_controllers.py` makes the tables.

Indexes that point back to objects (dependants of a dependency, followers of a stream, writers of a remote key,
metric series) are undone by functions that are registered here. `forget` is the only way to drop an object. Eviction
at the bound calls it, too; the object is then reconciled again after a while, which restores its record.

An evicted object is in the state that every object is in after a restart of the process, which may happen at any time.
So an eviction costs work, and loses nothing else. At worst it delays a change that a provider has just announced: the
object reads it at its refresh interval, as without announcements.

A record is never kept across an `await`: it may be evicted meanwhile, and changes of an evicted record are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kubebase.bounded import BoundedDict
from kubebase.meta import ObjectKey

if TYPE_CHECKING:
    from eso_operator.dependencies import Dependency

MAX_OBJECTS: Final = 200_000
"""The limit for one controller: several times the number of objects that an operator is designed for."""


@dataclass(slots=True, eq=False)
class Record:
    """The fields that the records of all kinds have, and their purpose.

    field         kept for                                              if it is lost
    uid           an object does not get the record of a former object
    written_on    a cache that is older than our last status write      the status is compared with the older one
    depends_on    a change of a dependency wakes the object             recorded again at the next reconcile
    """

    uid: str = ""
    written_on: str = ""
    """The resourceVersion on which the status was last written; empty if this process has not written it."""
    depends_on: frozenset[Dependency] = frozenset()


class HasUid(Protocol):
    """The field of a record that `Memory` itself uses."""

    uid: str


R_co = TypeVar("R_co", bound=HasUid, covariant=True)

Evicted = Callable[[ObjectKey], None]


class Memory(Generic[R_co]):
    """The records of the objects of one controller. The least recently used one is evicted."""

    def __init__(self, new: Callable[[], R_co], limit: int = MAX_OBJECTS) -> None:
        self._new = new
        self._records: BoundedDict[ObjectKey, R_co] = BoundedDict(limit, self._evicted)
        self._undo: list[Callable[[ObjectKey, R_co], None]] = []
        self._listeners: list[Evicted] = []

    def find(self, key: ObjectKey) -> R_co | None:
        """Return the record of the object of this name, if there is one."""
        return self._records.get(key)

    def known(self, key: ObjectKey, uid: str) -> R_co | None:
        """Return the record of this very object, if there is one."""
        found = self._records.get(key)
        return found if found is not None and found.uid == uid else None

    def at(self, key: ObjectKey) -> R_co:
        """Return the record of the object of this name; make one if there is none."""
        found = self._records.use(key)
        if found is None:
            found = self._records[key] = self._new()
        return found

    def of(self, key: ObjectKey, uid: str) -> R_co:
        """Return the record of this very object; forget the record of a former object with its name.

        Each reconcile calls it first, so that later calls that use the name alone reach this object's record.
        """
        record = self.at(key)
        if record.uid not in ("", uid):
            self.forget(key)
            record = self.at(key)
        record.uid = uid
        return record

    def forget(self, key: ObjectKey) -> None:
        """Drop the record, and undo every index that points to the object."""
        self._undone(key, self._records.pop(key, None) or self._new())

    def evict_oldest(self) -> None:
        """Make room, as the bound does."""
        self._evicted(*self._records.popitem())

    def on_forget(self, undo: Callable[[ObjectKey, R_co], None]) -> None:
        """Call `undo` with every object that is forgotten, and with its record."""
        self._undo.append(undo)

    def on_evict(self, listener: Evicted) -> None:
        """Call the listener with every object that the bound has forgotten."""
        self._listeners.append(listener)

    def items(self) -> Iterator[tuple[ObjectKey, R_co]]:
        """Return all records, the least recently used one first."""
        return iter(self._records.items())

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: object) -> bool:
        return key in self._records

    def _evicted(self, key: ObjectKey, record: Any) -> None:
        self._undone(key, record)
        for listener in self._listeners:
            listener(key)

    def _undone(self, key: ObjectKey, record: Any) -> None:
        for undo in self._undo:
            undo(key, record)
