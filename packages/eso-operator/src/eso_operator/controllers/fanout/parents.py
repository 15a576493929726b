"""The cached parents, with our own writes included before the watch delivers them.

Without this, the change of a child right after a write would be reconciled with an older parent, and every fan-out
would end in a conflict with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eso_operator.controllers.fanout.description import Parent
from eso_operator.controllers.memory import Record
from eso_operator.memory import Memory
from kubebase.meta import ObjectKey, version_of
from kuberun.cache import Cache


@dataclass(frozen=True, slots=True)
class Ahead:
    """Our last write, and the versions that it replaced."""

    latest: Parent
    passed: frozenset[str]


@dataclass(slots=True, eq=False)
class ParentRecord(Record):
    """The record of one parent (`eso_operator.memory`)."""

    ahead: Ahead | None = None
    """Our last write, until the cache has it. If lost, a write on the cached object ends in a conflict and a retry."""


class Parents:
    """A view of the cache, with our own last write of each parent until the cache has it."""

    def __init__(self, store: Cache[Any], memory: Memory[ParentRecord]) -> None:
        self._store = store
        self._memory = memory

    def get(self, key: ObjectKey) -> Any | None:
        """Return the newest known state; `Malformed` and None as in the cache."""
        cached = self._store.get(key)
        record = self._memory.find(key)
        if record is None or record.ahead is None:
            return cached
        if cached is not None and version_of(cached) in record.ahead.passed:
            return record.ahead.latest
        record.ahead = None
        return cached

    def wrote(self, before: Parent, after: Parent) -> None:
        """Record that our write replaced the object `before` with `after`."""
        record = self._memory.at(before.metadata.key)
        passed = frozenset() if record.ahead is None else record.ahead.passed
        record.ahead = Ahead(after, passed | {before.metadata.resource_version})
