"""Built-in kinds: their Schema, and how one is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import decoding, metadata, names, objectmeta, pruning
from localkube.schema.builtin.parts import struct

_QUALIFIED_FINALIZERS: Final = frozenset({"", "apps", "rbac.authorization.k8s.io"})
"""Groups whose kinds refuse finalizers without a domain."""

Prepare = Callable[[JsonObject, JsonObject | None], list[Cause]]


class BuiltinSchema:
    """Implements `localkube.model.Schema`. Defaults and rules of a kind are code (`ServedKind.prepare`), as in Go."""

    def __init__(
        self,
        openapi: JsonObject,
        resource: Resource,
        name_rule: objectmeta.NameRule | None,
        decoded: JsonObject | None = None,
    ) -> None:
        """`decoded` is the schema for decoding and pruning, if it is more detailed than the published one."""
        self._openapi = openapi
        self._decoded = decoded or openapi
        self._resource = resource
        self._name_rule = name_rule

    @property
    def openapi(self) -> JsonObject:
        return self._openapi

    def decode_error(self, obj: JsonObject) -> str | None:
        """Return the message of a 400 that names the first field of a wrong type, or None."""
        return decoding.unreadable(self._resource, decoding.mismatch(obj, self._decoded))

    def prune(self, obj: JsonObject) -> list[str]:
        dropped = pruning.prune(obj, self._pruning)
        decoding.replace_nulls(obj, self._decoded)
        return dropped

    def default(self, obj: JsonObject) -> None:
        """Do nothing: `ServedKind.prepare` fills the defaults of built-in kinds."""

    def validate(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        """Check the rules of metadata; `ServedKind.prepare` checks those of the kind."""
        meta = obj.get("metadata") or {}
        if self._name_rule is None:  # a review has no name and is not stored
            return []
        if old is not None:
            found = objectmeta.validate_update(meta, old.get("metadata") or {})
        else:
            found = objectmeta.validate_new(meta, namespaced=self._resource.namespaced, name_rule=self._name_rule)
        if self._resource.group in _QUALIFIED_FINALIZERS:
            found += objectmeta.short_finalizer_causes(meta)
        return found

    @cached_property
    def _pruning(self) -> pruning.PruneNode:
        return pruning.compile_pruning(self._decoded, root=False)


def builtin_kind(
    resource: Resource,
    component: str,
    description: str,
    fields: Mapping[str, JsonObject],
    *,
    required: Sequence[str] = (),
    name_rule: objectmeta.NameRule | None = names.dns_subdomain,
    prepare: Prepare | None = None,
    columns: Sequence[Column] = (),
    decoded_fields: Mapping[str, JsonObject] | None = None,
    **served: Any,
) -> ServedKind:
    """Return a kind with the usual envelope of apiVersion, kind and metadata around its fields."""
    envelope = {"apiVersion": metadata.API_VERSION, "kind": metadata.KIND, "metadata": metadata.OBJECT_META}
    openapi = struct(
        component,
        description,
        {**envelope, **fields},
        required=required,
        group_version_kind=[{"group": resource.group, "kind": resource.kind, "version": resource.version}],
    )
    decoded = {**openapi, "properties": {**envelope, **decoded_fields}} if decoded_fields else None
    return ServedKind(
        resource=resource,
        schema=BuiltinSchema(openapi, resource, name_rule, decoded),
        singular=resource.kind.lower(),
        list_kind=f"{resource.kind}List",
        storage_version=resource.version,
        columns=tuple(columns),
        prepare=prepare,
        **served,
    )


def review_kind(
    resource: Resource,
    component: str,
    description: str,
    fields: Mapping[str, JsonObject],
    prepare: Prepare | None = None,
) -> ServedKind:
    """Return a kind that can only be created and is never stored."""
    return builtin_kind(resource, component, description, fields, name_rule=None, prepare=prepare, verbs=("create",))


def column(name: str, read: Callable[[JsonObject], Any], **more: Any) -> Column:
    return Column(name, more.pop("type", "string"), read, **more)


def age_column() -> Column:
    return Column("Age", "date", lambda obj: obj["metadata"].get("creationTimestamp"))


def at(path: str, default: Any = None) -> Callable[[JsonObject], Any]:
    """Build a reader of a dotted path; it returns `default` if a step is missing."""
    steps = path.split(".")

    def read(obj: JsonObject) -> Any:
        value: Any = obj
        for step in steps:
            if not isinstance(value, dict) or value.get(step) is None:
                return default
            value = value[step]
        return value

    return read
