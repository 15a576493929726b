"""Discovery: the served groups, versions and resources, in the plain and the aggregated form.

Documents are built on first request, kept until the served kinds change, and carry an ETag so that
clients can revalidate their copy.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from kubebase.meta import JsonObject
from localkube.cluster.catalog import Catalog
from localkube.model import ServedKind
from localkube.versions import version_order
from localkube.wire.http import Reply
from localkube.wire.negotiation import AGGREGATED, JSON

AGGREGATED_TYPE: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as={AGGREGATED}"
_SUBRESOURCE_VERBS: Final = {"token": ("create",), "finalize": ("update",), "approval": ("get", "patch", "update")}
_STORED_AS_OTHER_KIND: Final = {
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "scale": ("autoscaling", "v1", "Scale"),
}


def subresource_verbs(subresource: str) -> tuple[str, ...]:
    return _SUBRESOURCE_VERBS.get(subresource, ("get", "patch", "update"))


class Discovery:
    """The discovery documents of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._cache: dict[str, tuple[str, bytes]] = {}
        self._cached_at = -1

    def versions(self) -> Reply:
        """Return the document at /api."""
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "kubernetes.default.svc:443"}]
        document = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        return _json(document)

    def groups(self) -> Reply:
        """Return the document at /apis."""
        groups = [_group_document(name, kinds) for name, kinds in self._groups().items() if name]
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def group(self, name: str) -> Reply | None:
        """Return the document at /apis/{group}."""
        kinds = self._groups().get(name)
        if not name or not kinds:
            return None
        return _json({"kind": "APIGroup", "apiVersion": "v1", **_group_document(name, kinds)})

    def resources(self, group: str, version: str) -> Reply | None:
        """Return the document at /api/v1 or /apis/{group}/{version}."""
        kinds = [kind for kind in self._groups().get(group, []) if kind.resource.version == version]
        if not kinds:
            return None
        group_version = f"{group}/{version}" if group else version
        entries = [entry for kind in _by_plural(kinds) for entry in _plain_entries(kind)]
        header = {"kind": "APIResourceList", "apiVersion": "v1"} if group else {"kind": "APIResourceList"}
        return _json({**header, "groupVersion": group_version, "resources": entries})

    def has_group(self, name: str) -> bool:
        return name in self._groups()

    def aggregated_core(self, known: str) -> Reply:
        """Return /api in one document; 304 if the client already has it (`known` is its If-None-Match)."""
        return self.cached("/api", known, lambda: _aggregated({"": self._groups().get("", [])}), AGGREGATED_TYPE)

    def aggregated_groups(self, known: str) -> Reply:
        """Return /apis in one document."""
        named = {name: kinds for name, kinds in self._groups().items() if name}
        return self.cached("/apis", known, lambda: _aggregated(named), AGGREGATED_TYPE)

    def paths(self) -> list[str]:
        """Return the document at /, which lists all paths."""
        found = {"/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"}
        for kind in self._catalog:
            if kind.resource.group:
                found |= {f"/apis/{kind.resource.group}", kind.resource.root}
        return sorted(found)

    def cached(self, name: str, known: str, build: Callable[[], Any], content_type: str = JSON) -> Reply:
        """Return a document that changes only with the catalog, with its ETag."""
        etag, body = self._entry(name, build)
        headers = [("ETag", f'"{etag}"'), ("Vary", "Accept"), ("Cache-Control", "no-cache, private")]
        if etag in known:
            return Reply(304, b"", content_type, headers)
        return Reply(200, body, content_type, headers)

    def _entry(self, name: str, build: Callable[[], Any]) -> tuple[str, bytes]:
        if self._cached_at != self._catalog.counter:
            self._cache.clear()
            self._cached_at = self._catalog.counter
        if name not in self._cache:
            body = msgspec.json.encode(build())
            self._cache[name] = (hashlib.sha256(body).hexdigest().upper(), body)
        return self._cache[name]

    def _groups(self) -> dict[str, list[ServedKind]]:
        """Return the kinds by group: built-in groups in the order of the catalog, then those of CRDs by name."""
        groups: dict[str, list[ServedKind]] = {}
        for kind in sorted(self._catalog, key=lambda kind: (kind.custom, kind.resource.group if kind.custom else "")):
            groups.setdefault(kind.resource.group, []).append(kind)
        return groups


def _group_document(name: str, kinds: list[ServedKind]) -> JsonObject:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in _versions(kinds)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _versions(kinds: Iterable[ServedKind]) -> list[str]:
    return sorted({kind.resource.version for kind in kinds}, key=version_order)


def _by_plural(kinds: Iterable[ServedKind]) -> list[ServedKind]:
    return sorted(kinds, key=lambda kind: kind.resource.plural)


def _plain_entries(kind: ServedKind) -> list[JsonObject]:
    resource = kind.resource
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(kind.verbs),
        **_optional(kind),
    }
    if "get" in kind.verbs:
        entry["storageVersionHash"] = _storage_hash(kind)
    entries = [entry]
    for subresource in sorted(kind.subresources):
        other = _STORED_AS_OTHER_KIND.get(subresource)
        entries.append(
            {
                "name": f"{resource.plural}/{subresource}",
                "singularName": "",
                "namespaced": resource.namespaced,
                **({"group": other[0], "version": other[1]} if other else {}),
                "kind": other[2] if other else resource.kind,
                "verbs": list(subresource_verbs(subresource)),
            }
        )
    return entries


def _aggregated(groups: dict[str, list[ServedKind]]) -> JsonObject:
    items = []
    for name, kinds in groups.items():
        versions = [
            {
                "version": version,
                "resources": [
                    _aggregated_entry(kind) for kind in _by_plural(kinds) if kind.resource.version == version
                ],
                "freshness": "Current",
            }
            for version in _versions(kinds)
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": versions})
    return {"kind": AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_entry(kind: ServedKind) -> JsonObject:
    resource = kind.resource
    own = (resource.group, resource.version, resource.kind)
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": _gvk(own),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
        **_optional(kind),
    }
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": subresource,
                "responseKind": _gvk(_STORED_AS_OTHER_KIND.get(subresource, own)),
                "verbs": list(subresource_verbs(subresource)),
            }
            for subresource in sorted(kind.subresources)
        ]
    return entry


def _optional(kind: ServedKind) -> JsonObject:
    fields = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in fields.items() if values}


def _gvk(names: tuple[str, str, str]) -> JsonObject:
    return dict(zip(("group", "version", "kind"), names, strict=True))


def _storage_hash(kind: ServedKind) -> str:
    """Return a hash that changes when objects are stored in another version; the same value as the real server's."""
    text = f"{kind.resource.group}/{kind.storage_version}/{kind.resource.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _json(document: JsonObject) -> Reply:
    return Reply(200, msgspec.json.encode(document), JSON, [("Cache-Control", "no-cache, private")])
