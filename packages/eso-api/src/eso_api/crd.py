"""From types to CustomResourceDefinitions, as JSON and as YAML.

One `CustomKind` for each kind says where its objects live, how kubectl shows them, and which type they decode to.
`CustomKind.crd()` returns the manifest; `kind()` returns what a client needs. Schemas come from the types of the kinds
(`msgspec.inspect`), their shapes and rules, and the docstrings of their fields: structural schemas without references
and defaults, which the API server checks, prunes and explains.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import inspect as types

from eso_api.references import GENERATORS_GROUP
from eso_api.shapes import Fragment, Rule
from kubebase.meta import Kind, Object, Resource

Schema = dict[str, Any]


class UnsupportedTypeError(TypeError):
    """The type of a field has no structural schema. Raised while generating, never at run time."""


def schema_of(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema of one struct, as an object."""
    (schema,) = schemas_of([struct])
    return schema


def schemas_of(structs: Sequence[type[msgspec.Struct]]) -> list[Schema]:
    """Return the schema of each struct. Types that several of them have in common are inspected once."""
    writer = _Writer()
    # Copies, because shared parts would change together.
    return [msgspec.json.decode(msgspec.json.encode(schema)) for schema in writer.of_structs(structs)]


class _Writer:
    """Writes schemas, each struct's once."""

    def __init__(self) -> None:
        self._known: dict[type, Schema] = {}

    def of_structs(self, structs: Sequence[type[msgspec.Struct]]) -> Iterator[Schema]:
        for info in types.multi_type_info(structs):
            assert isinstance(info, types.StructType)  # noqa: S101 - what msgspec says of a struct
            yield self._of_struct(info)

    def _of(self, type_: types.Type) -> Schema:
        match type_:
            case types.Metadata():
                return self._of_annotated(type_)
            case types.StructType():
                return self._of_struct(type_)
            case types.StrType():
                return {"type": "string"}
            case types.IntType():
                return {"type": "integer"}
            case types.BoolType():
                return {"type": "boolean"}
            case types.FloatType():
                return {"type": "number"}
            case types.ListType(item_type=item):
                return {"type": "array", "items": self._of(item)}
            case types.DictType(value_type=types.AnyType()):
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            case types.DictType(value_type=value):
                return {"type": "object", "additionalProperties": self._of(value)}
            case types.AnyType():
                return {"x-kubernetes-preserve-unknown-fields": True}
            case types.UnionType(types=members):
                return self._of_union([member for member in members if not isinstance(member, types.NoneType)])
            case _:
                raise UnsupportedTypeError(f"no schema for {type_}")

    def _of_annotated(self, annotated: types.Metadata) -> Schema:
        fragment = (annotated.extra or {}).get("fragment")
        inner = self._of_fragment(fragment) if fragment else self._of(annotated.type)
        return {**inner, **(annotated.extra_json_schema or {})}

    def _of_fragment(self, fragment: type[msgspec.Struct]) -> Schema:
        return self._known.get(fragment) or next(self.of_structs([fragment]))

    def _of_union(self, members: list[types.Type]) -> Schema:
        if len(members) == 1:
            return self._of(members[0])
        if {type(member) for member in members} == {types.IntType, types.StrType}:
            return {"x-kubernetes-int-or-string": True}
        raise UnsupportedTypeError(f"no schema for a union of {members}")

    def _of_struct(self, info: types.StructType) -> Schema:
        if info.cls not in self._known:
            self._known[info.cls] = self._new_schema(info)
        return self._known[info.cls]

    def _new_schema(self, info: types.StructType) -> Schema:
        described = _field_docs(info.cls)
        properties = {}
        for field in sorted(info.fields, key=lambda field: field.encode_name):
            schema = self._of(field.type)
            if text := described.get(field.name) or schema.get("description"):
                schema = {"description": text, **{key: value for key, value in schema.items() if key != "description"}}
            properties[field.encode_name] = schema
        schema = {"description": _summary(info.cls), "type": "object"}
        if required := sorted(field.encode_name for field in info.fields if field.required):
            schema["required"] = required
        if properties:
            schema["properties"] = properties
        if issubclass(info.cls, Fragment):
            schema |= info.cls.SHAPE
            if info.cls.RULES:
                schema["x-kubernetes-validations"] = [_of_rule(rule) for rule in info.cls.RULES]
        return schema


def _of_rule(rule: Rule) -> Schema:
    schema = {"rule": rule.expression, "message": rule.message}
    if not rule.cases:
        return schema
    *others, last = rule.cases
    # Evaluated only when the rule is violated.
    texts = "".join(f"!({case.expression}) ? '{case.message}' : " for case in others)
    return {**schema, "messageExpression": f"{texts}'{last.message}'"}


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or cls.__name__).split("\n\n")[0].replace("\n", " ")


def _field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings of the fields, including those of base classes. Only the source has them."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _module_docs(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _module_docs(module: str) -> dict[str, dict[str, str]]:
    source = getattr(sys.modules.get(module), "__file__", None)
    if source is None or not source.endswith(".py"):
        return {}
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    return {node.name: _class_docs(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_docs(node: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
            case _:
                pass
    return docs


T = TypeVar("T", bound=Object)

CATEGORY: Final = "external-secrets"
GENERATOR_CATEGORY: Final = "external-secrets-generators"
GENERATOR_CATEGORIES: Final = (CATEGORY, GENERATOR_CATEGORY)
COMPONENT_LABEL: Final = {"external-secrets.io/component": "controller"}
PROVIDER_NAME_LABEL: Final = "external-secrets.io/provider-name"
"""On the CRDs of a provider, so that an administrator can list or delete them together."""
MEMBER_LABEL: Final = "external-secrets.io/replica-of"
"""On every Lease that says that a process of an operator works; its value is the name of the election."""

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
    name: str = ""
    """The kind as spelled in manifests; absent means the name of the type."""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = (CATEGORY,)
    columns: tuple[Column, ...] = ()
    selectable_fields: tuple[str, ...] = ()
    status: bool = True

    def __post_init__(self) -> None:
        if not self.versions:
            raise ValueError(f"{self.type.__name__} needs a version")
        if not self.name:
            object.__setattr__(self, "name", self.type.__name__)

    def __hash__(self) -> int:
        """Hash the identity only: a hash of all columns costs more than the lookups that need it."""
        return hash((self.group, self.plural))

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


def generator_kind(type_: type[T], plural: str) -> CustomKind[T]:
    """Define a namespaced generator. As existing clients expect, it has a status subresource, which stays empty."""
    return CustomKind(
        type_, group=GENERATORS_GROUP, plural=plural, versions=("v1alpha1",), categories=GENERATOR_CATEGORIES
    )


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


def crd_yaml(kind: CustomKind[Any], *, provider: str = "") -> str:
    """Return one CRD as a YAML document, without a separator; that of a provider's kind has a label with its name."""
    import yaml  # operators and providers import this module and never write YAML

    class Dumper(yaml.CSafeDumper):
        """Writes equal parts in full instead of as aliases, which are hard to read."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class asks for each value
            return True

    crd = kind.crd()
    if provider:
        crd["metadata"]["labels"][PROVIDER_NAME_LABEL] = provider
    return yaml.dump(crd, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
