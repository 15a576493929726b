"""Leases in memory, with the optimistic locking of an API server, behind networks that fail on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kubebase.clock import Clock
from kubebase.meta import JsonObject, Kind, ObjectKey, Page, key_of, version_of
from kuberun.errors import AlreadyExists, Conflict, NotFound, Unreachable
from kuberun.requests import DeleteOptions, Selection

T = TypeVar("T")

_LATENCY = 0.01


class LeaseServer:
    """The Leases of a cluster."""

    def __init__(self) -> None:
        self.leases: dict[ObjectKey, JsonObject] = {}
        self._version = 0

    def get(self, key: ObjectKey) -> JsonObject:
        if key not in self.leases:
            raise NotFound(404, "NotFound", f"lease {key} not found")
        return self.leases[key]

    def write(self, obj: JsonObject, *, create: bool) -> JsonObject:
        key = key_of(obj)
        if create and key in self.leases:
            raise AlreadyExists(409, "AlreadyExists", "lease exists")
        if not create and version_of(obj) != version_of(self.get(key)):
            raise Conflict(409, "Conflict", "the object has been modified")
        self._version += 1
        self.leases[key] = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        return self.leases[key]

    def delete(self, key: ObjectKey, version: str = "") -> None:
        if version not in ("", version_of(self.get(key))):
            raise Conflict(409, "Conflict", "the object has been modified")
        del self.leases[key]

    def matching(self, selection: Selection) -> Page[JsonObject]:
        name, _, value = selection.label_selector.partition("=")
        found = (lease for key, lease in self.leases.items() if key.namespace == selection.namespace)
        return Page([lease for lease in found if (lease["metadata"].get("labels") or {}).get(name) == value], "")

    def holder(self, key: ObjectKey) -> str:
        spec: JsonObject = self.get(key)["spec"]
        return str(spec.get("holderIdentity") or "")


class LeaseClient:
    """The Leases as seen by one client whose network can fail."""

    def __init__(self, server: LeaseServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self.reachable = True
        self.hangs = False
        self.loses_answers = False

    async def get(self, _: Kind[JsonObject], key: ObjectKey) -> JsonObject:
        return await self._call(lambda: self._server.get(key), lossy=False)

    async def create(self, _: Kind[JsonObject], obj: JsonObject) -> JsonObject:
        return await self._call(lambda: self._server.write(obj, create=True), lossy=True)

    async def update(self, _: Kind[JsonObject], obj: JsonObject) -> JsonObject:
        return await self._call(lambda: self._server.write(obj, create=False), lossy=True)

    async def list(self, _: Kind[JsonObject], selection: Selection) -> Page[JsonObject]:
        return await self._call(lambda: self._server.matching(selection), lossy=False)

    async def delete(self, _: Kind[JsonObject], key: ObjectKey, options: DeleteOptions) -> None:
        await self._call(lambda: self._server.delete(key, options.resource_version), lossy=True)

    async def _call(self, call: Callable[[], T], *, lossy: bool) -> T:
        await self._clock.sleep(_LATENCY)
        if not self.reachable:
            raise Unreachable("connection refused")
        if self.hangs:
            await asyncio.Event().wait()
        response = call()
        if lossy and self.loses_answers:
            raise Unreachable("the connection broke before the response")
        return response
