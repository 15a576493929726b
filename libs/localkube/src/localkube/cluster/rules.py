"""Exceptions of built-in kinds from the common behaviour of the verbs."""

from __future__ import annotations

from typing import Final

from kubebase.meta import JsonObject

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
