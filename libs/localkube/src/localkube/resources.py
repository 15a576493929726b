"""Requests on resources: the target and options of a request, handed to the right verb of the cluster.

This layer decides whether the resource has the path and the method (404, 405), how bodies and options are read, which
status and form (complete, Table, metadata only) the reply has, and streams watches.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never, cast

import msgspec

from kubebase.clock import Clock
from kubebase.meta import JsonObject
from localkube.access.rbac import MASTERS, Policies, check_grant, is_grant
from localkube.cluster import Cluster, Watch
from localkube.discovery import subresource_verbs
from localkube.errors import StatusError, bad_request, method_not_allowed, no_such_path
from localkube.model import ListResult, PatchType, ServedKind, User, WatchEvent, WriteOptions, Written
from localkube.table import Include, partial_metadata, partial_metadata_list, table, without_headers
from localkube.wire.bodies import Expected, patch_type, read_object, read_options, read_patch
from localkube.wire.http import Reply, Request, Stream
from localkube.wire.negotiation import (
    Accepted,
    Form,
    accepted,
    accepted_review,
    accepted_stream,
    compressed,
    is_pretty,
    reply,
)
from localkube.wire.routes import (
    Query,
    ResourceTarget,
    delete_options,
    first,
    list_query,
    number,
    patch_options,
    watch_query,
    write_options,
)

# --- Objects, lists and events in the negotiated form: complete, as a Table, or as metadata only ----------------------

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


# --- Watches over HTTP: one JSON frame per line, sent immediately, ended cleanly by timeout or shutdown ---------------

MIN_SECONDS: Final = 1800
"""Minimum seconds of a watch without a timeout; each ends at random after one to two times this."""
FAREWELL_SECONDS: Final = 2
"""Seconds before its end at which a watch gets a bookmark to resume from."""
MAX_GATHERED: Final = 64 << 10
"""Bytes of frames after which they are sent, even if more are queued."""
_NO_CACHE: Final = ("Cache-Control", "no-cache, private")


class Streams:
    """The watches that are open over HTTP."""

    def __init__(self) -> None:
        self._open: set[Watch] = set()
        self._closing = False

    def open(self, watch: Watch, frame: FrameOf, seconds: int | None) -> Stream:
        """Stream a watch for the given seconds, each event through `frame`."""
        limit = seconds or MIN_SECONDS * (1 + random.random())  # noqa: S311 -- spreads load, no secret
        return Stream(self._frames(watch, frame, limit), headers=[_NO_CACHE])

    def close(self) -> None:
        """End every watch; clients see a complete reply and reconnect."""
        self._closing = True
        for watch in list(self._open):
            watch.close()

    async def _frames(self, watch: Watch, frame: FrameOf, seconds: float) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(seconds, watch.close)]
        if seconds > FAREWELL_SECONDS:
            timers.append(loop.call_later(seconds - FAREWELL_SECONDS, watch.bookmark))
        self._open.add(watch)
        if self._closing:
            watch.close()
        try:
            async for event in watch:
                yield _gathered(event, watch, frame)
        except StatusError as error:
            yield error_frame(error)
        finally:
            for timer in timers:
                timer.cancel()
            watch.close()
            self._open.discard(watch)


def _gathered(first: WatchEvent, watch: Watch, frame: FrameOf) -> bytes:
    """Join the frames of all queued events, so that a burst costs one write."""
    frames = bytearray(frame(first))
    while len(frames) < MAX_GATHERED and (event := watch.ready()) is not None:
        frames += frame(event)
    return bytes(frames)


def error_frame(error: StatusError) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": error.to_json()}) + b"\n"


_MAX_WARNING_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class ResourceCall:
    """One request on one served kind."""

    target: ResourceTarget
    kind: ServedKind
    request: Request
    query: Query
    user: User

    @property
    def namespace(self) -> str:
        """Empty for a kind without namespaces, although a Namespace is addressed like something inside itself."""
        return self.target.namespace if self.kind.resource.namespaced else ""

    @property
    def agent(self) -> str:
        return self.request.header("User-Agent")

    @property
    def content_type(self) -> str:
        return self.request.header("Content-Type")

    @property
    def accept(self) -> str:
        return self.request.header("Accept")


class Resources:
    def __init__(self, cluster: Cluster, streams: Streams, policies: Policies, clock: Clock) -> None:
        self._cluster = cluster
        self._streams = streams
        self._policies = policies
        self._forms = Forms(clock)

    def kind_of(self, target: ResourceTarget) -> ServedKind | None:
        return self._cluster.catalog.find(target.group, target.version, target.resource)

    async def respond(self, call: ResourceCall) -> Reply | Stream:
        """Run the verb of the request."""
        check_served(call.target, call.kind)
        match call.target.verb:
            case "watch":
                return self._watch(call)
            case "get":
                return await self._get(call)
            case "list":
                return await self._list(call)
            case "create":
                return await self._create(call)
            case "update":
                return await self._update(call)
            case "patch":
                return await self._patch(call)
            case "delete":
                return await self._delete(call)
            case "deletecollection":
                return await self._delete_collection(call)
            case _:
                raise method_not_allowed()

    async def _get(self, call: ResourceCall) -> Reply:
        agreed = accepted(call.accept)
        version = first(call.query, "resourceVersion")
        obj = await self._cluster.get(call.kind, call.namespace, call.target.name, resource_version=version)
        return await self._reply(call, 200, self._forms.of(obj, call.kind, agreed, call.query), agreed)

    async def _list(self, call: ResourceCall) -> Reply:
        agreed = accepted(call.accept)
        result = await self._cluster.list(call.kind, list_query(call.query, call.namespace))
        return await self._reply(call, 200, self._forms.of_list(result, call.kind, agreed, call.query), agreed)

    def _watch(self, call: ResourceCall) -> Stream:
        agreed = accepted_stream(call.accept)
        query = watch_query(call.query, call.namespace, call.target.name)
        seconds = number(call.query, "timeoutSeconds")
        frames = self._forms.of_events(call.kind, agreed, call.query)
        stream = self._streams.open(self._cluster.watch(call.kind, query), frames, seconds)
        stream.headers += _warning_headers(call.kind, ())
        return stream

    async def _create(self, call: ResourceCall) -> Reply:
        options = write_options(call.query, call.user, call.agent, "CreateOptions")

        def write(options: WriteOptions) -> Awaitable[Written]:
            body = read_object(call.request.body, call.content_type, _expected(call))
            return self._cluster.create(
                call.kind,
                call.namespace,
                body.value,
                options,
                name=call.target.name,
                subresource=call.target.subresource,
                duplicates=body.duplicates,
            )

        return await self._write(call, options, write)

    async def _update(self, call: ResourceCall) -> Reply:
        options = write_options(call.query, call.user, call.agent, "UpdateOptions")

        def write(options: WriteOptions) -> Awaitable[Written]:
            body = read_object(call.request.body, call.content_type, _expected(call))
            return self._cluster.update(
                call.kind,
                call.namespace,
                call.target.name,
                body.value,
                options,
                subresource=call.target.subresource,
                duplicates=body.duplicates,
            )

        return await self._write(call, options, write)

    async def _patch(self, call: ResourceCall) -> Reply:
        kind: PatchType = patch_type(call.content_type, call.kind)
        options = patch_options(call.query, call.user, call.agent, kind)

        def write(options: WriteOptions) -> Awaitable[Written]:
            body = read_patch(call.request.body, kind)
            return self._cluster.patch(
                call.kind,
                call.namespace,
                call.target.name,
                kind,
                body.value,
                options,
                subresource=call.target.subresource,
                duplicates=body.duplicates,
            )

        return await self._write(call, options, write)

    async def _write(
        self, call: ResourceCall, options: WriteOptions, write: Callable[[WriteOptions], Awaitable[Written]]
    ) -> Reply:
        is_stored = "list" in call.kind.verbs and call.target.subresource != "token"
        agreed = accepted(call.accept) if is_stored else accepted_review(call.accept)
        if is_grant(call.target) and MASTERS not in call.user.groups:
            tried = await write(replace(options, dry_run=True))
            check_grant(self._policies, call.user, call.target, tried.object)
        written = await write(options)
        created = written.created or call.target.verb == "create"
        document = self._forms.of(written.object, call.kind, agreed, call.query)
        return await self._reply(call, 201 if created else 200, document, agreed, written.warnings)

    async def _delete(self, call: ResourceCall) -> Reply:
        agreed = accepted(call.accept)
        body = read_options(call.request.body, call.content_type)
        options = delete_options(call.query, body, call.user)
        obj = await self._cluster.delete(call.kind, call.namespace, call.target.name, options)
        return await self._reply(call, 200, self._forms.of(obj, call.kind, agreed, call.query), agreed)

    async def _delete_collection(self, call: ResourceCall) -> Reply:
        agreed = accepted(call.accept)
        body = read_options(call.request.body, call.content_type)
        options = delete_options(call.query, body, call.user)
        result = await self._cluster.delete_collection(call.kind, list_query(call.query, call.namespace), options)
        return await self._reply(call, 200, self._forms.of_list(result, call.kind, agreed, call.query), agreed)

    async def _reply(
        self, call: ResourceCall, status: int, document: JsonObject, agreed: Accepted, warnings: Sequence[str] = ()
    ) -> Reply:
        pretty = is_pretty(first(call.query, "pretty"), call.agent)
        response = reply(status, document, agreed, pretty=pretty)
        if warnings or call.kind.deprecation:
            response.headers += _warning_headers(call.kind, warnings)
        return await compressed(response, call.request.header("Accept-Encoding"))


def check_served(target: ResourceTarget, kind: ServedKind) -> None:
    """Raise a 404 for an unknown path, or a 405 for a method that the path does not have."""
    if target.method not in {"GET", "POST", "PUT", "PATCH", "DELETE"}:
        raise method_not_allowed()
    inside_itself = target.resource == "namespaces" and target.name == target.namespace
    if target.namespace and not kind.resource.namespaced and not inside_itself:
        raise no_such_path()
    if target.subresource:
        if target.subresource not in kind.subresources:
            raise no_such_path()
        if target.verb not in subresource_verbs(target.subresource):
            raise method_not_allowed()
        return
    missing_namespace = kind.resource.namespaced and not target.namespace
    if target.name:
        if missing_namespace or not {"get", "update", "patch", "delete"} & set(kind.verbs):
            raise no_such_path()
        allowed = target.verb in kind.verbs and target.verb != "create"
    else:
        allowed = target.verb in kind.verbs and target.verb in {"list", "watch", "create", "deletecollection"}
        allowed = allowed and not (missing_namespace and target.verb in {"create", "deletecollection"})
    if not allowed:
        raise method_not_allowed()


def _expected(call: ResourceCall) -> Expected:
    """Return the kind that the body must have: that of the resource, or that of its subresource."""
    match call.target.subresource:
        case "token":
            return Expected("TokenRequest", "authentication.k8s.io/v1")
        case "scale":
            return Expected("Scale", "autoscaling/v1")
        case _:
            resource = call.kind.resource
            return Expected(resource.kind, resource.api_version, custom=call.kind.custom)


def _warning_headers(kind: ServedKind, warnings: Sequence[str]) -> list[tuple[str, str]]:
    texts = [*([kind.deprecation] if kind.deprecation else []), *warnings]
    headers, size = [], 0
    for text in texts:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        size += len(quoted)
        if size > _MAX_WARNING_BYTES:
            break
        headers.append(("Warning", f'299 - "{quoted}"'))
    return headers
