"""Leases without an API server, by name, with optimistic locking. Writes are counted."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from kubebase.meta import JsonObject, Kind, ObjectKey, version_of
from kuberun.errors import AlreadyExists, Conflict, NotFound, Unreachable


@dataclass
class MemoryLeases:
    """The verbs of `kuberun.leader.Leases`."""

    held: dict[str, JsonObject] = field(default_factory=dict)
    writes: int = 0
    down: bool = False

    async def get(self, _: Kind[JsonObject], key: ObjectKey) -> JsonObject:
        self._reach()
        if key.name not in self.held:
            raise NotFound(404, "NotFound", f"lease {key} not found")
        return copy.deepcopy(self.held[key.name])

    async def create(self, _: Kind[JsonObject], obj: JsonObject) -> JsonObject:
        self._reach()
        if obj["metadata"]["name"] in self.held:
            raise AlreadyExists(409, "AlreadyExists", "it exists")
        return self._write(obj)

    async def update(self, _: Kind[JsonObject], obj: JsonObject) -> JsonObject:
        self._reach()
        present = self.held.get(obj["metadata"]["name"])
        if present is None:
            raise NotFound(404, "NotFound", "it is gone")
        if version_of(present) != version_of(obj):
            raise Conflict(409, "Conflict", "it changed")
        return self._write(obj)

    def _reach(self) -> None:
        if self.down:
            raise Unreachable("connection refused")

    def _write(self, obj: JsonObject) -> JsonObject:
        self.writes += 1
        written = copy.deepcopy(obj)
        written["metadata"]["resourceVersion"] = str(self.writes)
        self.held[written["metadata"]["name"]] = written
        return copy.deepcopy(written)
