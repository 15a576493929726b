"""Names and metadata of Kubernetes objects.

Pure values, independent of HTTP, caches and particular kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")


class ObjectKey(NamedTuple):
    """Namespace and name of one object; the namespace of a cluster-scoped object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """One served resource and its place in the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = [self.root]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class OwnerReference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False, rename="camel"):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False, rename="camel"):
    """Metadata of one object, without managedFields: these are most of its bytes, and no controller reads them."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)


class Object(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False, rename="camel"):
    """Base of every typed kind; on its own the metadata-only form (PartialObjectMetadata)."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def key(self) -> ObjectKey:
        return self.metadata.key


class Condition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False, rename="camel"):
    """One entry of status.conditions."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A resource and the Python type its objects decode to (a Struct, or dict for plain JSON)."""

    resource: Resource
    type: type[T]


JsonObject = dict[str, Any]


def raw(resource: Resource) -> Kind[JsonObject]:
    """Return the resource as plain dicts: for kinds known only at run time, and to preserve unknown fields."""
    return Kind(resource, dict)


def metadata_of(resource: Resource) -> Kind[Object]:
    """Return the resource as metadata only."""
    return Kind(resource, Object)


@dataclass(frozen=True, slots=True)
class Malformed:
    """An object from the API server that does not decode to its kind's type. It must not stop the processing of others.

    `error` names the field and the expected type, never the value found.
    """

    metadata: ObjectMeta
    error: str

    @property
    def key(self) -> ObjectKey:
        return self.metadata.key


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list. An empty `continue_token` marks the last page."""

    items: list[T | Malformed] = field(repr=False)
    resource_version: str
    continue_token: str = ""
    remaining_item_count: int | None = None


def key_of(obj: Any) -> ObjectKey:
    """Return the key of any form of object: typed, malformed or plain dict."""
    if isinstance(obj, dict):
        plain = _plain_metadata(obj)
        return ObjectKey(str(plain.get("namespace") or ""), str(plain.get("name") or ""))
    metadata = obj.metadata
    return ObjectKey(metadata.namespace, metadata.name)


def version_of(obj: Any) -> str:
    """Return the resourceVersion of any form of object."""
    if isinstance(obj, dict):
        return str(_plain_metadata(obj).get("resourceVersion") or "")
    return str(obj.metadata.resource_version)


def meta_of(obj: Any) -> ObjectMeta:
    """Return the metadata of any form of object."""
    if not isinstance(obj, dict):
        metadata: ObjectMeta = obj.metadata
        return metadata
    present = {name: value for name, value in _plain_metadata(obj).items() if value is not None}
    try:
        return msgspec.convert(present, ObjectMeta)
    except msgspec.ValidationError:  # no API server sends this, but callers still need the key
        key = key_of(obj)
        return ObjectMeta(namespace=key.namespace, name=key.name, resource_version=version_of(obj))


def _plain_metadata(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
