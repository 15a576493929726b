"""Helpers to write schemas of built-in kinds: text, integer, struct, map_list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.schema.decoding import COMPONENT, DESCRIPTION, GO_TIME, GO_TYPE, MICRO_TIME

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
