"""Lookup of the resource of an API version and kind. Found ones are cached; missing ones are retried after 10 s."""

from __future__ import annotations

from typing import Final

import msgspec

from kubebase.clock import Clock
from kubebase.meta import Resource
from kuberun.client import Client
from kuberun.errors import NotFound
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
    """A bounded cache of resources. The process has one."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], Resource] = {}
        self._missing: dict[tuple[str, str], float] = {}

    async def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource; None if the API server does not serve it."""
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
    """Ask the API server for the resource of a kind; None if it does not serve it."""
    return next((found for found in await served_resources(client, api_version) if found.kind == kind), None)


async def served_in_group(client: Client, group: str, kind: str) -> Resource | None:
    """Ask the API server for a kind in any version of its group: objects outlive the version they were written in."""
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
    """Ask the API server for all resources of one API version, without subresources."""
    group, slash, version = api_version.rpartition("/")
    if not version or (slash and not group):
        return []
    try:
        path = discovery_path(group, version)
    except ValueError:
        return []  # the text is not a valid API version
    try:
        served = await client.read(path, _Resources)
    except NotFound:
        return []
    entries = [entry for entry in served.resources if "/" not in entry.name]
    return [Resource(group, version, entry.name, entry.kind, entry.namespaced) for entry in entries]
