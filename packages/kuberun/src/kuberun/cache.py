"""The last known state of every object of one resource, by key and by named indexes.

`Store.apply` takes the events of a watch in the order they were delivered and says what changed. Resource versions are
compared for equality only: they are opaque, and the order of delivery is the order of the server.

Objects are shared, not copied: whoever reads the store must treat them as frozen (`msgspec.structs.replace` or
`copy.deepcopy` make one's own). What a method returns as a list or tuple is a snapshot that later events do not change.
The store is bounded by the server's own collection: nothing is kept of an object that is gone, and the typed forms
leave managedFields out, which is most of an object's bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Generic, TypeVar, assert_never

import msgspec

from kuberun.meta import Malformed, ObjectKey, key_of, meta_of, version_of
from kuberun.watch import Applied, Deleted, Event, Listed

T = TypeVar("T")

IndexFunction = Callable[[T], Iterable[Hashable]]
"""The values an object is found under."""


class Origin(Enum):
    LISTED = "listed"
    """There when we started."""
    WATCHED = "watched"
    """Happened while we were watching, or while the watch was interrupted."""
    RESYNCED = "resynced"
    """Nothing happened; the object is delivered again."""


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What became of one object, from the state a consumer saw last to the present one.

    A Struct because a first list makes one for every object: it costs a tenth of a dataclass and no garbage collection.
    """

    key: ObjectKey
    old: T | Malformed | None
    new: T | Malformed | None
    origin: Origin = Origin.WATCHED

    def __repr__(self) -> str:
        """Not the objects: they may be Secrets."""
        return f"Change(key={self.key!s}, origin={self.origin.name})"

    @property
    def created(self) -> bool:
        """New to the consumer, or another object under the same name."""
        return self.new is not None and (self.old is None or meta_of(self.old).uid != meta_of(self.new).uid)

    @property
    def deleted(self) -> bool:
        return self.new is None

    @property
    def last(self) -> T | Malformed:
        """The newest state there is: of a deleted object, the one before it went."""
        last = self.new if self.new is not None else self.old
        if last is None:
            raise AssertionError("a change of nothing into nothing is never delivered")
        return last


class Store(Generic[T]):
    def __init__(self, indexes: Mapping[str, IndexFunction[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T | Malformed] = {}
        self._indexes = {name: _Index(name, values_of) for name, values_of in (indexes or {}).items()}
        self._listed = False
        self.revision = 0
        """Another number after every event."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def get(self, key: ObjectKey) -> T | Malformed | None:
        """The object; `Malformed` if it exists but does not fit its type, which is not the same as gone."""
        return self._objects.get(key)

    def keys(self) -> tuple[ObjectKey, ...]:
        return tuple(self._objects)

    def objects(self) -> list[T]:
        return [obj for obj in self._objects.values() if not isinstance(obj, Malformed)]

    def malformed(self) -> list[Malformed]:
        return [obj for obj in self._objects.values() if isinstance(obj, Malformed)]

    def find(self, index: str, value: Hashable) -> list[T]:
        """The objects the named index has under this value."""
        found = (self._objects[key] for key in self._indexes[index].keys_of(value))
        return [obj for obj in found if not isinstance(obj, Malformed)]

    def find_keys(self, index: str, value: Hashable) -> tuple[ObjectKey, ...]:
        return tuple(self._indexes[index].keys_of(value))

    def apply(self, event: Event[T]) -> Sequence[Change[T]]:
        """Take in one event of the watch; what changed by it, in order."""
        self.revision += 1
        match event:
            case Listed(objects=objects):
                return self._replace(objects)
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

    def everything(self, origin: Origin) -> Iterator[Change[T]]:
        """Every object as if it had just been created (LISTED) or touched (RESYNCED)."""
        for key, obj in self._objects.items():
            yield Change(key, None if origin is Origin.LISTED else obj, obj, origin)

    def _replace(self, objects: Sequence[T | Malformed]) -> list[Change[T]]:
        """The store becomes this list: what is not in it has vanished while nobody watched."""
        origin = Origin.WATCHED if self._listed else Origin.LISTED
        self._listed = True
        before, self._objects = self._objects, {}
        changes = []
        with _collector_paused():
            for obj in objects:
                key = key_of(obj)
                if change := self._put(key, before.pop(key, None), obj, origin):
                    changes.append(change)
            for key, old in before.items():
                self._unindex(key, old)
                changes.append(Change(key, old, None))
        return changes

    def _put(self, key: ObjectKey, old: T | Malformed | None, obj: T | Malformed, origin: Origin) -> Change[T] | None:
        if old is not None and version_of(old) == version_of(obj) != "":
            self._objects[key] = old  # seen already: a list or a resumed stream repeats what was delivered before
            return None
        if self._indexes:
            obj = self._indexed(key, old, obj)
        self._objects[key] = obj
        return Change(key, old, obj, origin)

    def _unindex(self, key: ObjectKey, old: T | Malformed) -> None:
        for index in self._indexes.values():
            index.remove(key, old)

    def _indexed(self, key: ObjectKey, old: T | Malformed | None, obj: T | Malformed) -> T | Malformed:
        for index in self._indexes.values():
            index.remove(key, old)
        try:
            for index in self._indexes.values():
                index.add(key, obj)
        except Exception as error:  # noqa: BLE001 - one odd object must not stop the informer for all the others
            for index in self._indexes.values():
                index.remove(key, obj)
            return Malformed(meta_of(obj), f"an index cannot read it ({type(error).__name__})")
        return obj


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Nothing made meanwhile is garbage, and passes over a growing heap would cost more than the work itself."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class _Index(Generic[T]):
    """Keys by value. It remembers nothing per object: the function is asked again about the old state."""

    def __init__(self, name: str, values_of: IndexFunction[T]) -> None:
        self._name = name
        self._values_of = values_of
        self._keys: dict[Hashable, dict[ObjectKey, None]] = {}  # dicts as sets that keep the order

    def keys_of(self, value: Hashable) -> Iterable[ObjectKey]:
        return self._keys.get(value, ())

    def add(self, key: ObjectKey, obj: T | Malformed) -> None:
        if isinstance(obj, Malformed):
            return
        for value in tuple(self._values_of(obj)):
            self._keys.setdefault(value, {})[key] = None

    def remove(self, key: ObjectKey, obj: T | Malformed | None) -> None:
        if obj is None or isinstance(obj, Malformed):
            return
        try:
            values = tuple(self._values_of(obj))
        except Exception:  # noqa: BLE001 - then it was never added either
            return
        for value in values:
            keys = self._keys.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]
