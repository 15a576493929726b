"""The values of storage: a key, one version of an object, and one change from version to version.

Bodies stay JSON bytes. A reader decodes a fresh object and may edit it; a change decodes once for all its
watchers, who must not edit it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
