"""The values that the layers of the server pass to each other.

server (HTTP) -> cluster (verbs) -> schema | patch | selectors -> storage

Plain data: kinds as served, options of a request, results of a list, events of a watch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause


class Schema(Protocol):
    """The schema of a kind. Compiled once for each served version; methods change only `obj`."""

    @property
    def openapi(self) -> JsonObject:
        """Return the OpenAPI v3 schema of the whole object, with the x-kubernetes-* extensions that patches read."""
        ...

    def decode_error(self, obj: JsonObject) -> str | None:
        """Return the message of a 400 if the object cannot be decoded (a field has a wrong type), else None."""
        ...

    def prune(self, obj: JsonObject) -> list[str]:
        """Drop unknown fields in place; return their paths, such as `spec.colour`, sorted."""
        ...

    def default(self, obj: JsonObject) -> None:
        """Fill schema defaults in place."""
        ...

    def validate(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        """Return every structural, format and CEL violation. `old` enables transition rules and ratcheting."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column; `read` returns the cell of one object (a JSON scalar, or None)."""

    name: str
    type: str
    read: Callable[[JsonObject], Any]
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One version of one kind, as served: built in, or from a CustomResourceDefinition."""

    resource: Resource
    schema: Schema
    singular: str
    list_kind: str
    storage_version: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
    subresources: frozenset[str] = frozenset()
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, str] = field(default_factory=dict)
    """Field-selector name -> dotted path; metadata.name and metadata.namespace are always there."""
    custom: bool = False
    """True for a kind that came from a CRD: stored as JSON, pruned, generation counted on every spec change."""
    deprecation: str = ""
    """Warning header text of a deprecated version; empty if it is not deprecated."""
    prepare: Callable[[JsonObject, JsonObject | None], list[Cause]] | None = None
    """Rules of one built-in kind beyond its schema (immutable fields, stringData, defaults by code); edits in place."""

    stored_as: str = ""
    """Storage key of another kind whose objects these are, in another form (the two kinds of Event)."""
    from_stored: Callable[[JsonObject], JsonObject] | None = None
    """Converts a stored object to this form; the argument stays unchanged."""
    to_stored: Callable[[JsonObject], JsonObject] | None = None
    """Converts an object of this form to the stored one; the argument is consumed."""

    @property
    def storage_key(self) -> str:
        """Return the key of the storage that all versions of a kind share: `plural.group`."""
        return self.stored_as or str(self.resource)


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


FieldValidation = Literal["Ignore", "Warn", "Strict"]
PatchType = Literal["json", "merge", "strategic", "apply"]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    user: User
    field_manager: str = ""
    field_validation: FieldValidation = "Warn"
    dry_run: bool = False
    force: bool = False
    """Apply patches only: take fields from other managers."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    user: User
    uid: str = ""
    resource_version: str = ""
    propagation: Literal["", "Background", "Foreground", "Orphan"] = ""
    grace_period_seconds: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListQuery:
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


@dataclass(frozen=True, slots=True)
class ListResult:
    items: list[JsonObject] = field(repr=False)
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class WatchQuery:
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    send_initial_events: bool = False
    allow_bookmarks: bool = False


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One frame. A selector turns MODIFIED into ADDED or DELETED when an object enters or leaves its view."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: JsonObject = field(repr=False)


@dataclass(slots=True)
class Written:
    """The object as stored, and the warnings the client should see."""

    object: JsonObject = field(repr=False)
    created: bool = False
    warnings: list[str] = field(default_factory=list)


# --- The order of API versions: stable before beta before alpha, newer before older -----------------------------------

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sort key that puts the preferred version first; a name of another form comes last."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return 3, 0, 0, version
    major, stage, minor = parsed.groups()
    return {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), version
