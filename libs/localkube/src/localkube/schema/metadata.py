"""The fields of metadata: their schema, decoding errors and pruning."""

from __future__ import annotations

from typing import Final

from kubebase.meta import JsonObject
from localkube.schema.decoding import COMPONENT, GO_TYPE, mismatch, replace_nulls
from localkube.schema.pruning import compile_pruning, prune

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"


def _text(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _time(description: str) -> JsonObject:
    return {"type": "string", "format": "date-time", "description": description}


def _texts(description: str) -> JsonObject:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


_OWNER: Final[JsonObject] = {
    COMPONENT: f"{_META}.OwnerReference",
    "type": "object",
    "description": "Names an object that owns this one, in the same namespace or cluster-scoped.",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": _text("API version of the owner."),
        "kind": _text("Kind of the owner."),
        "name": _text("Name of the owner."),
        "uid": {**_text("UID of the owner."), GO_TYPE: "types.UID"},
        "controller": {"type": "boolean", "description": "Whether the owner is the managing controller."},
        "blockOwnerDeletion": {
            "type": "boolean",
            "description": "Whether foreground deletion of the owner waits for this object.",
        },
    },
}
_MANAGED: Final[JsonObject] = {
    COMPONENT: f"{_META}.ManagedFieldsEntry",
    "type": "object",
    "description": "The fields that one manager owns.",
    "properties": {
        "manager": _text("Who owns the fields."),
        "operation": _text("Apply or Update."),
        "apiVersion": _text("Version of the fields."),
        "time": _time("When the entry last changed."),
        "fieldsType": _text("Format of the fields; always FieldsV1."),
        "fieldsV1": {
            "type": "object",
            "description": "The fields as a trie.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "subresource": _text("Subresource the fields were written through."),
    },
}
OBJECT_META: Final[JsonObject] = {
    COMPONENT: f"{_META}.ObjectMeta",
    "type": "object",
    "description": "Metadata that every object has.",
    "properties": {
        "name": _text("Name, unique among objects of the kind in the namespace."),
        "generateName": _text("Prefix of a name that the server completes."),
        "namespace": _text("Namespace of the object; empty if it is cluster-scoped."),
        "selfLink": _text("No longer used."),
        "uid": {**_text("Identity of the object, never used twice."), GO_TYPE: "types.UID"},
        "resourceVersion": _text("Opaque version of the stored object, for watches and optimistic locking."),
        "generation": {"type": "integer", "format": "int64", "description": "Counts changes of the desired state."},
        "creationTimestamp": _time("When the object was created."),
        "deletionTimestamp": _time("When deletion was asked for; the object goes once its finalizers are gone."),
        "deletionGracePeriodSeconds": {
            "type": "integer",
            "format": "int64",
            "description": "Seconds granted for a graceful end.",
        },
        "labels": _texts("Keys and values to select objects by."),
        "annotations": _texts("Keys and values for tools; not for selection."),
        "ownerReferences": {
            "type": "array",
            "items": _OWNER,
            "description": "Objects this one depends on; it is collected when all of them are gone.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "finalizers": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Who must agree before the object is removed.",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "managedFields": {
            "type": "array",
            "items": _MANAGED,
            "description": "Which manager owns which fields.",
            "x-kubernetes-list-type": "atomic",
        },
    },
}
API_VERSION: Final[JsonObject] = _text("Versioned group of the kind, such as apps/v1.")
KIND: Final[JsonObject] = _text("Kind of the object.")

_PRUNING: Final = compile_pruning(OBJECT_META, root=False)


def decode_error(obj: JsonObject) -> str | None:
    """Return why the metadata of a custom resource cannot be decoded; None if it can."""
    return mismatch(obj.get("metadata"), OBJECT_META)


def prune_metadata(obj: JsonObject) -> list[str]:
    """Drop nulls and fields that metadata does not have; return the paths of the latter."""
    dropped = [f"metadata.{path}" for path in prune(obj.get("metadata"), _PRUNING)]
    replace_nulls(obj.get("metadata"), OBJECT_META)
    return dropped
