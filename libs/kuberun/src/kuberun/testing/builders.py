"""Small objects for tests: a test shows only the fields it is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kubebase.meta import JsonObject, ObjectKey, ObjectMeta, Resource

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
WIDGETS = Resource("example.com", "v1", "widgets", "Widget")


def key(name: str = "one", namespace: str = "default") -> ObjectKey:
    return ObjectKey(namespace, name)


def metadata(name: str = "one", namespace: str = "default", **fields: Any) -> ObjectMeta:
    """Build metadata as a server would have filled it in."""
    return ObjectMeta(**{"name": name, "namespace": namespace, "uid": f"uid-{name}", "resource_version": "1", **fields})


def document(resource: Resource, name: str = "one", namespace: str = "default", **fields: Any) -> JsonObject:
    """Build a plain object; keyword arguments are its top-level fields, `metadata` is merged."""
    named: JsonObject = {"name": name}
    if resource.namespaced:
        named["namespace"] = namespace
    extra = fields.pop("metadata", {})
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {**named, **extra},
        **fields,
    }


def config_map(name: str = "one", namespace: str = "default", data: Mapping[str, str] | None = None) -> JsonObject:
    return document(CONFIG_MAPS, name, namespace, data=dict(data or {}))


def widget_crd() -> JsonObject:
    """Build a CRD with a status subresource and free-form fields, for tests on a live server."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
        "subresources": {"status": {}},
    }
    names = {"plural": WIDGETS.plural, "singular": "widget", "kind": WIDGETS.kind, "listKind": "WidgetList"}
    return document(
        CUSTOM_RESOURCE_DEFINITIONS,
        f"{WIDGETS.plural}.{WIDGETS.group}",
        spec={"group": WIDGETS.group, "scope": "Namespaced", "names": names, "versions": [version]},
    )


def kubeconfig(
    file: Path, user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None, **fields: Any
) -> Path:
    """Write a kubeconfig with the one context `main`; keyword arguments replace top-level fields."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://kube.test:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "current-context": "main",
        **fields,
    }
    file.write_text(yaml.safe_dump(config))
    return file
