"""Objects as `insight` sees them: metadata, conditions, and why an object could not be read.

Secrets and other targets are requested as metadata only, so the API server never sends a value. An object that the
user may not read is part of the evidence, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

import msgspec

from eso_api.kinds import KINDS
from eso_operator.targets.discovery import served_resource
from eso_wire.kinds import KindId
from kubebase.meta import (
    Condition,
    JsonObject,
    Kind,
    Malformed,
    ObjectKey,
    ObjectMeta,
    Resource,
    meta_of,
    metadata_of,
    raw,
)
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound, NotServed
from kuberun.requests import Selection

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES: Final = Resource("", "v1", "services", "Service")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS: Final = Resource("", "v1", "events", "Event")

_BUILT_IN: Final = {(each.group, each.kind): each for each in (NAMESPACES, SERVICES)}

T = TypeVar("T")


class Look(Enum):
    """The result of reading an object."""

    FOUND = "found"
    ABSENT = "absent"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Sight:
    """The known parts of an object. `why` says why it could not be read."""

    kind: str
    key: ObjectKey
    look: Look = Look.FOUND
    why: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    conditions: tuple[Condition, ...] = ()
    address: str = ""
    """The address of a provider class; empty for other objects."""

    def __str__(self) -> str:
        return f"{self.kind} {self.key.name}"


class HiddenError(Exception):
    """Required objects may not be read."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


class Eyes:
    """A client that returns a `Sight` instead of raising an error."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def read(self, kind: Kind[T], key: ObjectKey) -> T | Sight:
        """Return an object, or the reason why it could not be read."""
        resource = kind.resource
        try:
            return await self.client.get(kind, key)
        except NotServed:
            why = f"the API server does not know {resource}; enable the provider that has its CRD, or apply the CRD"
            return Sight(resource.kind, key, Look.ABSENT, why)
        except NotFound:
            return Sight(resource.kind, key, Look.ABSENT, "does not exist")
        except ApiError as problem:
            return Sight(resource.kind, key, Look.HIDDEN, _hidden(problem))

    async def glance(self, resource: Resource, key: ObjectKey) -> Sight:
        """Read only the metadata of an object."""
        seen = await self.read(metadata_of(resource), key)
        return seen if isinstance(seen, Sight) else Sight(resource.kind, key, metadata=seen.metadata)

    async def document(self, resource: Resource, key: ObjectKey) -> JsonObject | Sight:
        """Read a whole object, undecoded."""
        return await self.read(raw(resource), key)

    async def see(self, resource: Resource, key: ObjectKey) -> Sight:
        """Read the metadata and conditions of an object."""
        seen = await self.document(resource, key)
        return seen if isinstance(seen, Sight) else sight_of(resource, seen)

    async def listed(self, kind: Kind[T], selection: Selection) -> list[T]:
        """Return the readable objects; an empty list if listing fails."""
        try:
            return await self.list_all(kind, selection)
        except HiddenError:
            return []

    async def list_all(self, kind: Kind[T], selection: Selection) -> list[T]:
        """Return the readable objects; none of a kind that is not served. Raises HiddenError if listing fails."""
        try:
            page = await self.client.list(kind, selection)
        except (NotServed, NotFound):
            return []
        except ApiError as problem:
            raise HiddenError(str(kind.resource), _hidden(problem)) from None
        return [item for item in page.items if not isinstance(item, Malformed)]

    async def names(self, resource: Resource, namespace: str) -> list[str]:
        """Return the names of the objects of a kind; none if listing fails."""
        selection = Selection(namespace if resource.namespaced else "")
        return [each.metadata.name for each in await self.listed(metadata_of(resource), selection)]

    async def resource(self, kind: KindId) -> Resource | None:
        """Return the resource of a kind; None if the API server does not serve it, or cannot be asked."""
        if (built_in := _BUILT_IN.get((kind.group, kind.kind))) is not None:
            return built_in
        for custom in KINDS:
            if (custom.group, custom.name) == (kind.group, kind.kind):
                return custom.resource(kind.version if kind.version in custom.versions else "")
        try:
            return await served_resource(self.client, kind.api_version, kind.kind)
        except ApiError:
            return None


def sight_of(resource: Resource, document: JsonObject) -> Sight:
    """Reduce an object to its metadata, conditions and address, because the spec of a store may contain values."""
    metadata, spec = meta_of(document), document.get("spec")
    address = spec.get("address") if isinstance(spec, dict) else ""
    shown = address if isinstance(address, str) else ""
    return Sight(resource.kind, metadata.key, metadata=metadata, conditions=tuple(_conditions(document)), address=shown)


def _conditions(document: JsonObject) -> Iterator[Condition]:
    try:
        yield from msgspec.convert(document.get("status") or {}, _Status).conditions
    except msgspec.ValidationError:
        return


class _Status(msgspec.Struct):
    conditions: list[Condition] = []


def _hidden(problem: ApiError) -> str:
    if isinstance(problem, Forbidden):
        return "you may not read it"
    return f"cannot be read: {problem.message}"
