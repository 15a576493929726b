"""Live objects that a plan needs: read from a cluster with GET requests, from a recording, or none.

Nothing is written: the transport to a cluster refuses every request except reads and, if the user allows them, requests
for service account tokens, which a cluster does not store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from eso_api.kinds import installed_kinds
from eso_tools.plan.needs import Need, identity
from eso_tools.plan.recording import Recording
from eso_tools.plan.withholding import store_name
from eso_wire.errors import Subject
from kubebase.meta import JsonObject, Malformed, ObjectKey, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.requests import Request, Selection
from kuberun.transport import Transport
from localkube.selectors import parse_label_selector

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
_CORE: Final = (
    NAMESPACES,
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
)


class Live(Protocol):
    """The live objects."""

    async def find(self, need: Need) -> Sequence[JsonObject]:
        """Return the named object, or all objects that the labels select; empty if there is none."""
        ...

    async def namespaces(self) -> Sequence[JsonObject]: ...


class Nothing:
    """No cluster: every object is new."""

    async def find(self, need: Need) -> Sequence[JsonObject]:
        del need
        return ()

    async def namespaces(self) -> Sequence[JsonObject]:
        return ()


class LiveCluster:
    """The objects of a cluster. `notes` says what could not be read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        kinds = installed_kinds(lambda _name, _problem: None)
        self._resources = {(kind.group, kind.name): kind.resource() for kind in kinds}
        self._resources |= {("", resource.kind): resource for resource in _CORE}
        self.notes: dict[str, None] = {}

    async def find(self, need: Need) -> Sequence[JsonObject]:
        resource = self._resources.get((need.group, need.kind))
        if resource is None or (resource.namespaced and not need.namespace):
            return ()
        namespace = need.namespace if resource.namespaced else ""
        try:
            if need.name:
                found = [await self._client.get(raw(resource), ObjectKey(namespace, need.name))]
            else:
                selection = Selection(namespace, label_selector=need.labels)
                found = _readable((await self._client.list(raw(resource), selection)).items)
        except NotFound:
            return ()
        except Forbidden:
            self.notes[f"you may not read {need}; it counts as absent"] = None
            return ()
        return [_typed(resource, obj) for obj in found]

    async def namespaces(self) -> Sequence[JsonObject]:
        try:
            found = _readable((await self._client.list(raw(NAMESPACES))).items)
        except Forbidden:
            self.notes["you may not list namespaces; only those of the manifests are planned"] = None
            return ()
        return [_typed(NAMESPACES, obj) for obj in found]


class RecordedObjects:
    """The live objects of a recording. `unknown` are those that the recording says nothing about."""

    def __init__(self, recording: Recording) -> None:
        self._objects = recording.objects
        self._reads = frozenset(recording.reads)
        self.unknown: dict[Need, None] = {}
        self.names = frozenset(name for obj in self._objects for name in object_names(obj, ""))

    async def find(self, need: Need) -> Sequence[JsonObject]:
        if str(need) not in self._reads:
            self.unknown[need] = None
        if not need.name:
            selector = parse_label_selector(need.labels)
            return [obj for obj in self._objects if _is_of(obj, need) and selector.matches(obj)]
        return [obj for obj in self._objects if _is_of(obj, need) and obj["metadata"]["name"] == need.name]

    async def namespaces(self) -> Sequence[JsonObject]:
        return [obj for obj in self._objects if identity(obj) == ("", "Namespace")]


@dataclass(slots=True)
class Remembering:
    """Remembers what was read, for a recording."""

    live: Live
    found: dict[tuple[tuple[str, str], str, str], JsonObject] = field(default_factory=dict)
    reads: dict[str, None] = field(default_factory=dict)

    async def find(self, need: Need) -> Sequence[JsonObject]:
        self.reads[str(need)] = None
        objects = await self.live.find(need)
        self.found |= {place_of(obj): obj for obj in objects}
        return objects

    async def namespaces(self) -> Sequence[JsonObject]:
        objects = await self.live.namespaces()
        self.found |= {place_of(obj): obj for obj in objects}
        return objects


def place_of(obj: JsonObject) -> tuple[tuple[str, str], str, str]:
    """Return group and kind, namespace and name."""
    metadata = obj["metadata"]
    return identity(obj), str(metadata.get("namespace", "")), str(metadata["name"])


def object_names(obj: JsonObject, namespace: str) -> tuple[str, ...]:
    """Return the names of an object as a store, which may be cluster-scoped."""
    metadata, api_version, kind = obj["metadata"], str(obj.get("apiVersion", "")), str(obj.get("kind", ""))
    homes = {"", str(metadata.get("namespace") or namespace)}
    return tuple(store_name(Subject(api_version, kind, home, str(metadata["name"]))) for home in homes)


class ReadOnlyTransport:
    """Passes reads to a cluster and refuses everything else."""

    def __init__(self, inner: Transport, *, tokens: bool) -> None:
        self._inner = inner
        self._tokens = tokens

    async def request(self, request: Request) -> bytes:
        if request.method != "GET" and not (self._tokens and is_token_request(request)):
            raise refusal(request)
        return await self._inner.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


def is_token_request(request: Request) -> bool:
    parts = request.path.split("/")
    return request.method == "POST" and parts[-1] == "token" and "serviceaccounts" in parts


def refusal(request: Request) -> ApiError:
    what = "tokens of service accounts are requested only with --allow-token-requests"
    text = what if is_token_request(request) else "a plan changes nothing in the cluster"
    return Forbidden(403, "Forbidden", text, where=request.where)


def _readable(items: Iterable[JsonObject | Malformed]) -> list[JsonObject]:
    return [item for item in items if not isinstance(item, Malformed)]


def _typed(resource: Resource, obj: JsonObject) -> JsonObject:
    """Add apiVersion and kind, which the items of a list lack."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _is_of(obj: JsonObject, need: Need) -> bool:
    where = str(obj["metadata"].get("namespace", ""))
    return identity(obj) == (need.group, need.kind) and where in ("", need.namespace)
