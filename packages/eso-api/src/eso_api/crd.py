"""Our own kinds, and their CustomResourceDefinitions.

One `CustomKind` per kind says where its objects live, how kubectl shows them, and which type they decode to.
`CustomKind.crd()` returns the manifest; `kind()` returns what a client needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from eso_api.schema import Schema, schemas_of
from kubebase.meta import Kind, Object, Resource

T = TypeVar("T", bound=Object)

CATEGORY: Final = "external-secrets"
GENERATOR_CATEGORY: Final = "external-secrets-generators"
COMPONENT_LABEL: Final = {"external-secrets.io/component": "controller"}
PROVIDER_NAME_LABEL: Final = "external-secrets.io/provider-name"
"""On the CRDs of a provider, so that an administrator can list or delete them together."""

_READY: Final = '.status.conditions[?(@.type=="Ready")]'


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; one that is `wide` is shown only with `-o wide`."""

    name: str
    path: str
    type: str
    wide: bool = False

    def manifest(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**entry, "priority": 1} if self.wide else entry


def string_column(name: str, path: str) -> Column:
    return Column(name, path, "string")


def spec_column(name: str, field: str) -> Column:
    """Return a column for a field of the spec, or of the same path in the status if the spec leaves the field out.

    Stored objects contain no defaults, so the operator reports them in the status. The wildcard stands for `spec` and
    `status`: a JSONPath has no other means to try two places.
    """
    return string_column(name, f".*.{field}")


def time_column(name: str, path: str) -> Column:
    return Column(name, path, "date")


def age_column(name: str) -> Column:
    return Column(name, ".metadata.creationTimestamp", "date")


def ready_reason(name: str) -> Column:
    return Column(name, f"{_READY}.reason", "string")


def ready_status(name: str) -> Column:
    return Column(name, f"{_READY}.status", "string")


_CAUSE: Final = Column("Message", f"{_READY}.message", "string", wide=True)
"""Every kind that shows whether it is ready also shows why."""


@dataclass(frozen=True, slots=True)
class CustomKind(Generic[T]):
    """One kind that we define. The first version is the stored one; all versions have the same schema."""

    type: type[T]
    group: str
    plural: str
    versions: tuple[str, ...]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = (CATEGORY,)
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    status: bool = True

    def __post_init__(self) -> None:
        if not self.versions:
            raise ValueError(f"{self.type.__name__} needs a version")

    def __hash__(self) -> int:
        """Hash the identity only: a hash of all columns costs more than the lookups that need it."""
        return hash((self.group, self.plural))

    @property
    def name(self) -> str:
        """Return the kind as spelled in manifests."""
        return self.type.__name__

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.group}"

    def resource(self, version: str = "") -> Resource:
        """Return the resource in one version, or in the stored one."""
        version = version or self.versions[0]
        if version not in self.versions:
            raise ValueError(f"{self.name} of {self.group} has no version {version}; it has {', '.join(self.versions)}")
        return Resource(self.group, version, self.plural, self.name, self.namespaced)

    def kind(self, version: str = "") -> Kind[T]:
        """Return the resource with the type its objects decode to."""
        return Kind(self.resource(version), self.type)

    def crd(self) -> dict[str, Any]:
        """Return the CustomResourceDefinition as plain JSON."""
        (crd,) = crds([self])
        return crd

    def crd_with(self, schema: Schema) -> dict[str, Any]:
        """Return the CustomResourceDefinition with the schema of its type."""
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.crd_name, "labels": dict(COMPONENT_LABEL)},
            "spec": {
                "group": self.group,
                "names": self._names(),
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "versions": [self._version(version, _top_level(schema)) for version in self.versions],
            },
        }

    def _names(self) -> dict[str, Any]:
        names: dict[str, Any] = {
            "kind": self.name,
            "listKind": f"{self.name}List",
            "plural": self.plural,
            "singular": self.name.lower(),
            "categories": list(self.categories),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        return names

    def _version(self, version: str, schema: Schema) -> dict[str, Any]:
        stored = version == self.versions[0]
        entry: dict[str, Any] = {"name": version, "served": True, "storage": stored}
        if not stored:
            entry["deprecated"] = True
            entry["deprecationWarning"] = (
                f"{self.group}/{version} {self.name} is served for older manifests; use {self.versions[0]}"
            )
        if self.columns:
            cause = [_CAUSE] if any(column.path.startswith(_READY) for column in self.columns) else []
            entry["additionalPrinterColumns"] = [column.manifest() for column in (*self.columns, *cause)]
        if self.selectable_fields and stored:
            entry["selectableFields"] = [{"jsonPath": path} for path in self.selectable_fields]
        if self.status:
            entry["subresources"] = {"status": {}}
        entry["schema"] = {"openAPIV3Schema": schema if stored else _without_descriptions(schema)}
        return entry


def crds(kinds: Iterable[CustomKind[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the CustomResourceDefinition of each kind as plain JSON; faster than one after the other."""
    wanted = tuple(kinds)
    for kind, schema in zip(wanted, schemas_of([kind.type for kind in wanted]), strict=True):
        yield kind.crd_with(schema)


def _without_descriptions(schema: Schema) -> Schema:
    """Return the schema without descriptions, to save bytes: one explanation is enough, and a CRD must stay small."""
    bare = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in bare:
        bare["properties"] = {name: _without_descriptions(value) for name, value in bare["properties"].items()}
    for nested in ("items", "additionalProperties"):
        if nested in bare:
            bare[nested] = _without_descriptions(bare[nested])
    return bare


def _top_level(schema: Schema) -> Schema:
    """Return the schema of a whole object, without metadata, which Kubernetes itself describes."""
    properties = schema["properties"] | {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return {**schema, "properties": properties}
