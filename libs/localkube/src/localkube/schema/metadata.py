"""The fields of metadata: their schema, decoding errors, pruning, values, and what names may look like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes
from localkube.schema.decoding import COMPONENT, GO_TYPE, mismatch, replace_nulls
from localkube.schema.pruning import compile_pruning, prune

# --- The syntax of names, labels, annotation keys and config keys; each check returns its error messages --------------
# The texts are those of kube-apiserver. The patterns are linear in the input, so the standard `re` is safe here.


_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = _LABEL + r"(\." + _LABEL + ")*"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_KEY_NAME})?"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_DNS1035_RE: Final = re.compile(_DNS1035)
_KEY_NAME_RE: Final = re.compile(_KEY_NAME)
_LABEL_VALUE_RE: Final = re.compile(_LABEL_VALUE)
_CONFIG_KEY_RE: Final = re.compile(_CONFIG_KEY)

_ENDS: Final = "and must start and end with an alphanumeric character"
_KEY_CHARACTERS: Final = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"


def dns_label(value: str) -> list[str]:
    messages = _length(value, 63)
    if _LABEL_RE.fullmatch(value) is None:
        if _SUBDOMAIN_RE.fullmatch(value):
            messages.append("must not contain dots")
        else:
            what = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}"
            messages.append(_pattern(what, _LABEL, "my-name", "123-abc"))
    return messages


def dns_subdomain(value: str) -> list[str]:
    messages = _length(value, 253)
    if _SUBDOMAIN_RE.fullmatch(value) is None:
        what = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}"
        messages.append(_pattern(what, _SUBDOMAIN, "example.com"))
    return messages


def dns1035_label(value: str) -> list[str]:
    messages = _length(value, 63)
    if _DNS1035_RE.fullmatch(value) is None:
        what = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
            "character, and end with an alphanumeric character"
        )
        messages.append(_pattern(what, _DNS1035, "my-name", "abc-123"))
    return messages


def path_segment(value: str) -> list[str]:
    """Check a name of an RBAC object: anything that can be one segment of a URL path."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return [f"may not contain '{mark}'" for mark in ("/", "%") if mark in value]


