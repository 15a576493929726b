"""The values of storage (a key, one version of an object, one change), and the view of what is committed.

Bodies stay JSON bytes. A reader decodes a fresh object and may edit it; a change decodes once for all its
watchers, who must not edit it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from kubebase.meta import JsonObject

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_decoder = msgspec.json.Decoder(dict)


class Key(NamedTuple):
    """`resource` is `plural.group`; the namespace of a cluster-scoped object is empty."""

    resource: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Return the position among its siblings; lists are sorted by it, byte by byte as etcd sorts its keys."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Record:
    """One version of one object."""

    revision: int
    uid: str
    body: bytes = field(repr=False)

    def decode(self) -> JsonObject:
        return _decoder.decode(self.body)


class Change:
    """One step of the history. `record` is the new version; for a deletion, the last one at the deletion's revision."""

    __slots__ = ("_object", "_previous_object", "at", "key", "previous", "record", "type")

    def __init__(self, kind: ChangeType, key: Key, record: Record, previous: Record | None, at: float) -> None:
        self.type: ChangeType = kind
        self.key = key
        self.record = record
        self.previous = previous
        self.at = at
        self._object: JsonObject | None = None
        self._previous_object: JsonObject | None = None

    @property
    def revision(self) -> int:
        return self.record.revision

    @property
    def object(self) -> JsonObject:
        """Return the decoded record, which all readers share: read only."""
        if self._object is None:
            self._object = self.record.decode()
        return self._object

    @property
    def previous_object(self) -> JsonObject | None:
        """Return the version before, which all readers share: read only."""
        if self._previous_object is None and self.previous is not None:
            self._previous_object = self.previous.decode()
        return self._previous_object

    def forget_objects(self) -> None:
        """Drop the decoded forms; history keeps bytes only."""
        self._object = self._previous_object = None


def encode(obj: JsonObject) -> bytes:
    return msgspec.json.encode(obj)


def tombstone(previous: Record, revision: int) -> Record:
    """Return the record of a DELETED event: the last version, marked with the revision of the deletion."""
    obj = previous.decode()
    obj["metadata"]["resourceVersion"] = str(revision)
    return Record(revision, previous.uid, encode(obj))


# --- The committed objects in memory, in key order, and the recent changes in revision order --------------------------
# Everything a reader sees comes from here. It changes only after a commit.


_revision = attrgetter("revision")


class Table:
    """All objects of one resource, by path."""

    __slots__ = ("_order", "records")

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._order: list[str] = []

    def put(self, path: str, record: Record) -> None:
        if path not in self.records:
            insort(self._order, path)
        self.records[path] = record

    def remove(self, path: str) -> None:
        if self.records.pop(path, None) is not None:
            del self._order[bisect_left(self._order, path)]

    def paths(self, namespace: str) -> list[str]:
        """Return the paths in order; all of them, or those of one namespace."""
        if not namespace:
            return list(self._order)
        start, end = bounds(namespace)
        return self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]


class Objects:
    """Every table."""

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}

    def get(self, key: Key) -> Record | None:
        table = self._tables.get(key.resource)
        return table.records.get(key.path) if table else None

    def put(self, key: Key, record: Record) -> None:
        self._tables.setdefault(key.resource, Table()).put(key.path, record)

    def remove(self, key: Key) -> None:
        if table := self._tables.get(key.resource):
            table.remove(key.path)

    def scan(self, resource: str, namespace: str) -> list[tuple[str, Record]]:
        table = self._tables.get(resource)
        if table is None:
            return []
        return [(path, table.records[path]) for path in table.paths(namespace)]

    def resources(self) -> list[str]:
        return [name for name, table in self._tables.items() if table.records]

    def newest_revision(self) -> int:
        revisions = (record.revision for table in self._tables.values() for record in table.records.values())
        return max(revisions, default=0)


class History:
    """Recent changes, of all resources and of each one; bounded by calls of `drop`."""

    def __init__(self) -> None:
        self._all: deque[Change] = deque()
        self._by_resource: dict[str, list[Change]] = {}
        self._bytes = 0

    def add(self, change: Change) -> None:
        self._all.append(change)
        self._by_resource.setdefault(change.key.resource, []).append(change)
        self._bytes += _weight(change)

    def since(self, resource: str, revision: int) -> list[Change]:
        changes = self._by_resource.get(resource, [])
        return changes[bisect_right(changes, revision, key=_revision) :]

    def drop(self, through: int) -> None:
        """Forget changes up to and including a revision."""
        touched: set[str] = set()
        while self._all and self._all[0].revision <= through:
            change = self._all.popleft()
            self._bytes -= _weight(change)
            touched.add(change.key.resource)
        for resource in touched:
            changes = self._by_resource[resource]
            del changes[: bisect_right(changes, through, key=_revision)]
            if not changes:
                del self._by_resource[resource]

    def excess(self, *, events: int, size: int, before: float) -> int:
        """Return the revision up to which to drop, so that count, bytes and age keep their limits; 0 for nothing."""
        count, total, through = len(self._all), self._bytes, 0
        for change in self._all:
            if count <= events and total <= size and change.at >= before:
                break
            through = change.revision
            count -= 1
            total -= _weight(change)
        return through

    def __len__(self) -> int:
        return len(self._all)

    @property
    def size(self) -> int:
        return self._bytes


def bounds(namespace: str) -> tuple[str, str]:
    """Return the half-open range of paths in one namespace."""
    return f"{namespace}/", f"{namespace}0"  # "0" follows "/" in ASCII


def _weight(change: Change) -> int:
    """Return the bytes that only the history keeps alive: the replaced version."""
    return 200 + (len(change.previous.body) if change.previous else 0)
