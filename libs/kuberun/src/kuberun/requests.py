"""Every verb of the Kubernetes API as a plain value, built before anything is sent.

Pure: `client` builds these requests, `transport` sends them. Only this module maps verbs to HTTP.

    get, list, watch          GET
    create                    POST    on the collection (or on a subresource)
    update                    PUT
    patch                     PATCH   the content type says which kind of patch
    delete, delete_collection DELETE  options travel in the body
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kubebase.meta import ObjectKey, Resource
from kuberun.errors import ImpossibleName

DEFAULT_DEADLINE: Final = 30.0
"""Seconds for one call, from connecting to the last byte of the response."""
LIST_DEADLINE: Final = 120.0
WATCH_SLACK: Final = 15.0
"""Seconds by which a watch may outlive the timeout it requested from the server."""
WATCH_IDLE: Final = 120.0
"""Seconds of silence after which a watch counts as dead. Bookmarks arrive about once a minute."""


class Metadata(StrEnum):
    """How much of each object the server should send."""

    FULL = "application/json"
    ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class PatchType(StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"  # JSON is YAML


class FieldValidation(StrEnum):
    """How the server treats unknown fields."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class Propagation(StrEnum):
    """What happens to the objects that a deleted object owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write."""

    field_manager: str = ""
    field_validation: FieldValidation | None = None
    dry_run: bool = False

    def query(self) -> tuple[tuple[str, str], ...]:
        return _pairs(
            dryRun="All" if self.dry_run else "",
            fieldManager=self.field_manager,
            fieldValidation=self.field_validation or "",
        )


PLAIN: Final = WriteOptions()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Preconditions of a deletion, and what happens to the dependants."""

    uid: str = ""
    resource_version: str = ""
    propagation: Propagation | None = None
    grace_period_seconds: int | None = None
    dry_run: bool = False

    def body(self) -> bytes | None:
        preconditions = dict(_pairs(uid=self.uid, resourceVersion=self.resource_version))
        options: dict[str, Any] = {
            "preconditions": preconditions or None,
            "propagationPolicy": self.propagation,
            "gracePeriodSeconds": self.grace_period_seconds,
            "dryRun": ["All"] if self.dry_run else None,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", **given}) if given else None


ANY: Final = DeleteOptions()


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected objects of a resource; everything by default."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def query(self) -> tuple[tuple[str, str], ...]:
        return _pairs(labelSelector=self.label_selector, fieldSelector=self.field_selector)


ALL: Final = Selection()


class Request(msgspec.Struct, frozen=True):
    """One HTTP request. Its repr omits the body, which may contain secrets."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    accept: str = Metadata.FULL
    content_type: str = "application/json"
    body: bytes | None = None
    compressed: bool = False  # whether the response may be gzipped; worth it for lists only
    deadline: float = DEFAULT_DEADLINE
    idle: float | None = None  # longest silence of a stream, in seconds

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target})"

    @property
    def target(self) -> str:
        """Return path and query as sent on the wire."""
        if not self.query:
            return self.path
        return f"{self.path}?{'&'.join([f'{name}={_encoded(value)}' for name, value in self.query])}"

    @property
    def where(self) -> str:
        """Return the request for messages: method and path, without the body."""
        return f"{self.method} {self.path}"


def get(resource: Resource, key: ObjectKey, *, subresource: str = "", metadata: Metadata = Metadata.FULL) -> Request:
    return Request("GET", object_path(resource, key, subresource), accept=metadata)


def list_page(
    resource: Resource,
    selection: Selection = ALL,
    *,
    limit: int = 0,
    continue_token: str = "",
    resource_version: str = "",
    metadata: Metadata = Metadata.FULL,
) -> Request:
    """Build the request for one page. The token of a continued list contains the version, so none is sent with it."""
    paging = _pairs(
        limit=str(limit) if limit else "",
        **{"continue": continue_token},
        resourceVersion="" if continue_token else resource_version,
    )
    path = collection_path(resource, selection.namespace)
    query = selection.query() + paging
    return Request("GET", path, query, accept=metadata, compressed=True, deadline=LIST_DEADLINE)


