"""The ClusterRoles and bindings that every cluster starts with, limited to the resources of this server.

admin, edit and view aggregate: a ClusterRole labelled rbac.authorization.k8s.io/aggregate-to-view: "true" adds to view,
and through it to edit and admin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.access.rbac import GROUP, MASTERS, aggregated, rule_json
from localkube.cluster import Cluster
from localkube.errors import StatusError
from localkube.model import User, WriteOptions

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_WORKLOADS: Final = ("daemonsets", "deployments", "replicasets", "statefulsets")
_VIEWED_CORE: Final = ("configmaps", "endpoints", "events", "pods", "serviceaccounts", "services")
_EDITED_CORE: Final = ("configmaps", "endpoints", "events", "pods", "secrets", "serviceaccounts", "services")


def cluster_roles() -> list[JsonObject]:
    """Return every built-in ClusterRole."""
    return [
        _role("cluster-admin", [_rule(("*",), ("*",), ("*",)), _paths(("*",), "*")]),
        _aggregate("admin", []),
        _aggregate("edit", ["admin"]),
        _aggregate("view", ["edit"]),
        _role("system:aggregate-to-admin", _admin_rules(), to="admin"),
        _role("system:aggregate-to-edit", _edit_rules(), to="edit"),
        _role("system:aggregate-to-view", _view_rules(), to="view"),
        _role("system:auth-delegator", _delegator_rules()),
        _role("system:basic-user", _basic_rules()),
        _role("system:discovery", [_paths(("get",), *_DISCOVERY, *_INFO)]),
        _role("system:public-info-viewer", [_paths(("get",), *_INFO)]),
        _role("system:service-account-issuer-discovery", [_paths(("get",), *_ISSUER)]),
    ]


def cluster_role_bindings() -> list[JsonObject]:
    """Return every built-in ClusterRoleBinding."""
    return [
        _binding("cluster-admin", MASTERS),
        _binding("system:basic-user", "system:authenticated"),
        _binding("system:discovery", "system:authenticated"),
        _binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
        _binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
    ]


_INFO: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
_ISSUER: Final = (
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
)


def _view_rules() -> list[JsonObject]:
    return [
        _rule(("",), (*_VIEWED_CORE, "namespaces", "services/status"), _READ),
        _rule(("apps",), (*_WORKLOADS, *(f"{kind}/status" for kind in _WORKLOADS)), _READ),
        _rule(("events.k8s.io",), ("events",), _READ),
    ]


def _edit_rules() -> list[JsonObject]:
    return [
        _rule(("",), ("secrets",), _READ),
        _rule(("",), ("serviceaccounts",), ("impersonate",)),
        _rule(("",), _EDITED_CORE, _WRITE),
        _rule(("",), ("serviceaccounts/token",), ("create",)),
        _rule(("apps",), _WORKLOADS, _WRITE),
        _rule(
            ("coordination.k8s.io",), ("leases",), ("create", "delete", "deletecollection", *_READ, "patch", "update")
        ),
    ]


def _admin_rules() -> list[JsonObject]:
    return [
        _rule(("authorization.k8s.io",), ("localsubjectaccessreviews",), ("create",)),
        _rule((GROUP,), ("rolebindings", "roles"), (*_READ, *_WRITE)),
    ]


def _delegator_rules() -> list[JsonObject]:
    return [
        _rule(("authentication.k8s.io",), ("tokenreviews",), ("create",)),
        _rule(("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
    ]


def _basic_rules() -> list[JsonObject]:
    return [
        _rule(("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("create",)),
        _rule(("authentication.k8s.io",), ("selfsubjectreviews",), ("create",)),
    ]


def _role(name: str, rules: list[JsonObject], *, to: str = "") -> JsonObject:
    labels = {f"{GROUP}/aggregate-to-{to}": "true"} if to else {}
    return {**_header("ClusterRole", name, labels), "rules": rules}


def _aggregate(name: str, feeds: Sequence[str]) -> JsonObject:
    labels = {f"{GROUP}/aggregate-to-{role}": "true" for role in feeds}
    selector = {"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}}
    return {
        **_header("ClusterRole", name, labels),
        "aggregationRule": {"clusterRoleSelectors": [selector]},
        "rules": [],
    }


def _binding(role: str, *groups: str) -> JsonObject:
    return {
        **_header("ClusterRoleBinding", role, {}),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _header(kind: str, name: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **labels},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> JsonObject:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def _paths(verbs: Sequence[str], *paths: str) -> JsonObject:
    return {"nonResourceURLs": sorted(paths), "verbs": list(verbs)}


# --- The first start of a cluster: store the built-in roles and bindings that are missing -----------------------------

_SERVER = User("system:apiserver", (MASTERS,))


async def create_default_roles(cluster: Cluster) -> None:
    """Create the missing objects; existing ones, changed by a user or not, stay untouched."""
    built_in = cluster_roles()
    rules = aggregated({role["metadata"]["name"]: role for role in built_in})
    for role in built_in:
        role["rules"] = [rule_json(rule) for rule in rules[role["metadata"]["name"]]]
    for plural, objects in (("clusterroles", built_in), ("clusterrolebindings", cluster_role_bindings())):
        kind = cluster.catalog.find(GROUP, "v1", plural)
        if kind is None:
            raise LookupError(f"{plural}.{GROUP} is not served")
        for obj in objects:
            try:
                await cluster.create(kind, "", obj, WriteOptions(_SERVER, field_manager="kube-apiserver"))
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
