"""Leases without an API server, by name, with optimistic locking. Writes are counted."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from kubebase.meta import JsonObject, Kind, ObjectKey, version_of
from kuberun.client import Client
from kuberun.errors import AlreadyExists, Conflict, NotFound, Unreachable


@dataclass
class MemoryLeases(Client):
    """The verbs of a client that an election and resume tokens use."""

    held: dict[str, JsonObject] = field(default_factory=dict)
    writes: int = 0
    down: bool = False

    async def get(self, kind: Kind[Any], key: ObjectKey, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        self._reach()
        if key.name not in self.held:
            raise NotFound(404, "NotFound", f"lease {key} not found")
        return copy.deepcopy(self.held[key.name])

    async def create(self, kind: Kind[Any], obj: Any, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        self._reach()
        if obj["metadata"]["name"] in self.held:
            raise AlreadyExists(409, "AlreadyExists", "it exists")
        return self._write(obj)

    async def update(self, kind: Kind[Any], obj: Any, **__: Any) -> Any:  # noqa: ARG002 - as in Client
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