def watch(
    resource: Resource,
    selection: Selection = ALL,
    *,
    resource_version: str,
    timeout_seconds: int,
    allow_bookmarks: bool = True,
    metadata: Metadata = Metadata.FULL,
) -> Request:
    query = selection.query() + _pairs(
        watch="true",
        resourceVersion=resource_version,
        timeoutSeconds=str(timeout_seconds),
        allowWatchBookmarks="true" if allow_bookmarks else "",
    )
    path = collection_path(resource, selection.namespace)
    return Request("GET", path, query, accept=metadata, deadline=timeout_seconds + WATCH_SLACK, idle=WATCH_IDLE)


def create(
    resource: Resource,
    namespace: str,
    body: bytes,
    *,
    options: WriteOptions = PLAIN,
    metadata: Metadata = Metadata.FULL,
) -> Request:
    if resource.namespaced and not namespace:
        raise ValueError(f"{resource} live in a namespace: the new object has none")
    path = collection_path(resource, namespace)
    return Request("POST", path, options.query(), accept=metadata, body=body)


def create_subresource(
    resource: Resource, key: ObjectKey, subresource: str, body: bytes, *, options: WriteOptions = PLAIN
) -> Request:
    return Request("POST", object_path(resource, key, subresource), options.query(), body=body)


def update(
    resource: Resource, key: ObjectKey, body: bytes, *, subresource: str = "", options: WriteOptions = PLAIN
) -> Request:
    return Request("PUT", object_path(resource, key, subresource), options.query(), body=body)


def patch(
    resource: Resource,
    key: ObjectKey,
    body: bytes,
    patch_type: PatchType,
    *,
    subresource: str = "",
    options: WriteOptions = PLAIN,
    force: bool = False,
    metadata: Metadata = Metadata.FULL,
) -> Request:
    """Build a patch. `force` takes over fields that other managers own; it is valid for apply patches only."""
    query = options.query() + _pairs(force="true" if force else "")
    path = object_path(resource, key, subresource)
    return Request("PATCH", path, query, accept=metadata, content_type=patch_type, body=body)


def delete(resource: Resource, key: ObjectKey, options: DeleteOptions = ANY) -> Request:
    return Request("DELETE", object_path(resource, key), body=options.body())


def delete_collection(resource: Resource, selection: Selection, options: DeleteOptions = ANY) -> Request:
    path = collection_path(resource, selection.namespace)
    return Request("DELETE", path, selection.query(), body=options.body(), deadline=LIST_DEADLINE)


def collection_path(resource: Resource, namespace: str = "") -> str:
    return resource.path(_segment(namespace, "namespace") if namespace else "")


def object_path(resource: Resource, key: ObjectKey, subresource: str = "") -> str:
    if resource.namespaced and not key.namespace:
        raise ValueError(f"{resource} live in a namespace: the key {key.name!r} has none")
    namespace = _segment(key.namespace, "namespace") if resource.namespaced else ""
    return resource.path(namespace, _segment(key.name, "name"), subresource)


def discovery_path(group: str, version: str = "") -> str:
    """Return the discovery path of a group, or of one of its versions. Raises ValueError for an impossible name."""
    parts = ["/apis", _segment(group, "API group")] if group else ["/api"]
    return "/".join((*parts, *((_segment(version, "version"),) if version else ())))


def _segment(text: str, what: str) -> str:
    """Encode one path segment; reject text that would lead to another path."""
    if not text or text in {".", ".."} or "/" in text or "%" in text:
        raise ImpossibleName(f"{text!r} is not a possible {what}")
    return _encoded(text)


@lru_cache(maxsize=1024)
def _encoded(text: str) -> str:
    """Percent-encode the text. Cached, because controllers repeat the same few managers, selectors and namespaces."""
    return quote(text, safe=":@!$'()*,;~")


def _pairs(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in values.items() if value)
