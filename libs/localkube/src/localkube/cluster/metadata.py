"""The metadata that the server owns (names, uids, times, the generation), and the special rules of built-in kinds."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import StatusError
from localkube.model import ServedKind
from localkube.storage import Record

# --- Exceptions of built-in kinds from the common behaviour of the verbs ----------------------------------------------

NAMESPACES: Final = "namespaces"
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
SERVICE_ACCOUNTS: Final = "serviceaccounts"
EVENTS: Final = "events"

_RBAC: Final = "rbac.authorization.k8s.io"
CREATED_BY_UPDATE: Final = {
    EVENTS,
    "services",
    "leases.coordination.k8s.io",
    f"roles.{_RBAC}",
    f"rolebindings.{_RBAC}",
    f"clusterroles.{_RBAC}",
    f"clusterrolebindings.{_RBAC}",
}
"""A PUT of an object that does not exist creates it."""

RETURNED_WHEN_DELETED: Final = frozenset(
    {"serviceaccounts", "services", "pods", "podtemplates", "resourcequotas", "persistentvolumeclaims"}
)
"""DELETE responds with the last state of the object instead of a Status."""

IMMORTAL_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})


def note_stored_version(definition: JsonObject) -> None:
    """Add the storage version of a CustomResourceDefinition to those in which objects may be stored."""
    status = definition.setdefault("status", {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}})
    stored = list(status.get("storedVersions") or [])
    for version in definition["spec"].get("versions") or ():
        if version.get("storage") and version.get("name") not in stored:
            stored.append(version["name"])
    status["storedVersions"] = stored


_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX: Final = 58
_COUNTED_GROUPS: Final = frozenset(
    {"apps", "batch", "networking.k8s.io", "policy", "apiextensions.k8s.io", "admissionregistration.k8s.io"}
)


def drop_empty(obj: JsonObject) -> None:
    """Remove null and empty fields of metadata in place: they mean the same as absent ones. Types are correct."""
    metadata = obj.get("metadata") or {}
    for name in ("labels", "annotations"):
        for key, value in (metadata.get(name) or {}).items():
            if value is None:
                metadata[name][key] = ""
    grace = "deletionGracePeriodSeconds"
    obj["metadata"] = {name: value for name, value in metadata.items() if value or (value == 0 and name == grace)}


def stamp_new(obj: JsonObject, kind: ServedKind, now: str) -> None:
    """Stamp uid, creation time and first generation on an object that is about to be created."""
    metadata = obj["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now
    if counts_generation(kind):
        metadata["generation"] = 1
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"])


def generated_name(prefix: str) -> str:
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))
    return prefix[:_LONGEST_PREFIX] + suffix


def carry_over(new: JsonObject, live: JsonObject) -> None:
    """Restore fields that a writer cannot change: uid, timestamps and generation come from the live object."""
    metadata, old = new["metadata"], live["metadata"]
    metadata.pop("selfLink", None)
    for name in ("creationTimestamp", "generation"):
        _copy(metadata, old, name)
    for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace"):
        if not metadata.get(name):
            _copy(metadata, old, name)
    metadata["resourceVersion"] = old["resourceVersion"]


def count_generation(new: JsonObject, live: JsonObject, kind: ServedKind) -> None:
    """Increment the generation if anything except metadata and (if it is a subresource) status has changed."""
    if not counts_generation(kind):
        return
    ignored = {"metadata", "apiVersion", "kind"}
    if "status" in kind.subresources:
        ignored.add("status")
    if _without(new, ignored) != _without(live, ignored):
        new["metadata"]["generation"] = int(live["metadata"].get("generation") or 0) + 1


def counts_generation(kind: ServedKind) -> bool:
    return kind.custom or kind.resource.group in _COUNTED_GROUPS


def with_grace_period(obj: JsonObject, source: JsonObject) -> JsonObject:
    """Keep a zero: here it is a value, although tracking drops empty metadata."""
    if "deletionGracePeriodSeconds" in source["metadata"]:
        obj["metadata"]["deletionGracePeriodSeconds"] = source["metadata"]["deletionGracePeriodSeconds"]
    return obj


def is_deleting(obj: JsonObject) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_marked(record: Record) -> bool:
    """Return whether a stored object is being deleted; checks the bytes first, because decoding is slow."""
    return b'"deletionTimestamp":' in record.body and is_deleting(record.decode())


def finalizers_of(obj: JsonObject) -> list[str]:
    return list(obj["metadata"].get("finalizers") or [])


def set_finalizers(obj: JsonObject, finalizers: list[str]) -> None:
    if finalizers:
        obj["metadata"]["finalizers"] = finalizers
    else:
        obj["metadata"].pop("finalizers", None)


def same_content(new: JsonObject, live: JsonObject) -> bool:
    """Return whether a write would change nothing except the times in managedFields."""
    if new.keys() != live.keys() or any(new[name] != live[name] for name in new if name != "metadata"):
        return False
    ours, theirs = new["metadata"], live["metadata"]
    if _without(ours, {"managedFields"}) != _without(theirs, {"managedFields"}):
        return False
    return _timeless(ours.get("managedFields")) == _timeless(theirs.get("managedFields"))


def parse_resource_version(text: str) -> int:
    """Parse a resourceVersion inside an object; the failure is a bare 500, as on the real server."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def _copy(target: JsonObject, source: Mapping[str, Any], name: str) -> None:
    if name in source:
        target[name] = source[name]
    else:
        target.pop(name, None)


def _without(obj: Mapping[str, Any], names: set[str]) -> JsonObject:
    return {name: value for name, value in obj.items() if name not in names}


def _timeless(managed: list[JsonObject] | None) -> list[JsonObject]:
    return [_without(entry, {"time"}) for entry in managed or []]
