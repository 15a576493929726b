"""Requests on resources: the target and options of a request, handed to the right verb of the cluster.

This layer decides whether the resource has the path and the method (404, 405), how bodies
and options are read, and which status and form the reply has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubebase.clock import Clock
from kubebase.meta import JsonObject
from localkube.access.escalation import check_grant, is_grant
from localkube.access.policies import Policies
from localkube.access.rbac import MASTERS
from localkube.cluster import Cluster
from localkube.cluster.cluster import PatchType
from localkube.discovery import subresource_verbs
from localkube.errors import method_not_allowed, no_such_path
from localkube.forms import Forms
from localkube.model import ServedKind, User, WriteOptions, Written
from localkube.stream import Streams
from localkube.wire.bodies import Expected, patch_type, read_object, read_options, read_patch
from localkube.wire.http import Reply, Request, Stream
from localkube.wire.negotiation import (
    Accepted,
    accepted,
    accepted_answer,
    accepted_stream,
    compressed,
    is_pretty,
    reply,
)
from localkube.wire.options import delete_options, list_query, patch_options, watch_query, write_options
from localkube.wire.routes import Query, ResourceTarget, first, number

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
        agreed = accepted(call.accept) if is_stored else accepted_answer(call.accept)
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
