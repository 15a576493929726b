"""Objects that people ask about: their kinds by any name that kubectl accepts, and how they are read.

Secrets and other targets are requested as metadata only, so the API server never sends a value. An object that the
user may not read is part of the result, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from eso_api.common import CONTENDED, SHARED_PLACE
from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.kinds import GENERATOR_KINDS, KINDS, installed_kinds
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.owned import GENERATOR_CONFIG_GROUP
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
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
from kuberun.status import find_condition

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


class RecordedEvent(msgspec.Struct, rename="camel", frozen=True):
    """A recorded event."""

    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def at(self) -> str:
        return self.last_timestamp or self.event_time or ""


def conflict_of(conditions: Sequence[Condition]) -> Condition | None:
    """Return the condition of an object that is in conflict with others. A shared place may be intended."""
    found = find_condition(conditions, CONTENDED)
    return found if found is not None and found.status == "True" and found.reason != SHARED_PLACE else None


# --- kinds by name ----------------------------------------------------------------------------------------------------


AnyKind = CustomKind[Any]


class Role(Enum):
    """How objects of a kind are explained."""

    READS = "ExternalSecret"
    PUSHES = "PushSecret"
    FANS_OUT = "parent of objects in namespaces"
    STORE = "store"
    GENERATOR = "generator"
    STATE = "state of a generator"
    CLASS = "provider class"


_ROLES: Final[dict[AnyKind, Role]] = {
    EXTERNAL_SECRET: Role.READS,
    PUSH_SECRET: Role.PUSHES,
    CLUSTER_EXTERNAL_SECRET: Role.FANS_OUT,
    CLUSTER_PUSH_SECRET: Role.FANS_OUT,
    GENERATOR_STATE: Role.STATE,
    PROVIDER_CLASS: Role.CLASS,
    CLUSTER_PROVIDER_CLASS: Role.CLASS,
    **dict.fromkeys((*GENERATOR_KINDS, CLUSTER_GENERATOR, GENERATOR, CLUSTER_GENERATOR_V2), Role.GENERATOR),
}


_OURS: Final = tuple(kind for kind in KINDS if kind not in GENERATOR_KINDS)
"""Kinds whose names no provider has, so that finding them loads no provider."""


def role_of(kind: AnyKind) -> Role:
    """Return the role; a kind of a provider is a store or a generator by its group."""
    return _ROLES.get(kind, Role.GENERATOR if kind.group == GENERATOR_CONFIG_GROUP else Role.STORE)


def kinds_named(name: str) -> list[AnyKind]:
    """Return the kinds of a name, those of v1 groups first: two groups have a SecretStore. A group selects one.

    The kind of a short name comes first, and kinds of installed providers come last: several have a name of ours.
    """
    return named_among(_OURS, name) or named_among(_all_kinds(), name)


def named_among(kinds: Sequence[AnyKind], name: str) -> list[AnyKind]:
    """Return those of the kinds that have the name."""
    wanted = name.lower()
    names = {kind.name for kind in kinds if wanted in _names(kind)}
    found = [kind for kind in kinds if kind.name in names or wanted in _qualified(kind)]
    return sorted(found, key=lambda kind: wanted not in _names(kind))


def known_names() -> list[str]:
    """Return the names for messages and shell completion, without short names."""
    return sorted({kind.name.lower() for kind in _all_kinds()})


def _all_kinds() -> list[AnyKind]:
    """Return all kinds; without those of a broken provider, which `eso up` reports."""
    return list(dict.fromkeys((*KINDS, *installed_kinds(lambda _name, _problem: None))))


def _names(kind: AnyKind) -> tuple[str, ...]:
    return (kind.name.lower(), kind.plural, *kind.short_names)


def _qualified(kind: AnyKind) -> Iterator[str]:
    for name in _names(kind):
        yield f"{name}.{kind.group}"
        yield from (f"{name}.{version}.{kind.group}" for version in kind.versions)
