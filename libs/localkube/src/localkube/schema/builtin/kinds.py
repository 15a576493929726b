"""Built-in kinds: their Schema, how one is declared, and the parts of schemas that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind
from localkube.schema import decoding, metadata, pruning
from localkube.schema.decoding import COMPONENT, DESCRIPTION, GO_TIME, GO_TYPE, MICRO_TIME

# --- Helpers to write schemas of built-in kinds: text, integer, struct, map_list --------------------------------------

CORE: Final = "io.k8s.api.core.v1"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"


def text(description: str, *, go_type: str = "", enum: Sequence[str] = ()) -> JsonObject:
    found: JsonObject = {"type": "string", "description": description}
    if go_type:
        found[GO_TYPE] = go_type
    if enum:
        found["enum"] = list(enum)
    return found


def integer(description: str, width: str = "int32") -> JsonObject:
    return {"type": "integer", "format": width, "description": description}


def boolean(description: str) -> JsonObject:
    return {"type": "boolean", "description": description}


def time(description: str) -> JsonObject:
    return {"type": "string", "format": "date-time", "description": description}


def micro_time(description: str) -> JsonObject:
    return {"type": "string", "format": "date-time", "description": description, GO_TIME: MICRO_TIME}


def int_or_text(description: str) -> JsonObject:
    return {"x-kubernetes-int-or-string": True, "description": description, "format": "int-or-string"}


def texts(description: str) -> JsonObject:
    """Return a map from strings to strings."""
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def secrets(description: str) -> JsonObject:
    """Return a map from strings to base64."""
    value = {"type": "string", "format": "byte"}
    return {"type": "object", "additionalProperties": value, "description": description}


def anything(description: str, *, go_type: str = "map[string]interface {}") -> JsonObject:
    """Return an object whose fields are kept as they are."""
    kept = {"x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "description": description, GO_TYPE: go_type, **kept}


def items(item: JsonObject, description: str, kind: str = "atomic") -> JsonObject:
    """Return a list that is replaced as a whole, or (kind `set`) merged by value."""
    return {"type": "array", "items": item, "description": description, "x-kubernetes-list-type": kind}


def map_list(
    item: JsonObject, keys: Sequence[str], description: str, *, merge_key: str = "", strategy: str = "merge"
) -> JsonObject:
    """Return a list whose items are identified by key fields, in server-side apply and in strategic merge patches."""
    return {
        "type": "array",
        "items": item,
        "description": description,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "x-kubernetes-patch-merge-key": merge_key or keys[0],
        "x-kubernetes-patch-strategy": strategy,
    }


def struct(
    component: str,
    description: str,
    fields: Mapping[str, JsonObject],
    *,
    required: Sequence[str] = (),
    **extensions: Any,
) -> JsonObject:
    """Return an object with named fields; `component` is its name in OpenAPI documents."""
    found: JsonObject = {COMPONENT: component, "type": "object", "description": description, "properties": dict(fields)}
    if required:
        found["required"] = list(required)
    for name, value in extensions.items():
        found["x-kubernetes-" + name.replace("_", "-")] = value
    return found


def described(schema: JsonObject, description: str) -> JsonObject:
    """Copy a schema with the description of the field that uses it."""
    return {**schema, "description": description, DESCRIPTION: schema["description"]}


LABEL_SELECTOR: Final = struct(
    f"{META}.LabelSelector",
    "Selects objects by their labels; all requirements must hold.",
    {
        "matchLabels": texts("Labels and the values they must have."),
        "matchExpressions": items(
            struct(
                f"{META}.LabelSelectorRequirement",
                "One requirement on a label.",
                {
                    "key": text("The label."),
                    "operator": text("In, NotIn, Exists or DoesNotExist."),
                    "values": items({"type": "string"}, "Values for In and NotIn."),
                },
                required=["key", "operator"],
            ),
            "Requirements on labels.",
        ),
    },
    map_type="atomic",
)
LOCAL_REFERENCE: Final = struct(
    f"{CORE}.LocalObjectReference",
    "Names an object in the same namespace.",
    {"name": {**text("Name of the object."), "default": ""}},
    map_type="atomic",
)
OBJECT_REFERENCE: Final = struct(
    f"{CORE}.ObjectReference",
    "Points to an object.",
    {
        "apiVersion": text("API version of the object."),
        "kind": text("Kind of the object."),
        "name": text("Name of the object."),
        "namespace": text("Namespace of the object."),
        "uid": text("UID of the object.", go_type="types.UID"),
        "resourceVersion": text("Version of the object that is meant."),
        "fieldPath": text("A part of the object, such as spec.containers{web}."),
    },
    map_type="atomic",
)


def conditions(component: str) -> JsonObject:
    """Return the schema of status.conditions."""
    condition = struct(
        component,
        "One aspect of the object's state.",
        {
            "type": text("What the condition is about."),
            "status": text("True, False or Unknown."),
            "reason": text("Why, in one word for machines."),
            "message": text("Why, for people."),
            "lastTransitionTime": time("When the status last changed."),
            "lastUpdateTime": time("When the condition was last written."),
            "lastProbeTime": time("When the condition was last checked."),
            "observedGeneration": integer("The generation the condition is about.", "int64"),
        },
        required=["type", "status"],
    )
    return map_list(condition, ["type"], "What is known about the object's state.")


_QUALIFIED_FINALIZERS: Final = frozenset({"", "apps", "rbac.authorization.k8s.io"})
"""Groups whose kinds refuse finalizers without a domain."""

Prepare = Callable[[JsonObject, JsonObject | None], list[Cause]]


class BuiltinSchema:
    """Implements `localkube.model.Schema`. Defaults and rules of a kind are code (`ServedKind.prepare`), as in Go."""

    def __init__(
        self,
        openapi: JsonObject,
        resource: Resource,
        name_rule: metadata.NameRule | None,
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
            found = metadata.validate_update(meta, old.get("metadata") or {})
        else:
            found = metadata.validate_new(meta, namespaced=self._resource.namespaced, name_rule=self._name_rule)
        if self._resource.group in _QUALIFIED_FINALIZERS:
            found += metadata.short_finalizer_causes(meta)
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
    name_rule: metadata.NameRule | None = metadata.dns_subdomain,
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
