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
_RETRY_SECONDS: Final = 10.0


class _ServedResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _ServedResources(msgspec.Struct):
    resources: list[_ServedResource] = []


class _ServedVersion(msgspec.Struct, rename="camel"):
    group_version: str


class _ServedGroup(msgspec.Struct):
    versions: list[_ServedVersion] = []


class Discovery:
    """A bounded cache of resources. The process has one."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], Resource] = {}
        self._missing: dict[tuple[str, str], float] = {}

    async def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource; None if the API server does not serve it."""
        name = (api_version, kind)
        if name in self._known:
            return self._known[name]
        if self._missing.get(name, 0.0) > self._clock.monotonic():
            return None
        found = await served_resource(self._client, api_version, kind)
        if len(self._known) + len(self._missing) >= _MAX_KNOWN:
            self._known.clear()
            self._missing.clear()
        if found is None:
            self._missing[name] = self._clock.monotonic() + _RETRY_SECONDS
        else:
            self._known[name] = found
        return found


async def served_resource(client: Client, api_version: str, kind: str) -> Resource | None:
    """Read the resource of a kind from the API server; None if it does not serve it."""
    return next((found for found in await served_resources(client, api_version) if found.kind == kind), None)


async def served_in_group(client: Client, group: str, kind: str) -> Resource | None:
    """Read a kind from the API server in any version of its group: objects outlive the version they were written in."""
    if not group:
        return await served_resource(client, "v1", kind)
    try:
        path = discovery_path(group)
    except ValueError:
        return None
    try:
        served = await client.read(path, _ServedGroup)
    except NotFound:
        return None
    for version in served.versions:
        if (found := await served_resource(client, version.group_version, kind)) is not None:
            return found
    return None


async def served_resources(client: Client, api_version: str) -> list[Resource]:
    """Read all resources of one API version from the API server, without subresources."""
    group, slash, version = api_version.rpartition("/")
    if not version or (slash and not group):
        return []
    try:
        path = discovery_path(group, version)
    except ValueError:
        return []  # the text is not a valid API version
    try:
        served = await client.read(path, _ServedResources)
    except NotFound:
        return []
    entries = [entry for entry in served.resources if "/" not in entry.name]
    return [Resource(group, version, entry.name, entry.kind, entry.namespaced) for entry in entries]