def qualified_name(value: str) -> list[str]:
    """Check a label key: an optional DNS subdomain and a slash, then a name."""
    prefix, slash, name = value.rpartition("/")
    messages: list[str] = []
    if "/" in prefix:
        what = _pattern(_KEY_CHARACTERS, _KEY_NAME, "MyName", "my.name", "123-abc")
        return [
            f"a valid label key {what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        ]
    if slash:
        wrong = dns_subdomain(prefix) if prefix else [_EMPTY]
        messages += [f"prefix part {message}" for message in wrong]
    if not name:
        messages.append(f"name part {_EMPTY}")
    messages += [f"name part {message}" for message in _length(name, 63, "bytes")]
    if _KEY_NAME_RE.fullmatch(name) is None:
        messages.append("name part " + _pattern(_KEY_CHARACTERS, _KEY_NAME, "MyName", "my.name", "123-abc"))
    return messages


def label_value(value: str) -> list[str]:
    messages = _length(value, 63, "bytes")
    if _LABEL_VALUE_RE.fullmatch(value) is None:
        what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', " + _ENDS
        messages.append(_pattern(what, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return messages


def config_key(value: str) -> list[str]:
    """Check a key of a Secret's or ConfigMap's data."""
    messages = _length(value, 253)
    if _CONFIG_KEY_RE.fullmatch(value) is None:
        what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        messages.append(_pattern(what, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if value == ".":
        messages.append("must not be '.'")
    elif value == "..":
        messages.append("must not be '..'")
    elif value.startswith(".."):
        messages.append("must not start with '..'")
    return messages


_EMPTY: Final = "must be non-empty"


def _length(value: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(value.encode()) > limit else []


def _pattern(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


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


# --- Rules of metadata that hold for every kind: names, labels, annotations, finalizers, owners -----------------------
# The verbs check their own fields, which are not here:
# resourceVersion, uid, generation and timestamps.


NameRule = Callable[[str], list[str]]

ANNOTATIONS_LIMIT: Final = 256 * 1024
_IMMUTABLE: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_OWNER_NEEDS: Final = (("kind", "must not be empty"), ("name", "must not be empty"), ("uid", "must not be empty"))
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", _ORPHAN, _FOREGROUND})


def validate_new(meta: JsonObject, *, namespaced: bool, name_rule: NameRule, path: str = "metadata") -> list[Cause]:
    """Check the metadata of an object that is about to be created."""
    return [
        *_name_causes(meta, name_rule, path),
        *_namespace_causes(meta, namespaced=namespaced, path=path),
        *_shared_causes(meta, path),
        *_finalizer_causes(meta.get("finalizers") or [], f"{path}.finalizers"),
    ]


def validate_update(meta: JsonObject, old: JsonObject, path: str = "metadata") -> list[Cause]:
    """Check the metadata of an object that replaces `old`."""
    found: list[Cause] = []
    if old.get("deletionTimestamp"):
        added = sorted(set(meta.get("finalizers") or []) - set(old.get("finalizers") or []))
        if added:
            listed = "[]string{" + ", ".join(causes.go_quote(name) for name in added) + "}"
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
            found.append(causes.forbidden(f"{path}.finalizers", detail))
    found += [
        causes.invalid(f"{path}.{field}", meta.get(field), "field is immutable")
        for field in _IMMUTABLE
        if (meta.get(field) or "") != (old.get(field) or "")
    ]
    return [*found, *_shared_causes(meta, path)]


def short_finalizer_causes(meta: JsonObject, path: str = "metadata") -> Iterator[Cause]:
    """Refuse finalizers without a domain, except those of Kubernetes; not every kind checks this."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    for index, finalizer in enumerate(meta.get("finalizers") or []):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not qualified_name(finalizer):
            yield causes.invalid(f"{path}.finalizers[{index}]", finalizer, detail)


def label_causes(labels: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for key, value in labels.items():
        for message in qualified_name(key):
            yield causes.invalid(path, key, message)
        for message in label_value(value):
            yield causes.invalid(path, value, message)


def _name_causes(meta: JsonObject, rule: NameRule, path: str) -> Iterator[Cause]:
    prefix = meta.get("generateName") or ""
    # A generated name gets a suffix, so a prefix may end with a dash.
    masked = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
    for message in rule(masked) if prefix else []:
        yield causes.invalid(f"{path}.generateName", prefix, message)
    name = meta.get("name") or ""
    if not name:
        yield causes.required(f"{path}.name", "name or generateName is required")
    for message in rule(name) if name else []:
        yield causes.invalid(f"{path}.name", name, message)


def _namespace_causes(meta: JsonObject, *, namespaced: bool, path: str) -> Iterator[Cause]:
    namespace = meta.get("namespace") or ""
    if not namespaced:
        if namespace:
            yield causes.forbidden(f"{path}.namespace", "not allowed on this type")
    elif not namespace:
        yield causes.required(f"{path}.namespace")
    else:
        for message in dns_label(namespace):
            yield causes.invalid(f"{path}.namespace", namespace, message)


def _shared_causes(meta: JsonObject, path: str) -> Iterator[Cause]:
    if labels := meta.get("labels"):
        yield from label_causes(labels, f"{path}.labels")
    if annotations := meta.get("annotations"):
        yield from _annotation_causes(annotations, f"{path}.annotations")
    if owners := meta.get("ownerReferences"):
        yield from _owner_causes([owner or {} for owner in owners], f"{path}.ownerReferences")


def _annotation_causes(annotations: Mapping[str, str], path: str) -> Iterator[Cause]:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len((value or "").encode())
        for message in qualified_name(key.lower()):
            yield causes.invalid(path, key, message)
    if size > ANNOTATIONS_LIMIT:
        yield causes.too_long(path, ANNOTATIONS_LIMIT)


def _owner_causes(owners: list[JsonObject], path: str) -> Iterator[Cause]:
    controller = ""
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        if not api_version.rpartition("/")[2]:
            yield causes.invalid(f"{path}.apiVersion", api_version, "version must not be empty")
        for field, detail in _OWNER_NEEDS:
            if not owner.get(field):
                yield causes.invalid(f"{path}.{field}", "", detail)
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            yield causes.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            this = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {this}'
                )
                yield causes.invalid(path, _in_order(owners), detail)
            controller = controller or this


def _in_order(owners: list[JsonObject]) -> causes.Verbatim:
    """Return the references with their fields in the order of the real server."""
    shown = [{name: owner[name] for name in _OWNER_FIELDS if name in owner} for owner in owners]
    return causes.Verbatim(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


def _finalizer_causes(finalizers: list[str], path: str) -> Iterator[Cause]:
    for finalizer in finalizers:
        for message in qualified_name(finalizer):
            yield causes.invalid(path, finalizer, message)
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield causes.invalid(path, finalizers, f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set")
