"""Which resource an API version and kind are: asked of the API server once; again after a while if there is none."""

from __future__ import annotations

from typing import Final

import msgspec

from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.errors import NotFound
from kuberun.meta import Resource
from kuberun.requests import discovery_path

_MAX_KNOWN: Final = 512
_ASK_AGAIN: Final = 10.0


class _Entry(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _Resources(msgspec.Struct):
    resources: list[_Entry] = []


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class Discovery:
    """One for the process; bounded."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], Resource] = {}
        self._missing: dict[tuple[str, str], float] = {}

    async def resource(self, api_version: str, kind: str) -> Resource | None:
        """The resource; None if the API server has none."""
        asked = (api_version, kind)
        if asked in self._known:
            return self._known[asked]
        if self._missing.get(asked, 0.0) > self._clock.monotonic():
            return None
        found = await served_resource(self._client, api_version, kind)
        if len(self._known) + len(self._missing) >= _MAX_KNOWN:
            self._known.clear()
            self._missing.clear()
        if found is None:
            self._missing[asked] = self._clock.monotonic() + _ASK_AGAIN
        else:
            self._known[asked] = found
        return found


async def served_resource(client: Client, api_version: str, kind: str) -> Resource | None:
    """Asked now."""
    return next((found for found in await served_resources(client, api_version) if found.kind == kind), None)


async def served_in_group(client: Client, group: str, kind: str) -> Resource | None:
    """Asked now, in whichever version: an object outlives the version that it was written in."""
    if not group:
        return await served_resource(client, "v1", kind)
    try:
        path = discovery_path(group)
    except ValueError:
        return None
    try:
        served = await client.read(path, _Group)
    except NotFound:
        return None
    for version in served.versions:
        if (found := await served_resource(client, version.group_version, kind)) is not None:
            return found
    return None


async def served_resources(client: Client, api_version: str) -> list[Resource]:
    """Everything of one API version, without subresources."""
    group, slash, version = api_version.rpartition("/")
    if not version or (slash and not group):
        return []
    try:
        path = discovery_path(group, version)
    except ValueError:
        return []  # such a text names no version
    try:
        served = await client.read(path, _Resources)
    except NotFound:
        return []
    entries = [entry for entry in served.resources if "/" not in entry.name]
    return [Resource(group, version, entry.name, entry.kind, entry.namespaced) for entry in entries]
