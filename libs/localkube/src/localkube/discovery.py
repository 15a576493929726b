"""Paths beside resources: discovery (plain and aggregated), OpenAPI, version, health, and the list of all paths.

Documents are built on first request, kept until the served kinds change, and carry an ETag so that
clients can revalidate their copy.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubebase.meta import JsonObject
from localkube.cluster.catalog import Catalog
from localkube.errors import method_not_allowed, no_such_path, not_acceptable
from localkube.model import ServedKind, version_order
from localkube.schema.openapi import group_versions, openapi_document, openapi_v2, openapi_v2_bytes
from localkube.wire.http import Reply, Request
from localkube.wire.negotiation import (
    AGGREGATED,
    JSON,
    accepted,
    clauses,
    compressed,
    is_pretty,
    reply,
    wants_aggregated_discovery,
)
from localkube.wire.routes import PathTarget, Query, first

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


# --- OpenAPI documents over HTTP: the v3 index with its hashes, one v3 document for each group version, and v2 --------
# A document is built when it is first asked for and kept until its kinds change, so that adding one definition does not
# cost the documents of all others.


@dataclass(frozen=True, slots=True)
class CachedDocument:
    kinds: tuple[ServedKind, ...]
    hash: str
    body: bytes

    def is_of(self, kinds: list[ServedKind]) -> bool:
        return len(kinds) == len(self.kinds) and all(one is other for one, other in zip(kinds, self.kinds, strict=True))


class OpenApi:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._documents: dict[str, CachedDocument] = {}

    def respond(self, rest: list[str], requested_hash: str, request: Request) -> Reply | None:
        """Return the document at /openapi/{rest}, or None."""
        accepted = [clause.media for clause in clauses(request.header("Accept"))]
        if rest == ["v2"] and accepted[0] in _PROTOBUF:
            return Reply(200, openapi_v2_bytes(), _PROTOBUF[0], [("Cache-Control", "no-cache, private")])
        if not _ACCEPTED.intersection(accepted):
            raise not_acceptable(JSON)
        match rest:
            case ["v2"]:
                return _plain(openapi_v2())
            case ["v3"]:
                return _plain({"paths": self._index()})
            case ["v3", *path]:
                return self._document("/".join(path), requested_hash, request.header("If-None-Match"))
            case _:
                return None

    def _index(self) -> dict[str, dict[str, str]]:
        groups = group_versions(self._catalog)
        self._documents = {path: known for path, known in self._documents.items() if path in groups}
        return {path: {"serverRelativeURL": _url(path, self._built(path, kinds))} for path, kinds in groups.items()}

    def _document(self, path: str, requested_hash: str, known: str) -> Reply | None:
        kinds = group_versions(self._catalog).get(path)
        if kinds is None:
            return None
        document = self._built(path, kinds)
        headers = [("ETag", f'"{document.hash}"'), ("Vary", "Accept")]
        if requested_hash and requested_hash != document.hash:
            return Reply(301, headers=[*headers, ("Location", _url(path, document))])
        # A document under its hash never changes, so a client may keep it for as long as it likes.
        headers.append(("Cache-Control", "public, immutable" if requested_hash else "no-cache, private"))
        if document.hash in known:
            return Reply(304, headers=headers)
        return Reply(200, document.body, JSON, headers)

    def _built(self, path: str, kinds: list[ServedKind]) -> CachedDocument:
        known = self._documents.get(path)
        if known is None or not known.is_of(kinds):
            body = msgspec.json.encode(openapi_document(kinds))
            known = self._documents[path] = CachedDocument(tuple(kinds), hashlib.sha512(body).hexdigest().upper(), body)
        return known


_PROTOBUF = (
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",  # kubectl's spelling
)
_ACCEPTED = frozenset({JSON, "application/*", "*/*"})


def _url(path: str, document: CachedDocument) -> str:
    return f"/openapi/v3/{path}?hash={document.hash}"


def _plain(document: object) -> Reply:
    return Reply(200, msgspec.json.encode(document), JSON, [("Cache-Control", "no-cache, private")])


# --- Paths beside resources: version, health, discovery, OpenAPI, and the list of all paths at / ----------------------

MAJOR, MINOR = "1", "36"
GIT_VERSION: Final = f"v{MAJOR}.{MINOR}.0+localkube"
VERSION: Final = {
    "major": MAJOR,
    "minor": MINOR,
    "emulationMajor": MAJOR,
    "emulationMinor": MINOR,
    "minCompatibilityMajor": MAJOR,
    "minCompatibilityMinor": "35",
    "gitVersion": GIT_VERSION,
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "python",
    "platform": "linux/amd64",
}
Check = Callable[[], bool]
Action = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StaticDocument:
    """A document in one media type, which clients may cache for an hour."""

    media: str
    content: Callable[[], JsonObject]


@dataclass(frozen=True, slots=True)
class Extras:
    """Documents, checks and actions of the server, by full path (checks: by name)."""

    checks: Mapping[str, Check]
    documents: Mapping[str, StaticDocument]
    actions: Mapping[str, Action]
    """Actions, run by a POST of a user with permission for the path."""


class Paths:
    def __init__(self, discovery: Discovery, openapi: OpenApi, extras: Extras) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._checks = extras.checks
        self._documents = extras.documents
        self._actions = extras.actions

    async def respond(self, target: PathTarget, request: Request, query: Query) -> Reply:
        """Return the document at a path; 404 in plain text if there is none, as the real server has it."""
        path = target.path.rstrip("/") or "/"
        head, *rest = path[1:].split("/")
        if target.method == "POST" and path in self._actions:
            await self._actions[path]()
            return _text(200, "ok")
        known = head in {"", "api", "apis", "openapi", "version", "healthz", "livez", "readyz"}
        if (known or path in self._documents) and target.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        if path in self._documents:
            return _published(self._documents[path], request)
        match head:
            case "" if path == "/":
                return self._formed({"paths": self._discovery.paths()}, request, query)
            case "version" if not rest:
                return self._formed(VERSION, request, query)
            case "healthz" | "livez" | "readyz":
                return self._health(head, rest, query)
            case "api" | "apis":
                found = self._discover(head, rest, request)
                return self._prettied(found, request, query) if found else not_found_page()
            case "openapi":
                document = self._openapi.respond(rest, first(query, "hash"), request) or not_found_page()
                return await compressed(document, request.header("Accept-Encoding"))
            case _:
                return not_found_page()

    def _discover(self, head: str, rest: list[str], request: Request) -> Reply | None:
        known = request.header("If-None-Match")
        aggregated = wants_aggregated_discovery(request.header("Accept"))
        match head, rest:
            case "api", []:
                return self._discovery.aggregated_core(known) if aggregated else self._discovery.versions()
            case "api", [version]:
                return self._resources("", version)
            case "apis", []:
                return self._discovery.aggregated_groups(known) if aggregated else self._discovery.groups()
            case "apis", [group]:
                return self._discovery.group(group)
            case "apis", [group, version]:
                return self._resources(group, version)
            case _:
                return None

    def _resources(self, group: str, version: str) -> Reply | None:
        found = self._discovery.resources(group, version)
        if found is None and self._discovery.has_group(group):
            raise no_such_path()
        return found

    def _health(self, name: str, rest: list[str], query: Query) -> Reply:
        excluded = set(query.get("exclude", []))
        selected = [check for check in self._checks if (not rest or check == rest[0]) and check not in excluded]
        if rest and (len(rest) > 1 or rest[0] not in self._checks):
            return not_found_page()
        results = [(check, self._checks[check]()) for check in selected]
        healthy = all(passed for _, passed in results)
        if healthy and "verbose" not in query:
            return _text(200, "ok")
        return _text(200 if healthy else 500, _report(name, results, excluded & self._checks.keys(), healthy=healthy))

    def _formed(self, document: JsonObject, request: Request, query: Query) -> Reply:
        pretty = is_pretty(first(query, "pretty"), request.header("User-Agent"))
        return reply(200, document, accepted(request.header("Accept")), pretty=pretty)

    def _prettied(self, response: Reply, request: Request, query: Query) -> Reply:
        if response.body and is_pretty(first(query, "pretty"), request.header("User-Agent")):
            response.body = msgspec.json.format(response.body, indent=2) + b"\n"
        return response


def _published(document: StaticDocument, request: Request) -> Reply:
    if not any(clause.media in {document.media, "*/*"} for clause in clauses(request.header("Accept"))):
        raise not_acceptable(document.media)
    headers = [("Cache-Control", "public, max-age=3600")]
    return Reply(200, msgspec.json.encode(document.content()), document.media, headers)


def not_found_page() -> Reply:
    return _text(404, "404 page not found\n")


def _report(name: str, results: Iterable[tuple[str, bool]], excluded: Iterable[str], *, healthy: bool) -> str:
    lines = [f"[+]{check} ok" if passed else f"[-]{check} failed: reason withheld" for check, passed in results]
    lines += [f"[+]{check} excluded: ok" for check in sorted(excluded)]
    return "\n".join([*lines, f"{name} check {'passed' if healthy else 'failed'}", ""])


def _text(status: int, text: str) -> Reply:
    headers = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-cache, private")]
    return Reply(status, text.encode(), "text/plain; charset=utf-8", headers)
