"""The last known state of every object of one resource, by key and by named indexes.

`Cache.apply` takes the events of a watch in the order of delivery and returns what changed. Resource versions are
opaque and compared for equality only; the order of delivery is the order of the server.

Objects are shared, not copied: readers must treat them as frozen and copy them (`msgspec.structs.replace`,
`copy.deepcopy`) before they change them. Lists and tuples that a method returns are snapshots; later events do not
change them. The size of the cache is bounded by the server's collection: deleted objects are dropped, and the typed
forms omit managedFields, which are most of an object's bytes. A cache of many objects keeps them packed (`packing.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Generic, TypeVar, assert_never

import msgspec

from kubebase.meta import Malformed, ObjectKey, key_of, meta_of, version_of
from kuberun.packing import PackedDict, Packing
from kuberun.watch import Applied, Deleted, Event, Listed, PageListed, PagesEnded

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[Hashable]]
"""Returns the values under which an object is indexed."""


class Origin(Enum):
    LISTED = "listed"
    """The object existed when we started."""
    WATCHED = "watched"
    """The object changed while we watched, or while the watch was interrupted."""
    RESYNCED = "resynced"
    """The object did not change; it is delivered again."""


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """The change of one object, from the state a consumer saw last to the current one.

    A Struct, because the first list creates one per object: it costs a tenth of a dataclass and is not
    garbage-collected.
    """

    key: ObjectKey
    old: T | Malformed | None
    new: T | Malformed | None
    origin: Origin = Origin.WATCHED

    def __repr__(self) -> str:
        """Omit the objects: they may be Secrets."""
        return f"Change(key={self.key!s}, origin={self.origin.name})"

    @property
    def created(self) -> bool:
        """Return whether the object is new to the consumer, or a new object under the same name."""
        return self.new is not None and (self.old is None or meta_of(self.old).uid != meta_of(self.new).uid)

    @property
    def deleted(self) -> bool:
        return self.new is None

    @property
    def last(self) -> T | Malformed:
        """Return the newest known state; for a deleted object, its last state."""
        last = self.new if self.new is not None else self.old
        if last is None:
            raise AssertionError("a change of nothing into nothing is never delivered")
        return last


class Cache(Generic[T]):
    def __init__(
        self, indexes: Mapping[str, IndexFunction[T]] | None = None, packing: Packing[T] | None = None
    ) -> None:
        self._objects: MutableMapping[ObjectKey, T | Malformed] = {} if packing is None else PackedDict(packing)
        self._indexes = {name: _Index(name, values_of) for name, values_of in (indexes or {}).items()}
        self._listed = False
        self.revision = 0
        """Changes with every event."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def get(self, key: ObjectKey) -> T | Malformed | None:
        """Return the object; `Malformed` if it exists but does not fit its type, None if it does not exist."""
        return self._objects.get(key)

    def keys(self) -> tuple[ObjectKey, ...]:
        return tuple(self._objects)

    def objects(self) -> list[T]:
        return [obj for obj in self._objects.values() if not isinstance(obj, Malformed)]

    def malformed(self) -> list[Malformed]:
        return [obj for obj in self._objects.values() if isinstance(obj, Malformed)]

    def find(self, index: str, value: Hashable) -> list[T]:
        """Return the objects that the named index holds under this value."""
        found = (self._objects[key] for key in self._indexes[index].keys_of(value))
        return [obj for obj in found if not isinstance(obj, Malformed)]

    def find_keys(self, index: str, value: Hashable) -> tuple[ObjectKey, ...]:
        return tuple(self._indexes[index].keys_of(value))

    def apply(self, event: Event[T]) -> Sequence[Change[T]]:
        """Apply one watch event and return the resulting changes in order."""
        self.revision += 1
        match event:
            case Listed(objects=objects):
                return self._replace(objects)
            case PageListed(objects=objects):
                return self._add_page(objects)
            case PagesEnded(pages=pages):
                return self._keep_only(frozenset().union(*pages))
            case Applied(object=obj):
                key = key_of(obj)
                change = self._put(key, self._objects.get(key), obj, Origin.WATCHED)
                return () if change is None else (change,)
            case Deleted(object=obj):
                key = key_of(obj)
                old = self._objects.pop(key, None)
                if old is None:
                    return ()
                self._unindex(key, old)
                return (Change(key, obj, None),)
            case _:
                assert_never(event)

    def everything(self, origin: Origin, among: Callable[[ObjectKey], bool] | None = None) -> Iterator[Change[T]]:
        """Yield every object, or those `among`, as if it had just been created (LISTED) or touched (RESYNCED)."""
        found = self._objects.items() if among is None else self._some(among)
        for key, obj in found:
            yield Change(key, None if origin is Origin.LISTED else obj, obj, origin)

    def _some(self, among: Callable[[ObjectKey], bool]) -> Iterator[tuple[ObjectKey, T | Malformed]]:
        return ((key, self._objects[key]) for key in self.keys() if among(key))

    def _replace(self, objects: Sequence[T | Malformed]) -> list[Change[T]]:
        """Replace the content with this list. Objects missing from it were deleted while the watch was interrupted."""
        origin = Origin.WATCHED if self._listed else Origin.LISTED
        self._listed = True
        gone = dict.fromkeys(self._objects)
        changes = []
        with _collector_paused():
            for obj in objects:
                key = key_of(obj)
                gone.pop(key, None)
                if change := self._put(key, self._objects.get(key), obj, origin):
                    changes.append(change)
            for key in gone:
                old = self._objects.pop(key)
                self._unindex(key, old)
                changes.append(Change(key, old, None))
        return changes

    def _add_page(self, objects: Sequence[T | Malformed]) -> list[Change[T]]:
        origin = Origin.WATCHED if self._listed else Origin.LISTED
        with _collector_paused():
            keyed = ((key_of(obj), obj) for obj in objects)
            put = (self._put(key, self._objects.get(key), obj, origin) for key, obj in keyed)
            return [change for change in put if change is not None]

    def _keep_only(self, existing: frozenset[ObjectKey]) -> list[Change[T]]:
        """Drop the objects that were deleted while the watch was interrupted."""
        self._listed = True
        changes: list[Change[T]] = []
        for key in [key for key in self._objects if key not in existing]:
            old = self._objects.pop(key)
            self._unindex(key, old)
            changes.append(Change(key, old, None))
        return changes

    def _put(self, key: ObjectKey, old: T | Malformed | None, obj: T | Malformed, origin: Origin) -> Change[T] | None:
        if old is not None and version_of(old) == version_of(obj) != "":
            return None  # already seen: a list or a resumed stream repeats delivered objects
        if self._indexes:
            obj = self._indexed(key, old, obj)
        self._objects[key] = obj
        return Change(key, old, obj, origin)

    def _unindex(self, key: ObjectKey, old: T | Malformed) -> None:
        for index in self._indexes.values():
            index.remove(key, old)

    def _indexed(self, key: ObjectKey, old: T | Malformed | None, obj: T | Malformed) -> T | Malformed:
        try:
            for index in self._indexes.values():
                index.move(key, old, obj)
        except Exception as error:  # noqa: BLE001 - one odd object must not stop the informer for all others
            for index in self._indexes.values():
                index.remove(key, old)
                index.remove(key, obj)
            return Malformed(meta_of(obj), f"an index cannot read it ({type(error).__name__})")
        return obj


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: the list creates no garbage, and collections of a growing heap are expensive."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class _Index(Generic[T]):
    """Keys by value. Nothing is stored per object: removal computes the values of the old state again."""

    def __init__(self, name: str, values_of: IndexFunction[T]) -> None:
        self._name = name
        self._values_of = values_of
        # Most values have one object, and its key alone takes no further memory. Dicts serve as ordered sets.
        self._keys: dict[Hashable, ObjectKey | dict[ObjectKey, None]] = {}

    def keys_of(self, value: Hashable) -> Iterable[ObjectKey]:
        found = self._keys.get(value, ())
        return (found,) if isinstance(found, ObjectKey) else found

    def move(self, key: ObjectKey, old: T | Malformed | None, obj: T | Malformed) -> None:
        """Find the object under the values of its new state only. Raises whatever the index function raises."""
        before, after = self._known(old), self._values(obj)
        if before == after:
            return
        self._discard(key, before)
        for value in after:
            found = self._keys.setdefault(value, key)
            if isinstance(found, dict):
                found[key] = None
            elif found != key:
                self._keys[value] = {found: None, key: None}

    def remove(self, key: ObjectKey, obj: T | Malformed | None) -> None:
        self._discard(key, self._known(obj))

    def _values(self, obj: T | Malformed) -> tuple[Hashable, ...]:
        return () if isinstance(obj, Malformed) else tuple(self._values_of(obj))

    def _known(self, obj: T | Malformed | None) -> tuple[Hashable, ...]:
        try:
            return () if obj is None else self._values(obj)
        except Exception:  # noqa: BLE001 - then it was never added either
            return ()

    def _discard(self, key: ObjectKey, values: tuple[Hashable, ...]) -> None:
        for value in values:
            found = self._keys.get(value)
            if isinstance(found, dict):
                found.pop(key, None)
            if not found or found == key:
                self._keys.pop(value, None)
