"""Every verb of the Kubernetes API as a plain value: what is sent, before anything is sent.

Pure: `client` builds these, `transport` sends them. The mapping from verb to HTTP is here and nowhere else.

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

from kuberun.errors import ImpossibleName
from kuberun.meta import ObjectKey, Resource

DEFAULT_DEADLINE: Final = 30.0
"""Seconds for one call, from connecting to the last byte of the answer."""
LIST_DEADLINE: Final = 120.0
WATCH_SLACK: Final = 15.0
"""Seconds a watch may outlive the time-out it asked the server for."""
WATCH_IDLE: Final = 120.0
"""Seconds without one byte after which a watch counts as dead. Bookmarks come about once a minute."""


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
    """What the server does about fields it does not know."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


class Propagation(StrEnum):
    """What becomes of the objects that a deleted object owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write is done, next to what is written."""

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
    """Which object exactly may be deleted, and what becomes of its dependants."""

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
    """Which objects of a resource: everything by default."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    def query(self) -> tuple[tuple[str, str], ...]:
        return _pairs(labelSelector=self.label_selector, fieldSelector=self.field_selector)


ALL: Final = Selection()


class Request(msgspec.Struct, frozen=True):
    """One HTTP request. Its body never shows in a repr: it may hold anything a user stores."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    accept: str = Metadata.FULL
    content_type: str = "application/json"
    body: bytes | None = None
    compressed: bool = False  # may the answer be gzipped? worth it for lists only
    deadline: float = DEFAULT_DEADLINE
    idle: float | None = None  # longest silence of a stream

    def __repr__(self) -> str:
        return f"Request({self.method} {self.target})"

    @property
    def target(self) -> str:
        """Path and query, encoded as they go on the wire."""
        if not self.query:
            return self.path
        return f"{self.path}?{'&'.join([f'{name}={_encoded(value)}' for name, value in self.query])}"

    @property
    def where(self) -> str:
        """The request in messages: which object, and nothing of what was sent."""
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
    """One page. A continued list carries the version in its token, so the version must not be sent with it."""
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
    """`force` takes over fields that other managers own; only an apply patch knows it."""
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
    """Where a group, or one version of it, tells what it serves. ValueError for a text that can name none."""
    parts = ["/apis", _segment(group, "API group")] if group else ["/api"]
    return "/".join((*parts, *((_segment(version, "version"),) if version else ())))


def _segment(text: str, what: str) -> str:
    """One path segment, so that no name can point at another path."""
    if not text or text in {".", ".."} or "/" in text or "%" in text:
        raise ImpossibleName(f"{text!r} is not a possible {what}")
    return _encoded(text)


@lru_cache(maxsize=1024)
def _encoded(text: str) -> str:
    """Percent-encoded; remembered, because controllers name the same few managers, selectors and namespaces."""
    return quote(text, safe=":@!$'()*,;~")


def _pairs(**values: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in values.items() if value)
