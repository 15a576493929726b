"""Objects, lists and events in the negotiated form: complete, as a Table, or as metadata only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import assert_never, cast

import msgspec

from kubebase.clock import Clock
from kubebase.meta import JsonObject
from localkube.errors import StatusError, bad_request
from localkube.model import ListResult, ServedKind, WatchEvent
from localkube.table import Include, partial_metadata, partial_metadata_list, table, without_headers
from localkube.wire.negotiation import Accepted, Form
from localkube.wire.routes import Query, first

FrameOf = Callable[[WatchEvent], bytes]


class Forms:
    """Build replies in the negotiated form. It needs a clock because a Table shows ages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def of(self, obj: JsonObject, kind: ServedKind, agreed: Accepted, query: Query) -> JsonObject:
        """Build the reply for one object; a Status keeps its form."""
        if agreed.form is Form.OBJECT or obj.get("kind") == "Status":
            return obj
        match agreed.form:
            case Form.TABLE:
                return _versioned(self._table(obj, kind, query), agreed)
            case Form.METADATA:
                return _versioned(partial_metadata(obj), agreed)
            case Form.METADATA_LIST:
                raise _no_list(kind)
            case _:
                assert_never(agreed.form)

    def of_list(self, result: ListResult, kind: ServedKind, agreed: Accepted, query: Query) -> JsonObject:
        """Build the reply for a list."""
        match agreed.form:
            case Form.OBJECT:
                return _plain_list(result, kind)
            case Form.TABLE:
                include, now = _include(query), self._clock.now()
                return _versioned(table(result.items, kind, include=include, now=now, list_meta=_meta(result)), agreed)
            case Form.METADATA_LIST:
                return _versioned(partial_metadata_list(result.items, _meta(result)), agreed)
            case Form.METADATA:
                message = "you requested PartialObjectMetadata, but the requested object is a list"
                raise StatusError(406, "NotAcceptable", message)
            case _:
                assert_never(agreed.form)

    def of_events(self, kind: ServedKind, agreed: Accepted, query: Query) -> FrameOf:
        """Build the function that turns each event of a watch into a line."""
        match agreed.form:
            case Form.OBJECT:
                return _plain_frame
            case Form.TABLE:
                return _TableFrames(kind, agreed, _include(query), self._clock.now).frame
            case Form.METADATA | Form.METADATA_LIST:
                return lambda event: _frame(event.type, _versioned(partial_metadata(event.object), agreed))
            case _:
                assert_never(agreed.form)

    def _table(self, obj: JsonObject, kind: ServedKind, query: Query) -> JsonObject:
        version = obj.get("metadata", {}).get("resourceVersion", "")
        meta = {"resourceVersion": version} if version else {}
        return table([obj], kind, include=_include(query), now=self._clock.now(), list_meta=meta)


class _TableFrames:
    """Tables of one row each; only the first explains the columns."""

    def __init__(self, kind: ServedKind, agreed: Accepted, include: Include, now: Callable[[], datetime]) -> None:
        self._kind = kind
        self._agreed = agreed
        self._include = include
        self._now = now
        self._explained = False

    def frame(self, event: WatchEvent) -> bytes:
        metadata = event.object["metadata"]
        meta = {"resourceVersion": metadata.get("resourceVersion", "")}
        if event.type == "BOOKMARK":
            # A bookmark names no object: its row carries only where the watch has come to.
            shown = table([], self._kind, include=self._include, now=self._now(), list_meta=meta)
            cells = ["" for _ in shown["columnDefinitions"]]
            shown["rows"] = [{"cells": cells, "object": partial_metadata(event.object)}]
        else:
            shown = table([event.object], self._kind, include=self._include, now=self._now(), list_meta=meta)
        if self._explained:
            shown = without_headers(shown)
        self._explained = True
        return _frame(event.type, _versioned(shown, self._agreed))


def _plain_frame(event: WatchEvent) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.type.encode(), msgspec.json.encode(event.object))


def _frame(kind: str, obj: JsonObject) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def _plain_list(result: ListResult, kind: ServedKind) -> JsonObject:
    resource = kind.resource
    if not kind.custom:
        # Lists of built-in kinds say the kind once; their items do not repeat it.
        for item in result.items:
            item.pop("kind", None)
            item.pop("apiVersion", None)
    return {
        "kind": kind.list_kind,
        "apiVersion": resource.api_version,
        "metadata": _meta(result),
        "items": result.items,
    }


def _meta(result: ListResult) -> JsonObject:
    meta: JsonObject = {"resourceVersion": result.resource_version}
    if result.continue_token:
        meta["continue"] = result.continue_token
    if result.remaining is not None:
        meta["remainingItemCount"] = result.remaining
    return meta


def _include(query: Query) -> Include:
    include = first(query, "includeObject") or "Metadata"
    if include not in {"Metadata", "Object", "None"}:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return cast("Include", include)


def _no_list(kind: ServedKind) -> StatusError:
    """Return the error for a request of one object as the metadata of a list."""
    if kind.custom:
        return StatusError(500, "", "content is not a list")
    go_type = f"*{kind.resource.group.partition('.')[0] or 'core'}.{kind.resource.kind}"
    message = f"you requested PartialObjectMetadataList, but the requested object is not a list ({go_type})"
    return StatusError(406, "NotAcceptable", message)


def _versioned(shown: JsonObject, agreed: Accepted) -> JsonObject:
    """Label a document with the version of meta.k8s.io that the client requested."""
    return shown if agreed.version == "v1" else {**shown, "apiVersion": f"meta.k8s.io/{agreed.version}"}
