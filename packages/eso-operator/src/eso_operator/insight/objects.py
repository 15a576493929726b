"""Objects as `insight` reads them: metadata, conditions, and why an object could not be read.

Secrets and other targets are requested as metadata only, so the API server never sends a value. An object that the
user may not read is part of the inputs, not an error.
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


class ReadState(Enum):
    """The result of reading an object."""

    FOUND = "found"
    ABSENT = "absent"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """The known parts of an object. `why` says why it could not be read."""

    kind: str
    key: ObjectKey
    read_state: ReadState = ReadState.FOUND
    why: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    conditions: tuple[Condition, ...] = ()
    address: str = ""
    """The address of a provider class; empty for other objects."""

    def __str__(self) -> str:
        return f"{self.kind} {self.key.name}"


class UnreadableError(Exception):
    """Required objects may not be read."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


class ObjectReader:
    """A client that returns a `ObjectSummary` instead of raising an error."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def read(self, kind: Kind[T], key: ObjectKey) -> T | ObjectSummary:
        """Return an object, or the reason why it could not be read."""
        resource = kind.resource
        try:
            return await self.client.get(kind, key)
        except NotServed:
            why = f"the API server does not know {resource}; enable the provider that has its CRD, or apply the CRD"
            return ObjectSummary(resource.kind, key, ReadState.ABSENT, why)
        except NotFound:
            return ObjectSummary(resource.kind, key, ReadState.ABSENT, "does not exist")
        except ApiError as problem:
            return ObjectSummary(resource.kind, key, ReadState.UNREADABLE, _why_unreadable(problem))

    async def read_metadata(self, resource: Resource, key: ObjectKey) -> ObjectSummary:
        """Read only the metadata of an object."""
        found = await self.read(metadata_of(resource), key)
        return found if isinstance(found, ObjectSummary) else ObjectSummary(resource.kind, key, metadata=found.metadata)

    async def document(self, resource: Resource, key: ObjectKey) -> JsonObject | ObjectSummary:
        """Read a whole object, undecoded."""
        return await self.read(raw(resource), key)

    async def read_summary(self, resource: Resource, key: ObjectKey) -> ObjectSummary:
        """Read the metadata and conditions of an object."""
        found = await self.document(resource, key)
        return found if isinstance(found, ObjectSummary) else summary_of(resource, found)

    async def listed(self, kind: Kind[T], selection: Selection) -> list[T]:
        """Return the readable objects; an empty list if listing fails."""
        try:
            return await self.list_all(kind, selection)
        except UnreadableError:
            return []

    async def list_all(self, kind: Kind[T], selection: Selection) -> list[T]:
        """Return the readable objects; none of a kind that is not served. Raises HiddenError if listing fails."""
        try:
            page = await self.client.list(kind, selection)
        except (NotServed, NotFound):
            return []
        except ApiError as problem:
            raise UnreadableError(str(kind.resource), _why_unreadable(problem)) from None
        return [item for item in page.items if not isinstance(item, Malformed)]

    async def names(self, resource: Resource, namespace: str) -> list[str]:
        """Return the names of the objects of a kind; none if listing fails."""
        selection = Selection(namespace if resource.namespaced else "")
        return [each.metadata.name for each in await self.listed(metadata_of(resource), selection)]

    async def resource(self, kind: KindId) -> Resource | None:
        """Return the resource of a kind; None if the API server does not serve it, or cannot be read."""
        if (built_in := _BUILT_IN.get((kind.group, kind.kind))) is not None:
            return built_in
        for custom in KINDS:
            if (custom.group, custom.name) == (kind.group, kind.kind):
                return custom.resource(kind.version if kind.version in custom.versions else "")
        try:
            return await served_resource(self.client, kind.api_version, kind.kind)
        except ApiError:
            return None


def summary_of(resource: Resource, document: JsonObject) -> ObjectSummary:
    """Reduce an object to its metadata, conditions and address, because the spec of a store may contain values."""
    metadata, spec = meta_of(document), document.get("spec")
    address = spec.get("address") if isinstance(spec, dict) else ""
    shown = address if isinstance(address, str) else ""
    return ObjectSummary(
        resource.kind, metadata.key, metadata=metadata, conditions=tuple(_conditions(document)), address=shown
    )


def _conditions(document: JsonObject) -> Iterator[Condition]:
    try:
        yield from msgspec.convert(document.get("status") or {}, _Status).conditions
    except msgspec.ValidationError:
        return


class _Status(msgspec.Struct):
    conditions: list[Condition] = []


def _why_unreadable(problem: ApiError) -> str:
    if isinstance(problem, Forbidden):
        return "you may not read it"
    return f"cannot be read: {problem.message}"
