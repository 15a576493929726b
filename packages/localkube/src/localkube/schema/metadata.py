"""The fields of metadata: their schema, what decoding rejects, and what it drops."""

from __future__ import annotations

from typing import Final

from kuberun.meta import JsonObject
from localkube.schema import causes
from localkube.schema.decoding import COMPONENT, GO_TYPE, mismatch, settle_nulls
from localkube.schema.lists import embedded_resources
from localkube.schema.problems import child
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


def decode_error(obj: JsonObject, schema: JsonObject) -> str | None:
    """Why the metadata of a custom resource, or of a resource embedded in it, cannot be read; None if it can."""
    return mismatch(obj.get("metadata"), OBJECT_META) or _embedded_error(obj, schema)


def prune_metadata(obj: JsonObject, schema: JsonObject) -> list[str]:
    """Drop nulls, and fields that metadata does not have, in embedded resources too; return the paths of the latter."""
    dropped = [f"metadata.{path}" for path in _settled(obj)]
    for resource, path in embedded_resources(obj, schema):
        dropped += [f"{child(path, 'metadata')}.{name}" for name in _settled(resource)]
    return dropped


def _settled(obj: JsonObject) -> list[str]:
    dropped = prune(obj.get("metadata"), _PRUNING)
    settle_nulls(obj.get("metadata"), OBJECT_META)
    return dropped


def _embedded_error(obj: JsonObject, schema: JsonObject) -> str | None:
    for resource, path in embedded_resources(obj, schema):
        for name in ("apiVersion", "kind"):
            if name in resource and not isinstance(resource[name], str):
                return f"{child(path, name)}: {causes.invalid('', resource[name], 'must be a string').message}"
        reason = mismatch(resource.get("metadata"), OBJECT_META)
        if reason is not None:
            where = child(path, "metadata")
            return f"{where}: {causes.invalid('', resource['metadata'], reason).message}"
    return None
