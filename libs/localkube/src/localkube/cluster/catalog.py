"""The kinds that are served now: the built-in ones, and those of every established CustomResourceDefinition.

Also the target of a request in one of these kinds, and the conversion between stored objects and a served version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from kubebase.meta import JsonObject, Resource
from localkube.errors import bad_request
from localkube.model import ServedKind
from localkube.storage import Key, Record

# --- The target of a request: one object, or a subresource of it, in one served version -------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    kind: ServedKind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    @property
    def key(self) -> Key:
        return Key(self.kind.storage_key, self.namespace if self.resource.namespaced else "", self.name)

    @property
    def namespace_key(self) -> Key:
        return Key("namespaces", "", self.namespace)

    def named(self, name: str) -> Target:
        return Target(self.kind, self.namespace, name, self.subresource)

    def set_namespace(self, metadata: JsonObject) -> None:
        """Check that the body names the namespace of the URL, or none."""
        given = metadata.get("namespace") or ""
        if not self.resource.namespaced:
            if given:
                metadata.pop("namespace")
            return
        if given and given != self.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = self.namespace

    def check_name(self, metadata: JsonObject) -> None:
        """Check that the body has the name of the URL."""
        given = metadata.get("name") or ""
        if not given:
            why = "was undeterminable: name must be provided"
            raise bad_request(f"the name of the object ({self.name} based on URL) {why}")
        if given != self.name:
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({self.name})")


Phase = Literal["Serving", "Terminating"]


@dataclass(frozen=True, slots=True)
class Definition:
    """The kinds that one CustomResourceDefinition adds to the catalog."""

    kinds: tuple[ServedKind, ...]
    phase: Phase
    changed_at: int
    """Objects of an older revision may not fit the schema: they are pruned and defaulted when they are read."""


class Catalog:
    def __init__(self, builtins: Iterable[ServedKind]) -> None:
        self._builtins = tuple(builtins)
        self._definitions: dict[str, Definition] = {}
        self._by_path: dict[tuple[str, str, str], ServedKind] = {}
        self._by_kind: dict[tuple[str, str], ServedKind] = {}
        self._by_storage: dict[str, list[ServedKind]] = {}
        self._counter = 0
        self._index()

    @property
    def counter(self) -> int:
        """Return a number that changes whenever the served kinds change.

        Discovery and OpenAPI documents are cached by it.
        """
        return self._counter

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> ServedKind | None:
        """Return the kind that an owner reference or a manifest names."""
        return self._by_kind.get((api_version, kind))

    def stored(self, storage_key: str) -> ServedKind | None:
        """Return one served version of the objects under a storage key: the storage version if it is served."""
        kinds = self._by_storage.get(storage_key)
        if not kinds:
            return None
        return next((kind for kind in kinds if kind.resource.version == kind.storage_version), kinds[0])

    def versions(self, storage_key: str) -> frozenset[str]:
        """Return the apiVersions in which a stored kind is served."""
        return frozenset(kind.resource.api_version for kind in self._by_storage.get(storage_key, ()))

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(self._by_path.values())

    @property
    def builtins(self) -> tuple[ServedKind, ...]:
        return self._builtins

    @property
    def definitions(self) -> dict[str, Definition]:
        """Return the definitions by name, which is also the storage key of their objects. Read only."""
        return self._definitions

    def define(self, name: str, definition: Definition) -> None:
        self._definitions[name] = definition
        self._index()

    def forget(self, name: str) -> None:
        if self._definitions.pop(name, None) is not None:
            self._index()

    def _index(self) -> None:
        kinds = [*self._builtins, *(kind for one in self._definitions.values() for kind in one.kinds)]
        self._by_path = {(kind.resource.group, kind.resource.version, kind.resource.plural): kind for kind in kinds}
        self._by_kind = {(kind.resource.api_version, kind.resource.kind): kind for kind in kinds}
        self._by_storage = {}
        for kind in kinds:
            self._by_storage.setdefault(kind.storage_key, []).append(kind)
        self._counter += 1


# --- Conversion between stored records and the objects of a served version --------------------------------------------
# The strategy is None: the versions of a kind share their fields, so only apiVersion changes, and fields that the
# stored version's schema does not have are dropped. Kinds that show another kind's objects have their own conversion.


class Conversions:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def read(self, kind: ServedKind, record: Record, *, written: int | None = None) -> JsonObject:
        """Decode a fresh copy. `written` is the revision of the last write, if it is not the record's."""
        obj = record.decode()
        if kind.custom and self.is_outdated(kind, record.revision if written is None else written):
            stored = self._catalog.stored(kind.storage_key) or kind
            stored.schema.prune(obj)
            stored.schema.default(obj)
        return self.shown(kind, obj)

    def shown(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """Convert a stored object to the served version. The result may share parts with the argument."""
        if kind.from_stored is not None:
            return kind.from_stored(obj)
        if obj["apiVersion"] != kind.resource.api_version:
            return {**obj, "apiVersion": kind.resource.api_version}
        return obj

    def stored(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """Convert an object of the served version to its stored form. The argument is consumed."""
        if kind.to_stored is not None:
            return kind.to_stored(obj)
        if kind.resource.version == kind.storage_version:
            return obj
        stored = self._catalog.stored(kind.storage_key)
        if stored is not None and stored.resource.version == kind.storage_version:
            stored.schema.prune(obj)
            stored.schema.default(obj)
        group = kind.resource.group
        obj["apiVersion"] = f"{group}/{kind.storage_version}" if group else kind.storage_version
        return obj

    def is_outdated(self, kind: ServedKind, written: int) -> bool:
        """Return whether content was written under an earlier schema.

        It must then be pruned and defaulted when it is read.
        """
        definition = self._catalog.definitions.get(kind.storage_key)
        return definition is not None and written < definition.changed_at
