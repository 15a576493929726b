"""Typed verbs of the Kubernetes API.

A verb takes a `Kind[T]` and returns `T`: a Struct, a dict (`meta.raw`) or metadata only (`meta.metadata_of`, for which
the server sends only metadata). Every call has a deadline and raises `ApiError`; no call is retried.

A decoded Struct lacks the fields that its type does not declare, so it must never be PUT back: `update` accepts dicts
only. Write a Struct with `create`, or send the fields we own with `apply` and `merge_patch`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from kubebase.meta import JsonObject, Kind, Malformed, Object, ObjectKey, Page, Resource, key_of
from kuberun import requests
from kuberun.errors import BadResponse
from kuberun.requests import ALL, ANY, PLAIN, DeleteOptions, Metadata, PatchType, Request, Selection, WriteOptions
from kuberun.source import ObjectDecoder, ResourceSource, error_text
from kuberun.transport import Transport

T = TypeVar("T")
R = TypeVar("R")

PAGE_SIZE: Final = 500

SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")


@dataclass(frozen=True, slots=True)
class Token:
    """A service account token; its repr omits the value."""

    value: str = field(repr=False)
    expires: datetime


@dataclass(frozen=True, slots=True)
class BoundObject:
    """The object a token is bound to; deleting the object invalidates the token."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


class Client:
    """A client for one API server.

    `field_manager` names the application in managedFields of what it writes; a write may name another one. Without
    any, the API server takes the name from the User-Agent.
    """

    def __init__(self, transport: Transport, *, field_manager: str = "") -> None:
        self._transport = transport
        self._field_manager = field_manager
        self._decoders: dict[Kind[Any], ObjectDecoder[Any]] = {}

    async def close(self) -> None:
        await self._transport.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind[T], key: ObjectKey, *, subresource: str = "") -> T:
        request = requests.get(kind.resource, key, subresource=subresource, metadata=_one(kind))
        return await self._object(kind, request)

    def source(
        self, kind: Kind[T], selection: Selection = ALL, *, annotations: Callable[[str], bool] | None = None
    ) -> ResourceSource[T]:
        """Return the pages and watch frames of a selection, for an informer.

        `annotations` accepts the names of annotations that metadata-only objects keep; without it, they keep all.
        """
        return ResourceSource(self._transport, kind, selection, annotations)

    async def pages(
        self, kind: Kind[T], selection: Selection = ALL, *, size: int = PAGE_SIZE
    ) -> AsyncIterator[Page[T]]:
        """Yield the objects page by page, all from one moment. A list that takes too long raises `Gone`."""
        source = self.source(kind, selection)
        token = ""
        while True:
            page = await source.list_page(limit=size, continue_token=token, resource_version="")
            yield page
            token = page.continue_token
            if not token:
                return

    async def list(self, kind: Kind[T], selection: Selection = ALL, *, size: int = PAGE_SIZE) -> Page[T]:
        """Return all objects at once. Objects that cannot be decoded are included as `Malformed`."""
        items: list[T | Malformed] = []
        version = ""
        async for page in self.pages(kind, selection, size=size):
            items += page.items
            version = page.resource_version
        return Page(items, version)

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(self, kind: Kind[T], obj: T, *, options: WriteOptions = PLAIN) -> T:
        document = _document(kind, obj)
        request = requests.create(
            kind.resource,
            key_of(document).namespace,
            msgspec.json.encode(document),
            options=self._named(options),
            metadata=_one(kind),
        )
        return await self._object(kind, request)

    async def update(
        self, kind: Kind[JsonObject], obj: JsonObject, *, subresource: str = "", options: WriteOptions = PLAIN
    ) -> JsonObject:
        """Replace the whole object. If `obj` has a resourceVersion, it must be current."""
        if kind.type is not dict:
            raise TypeError(f"a {kind.resource.kind} decoded to {kind.type.__name__} lacks fields: patch or apply it")
        document = _document(kind, obj)
        request = requests.update(
            kind.resource,
            key_of(document),
            msgspec.json.encode(document),
            subresource=subresource,
            options=self._named(options),
        )
        return await self._object(kind, request)

    async def merge_patch(
        self,
        kind: Kind[T],
        key: ObjectKey,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN,
    ) -> T:
        """Change the given fields. None removes a field; a list is replaced as a whole."""
        return await self._patch(kind, key, patch, PatchType.MERGE, subresource=subresource, options=options)

    async def json_patch(
        self,
        kind: Kind[T],
        key: ObjectKey,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
        options: WriteOptions = PLAIN,
    ) -> T:
        """Apply operations (RFC 6902) in order, all or none. A `test` that fails raises `Invalid`."""
        return await self._patch(kind, key, operations, PatchType.JSON, subresource=subresource, options=options)

    async def apply(
        self,
        kind: Kind[T],
        obj: T | JsonObject,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
        options: WriteOptions = PLAIN,
    ) -> T:
        """Apply an object server-side: `obj` contains all fields that this manager wants, and only those.

        If another manager owns a field with a different value, `Conflict` is raised with the field in its causes,
        unless `force` is set.
        """
        document = _document(kind, obj)
        return await self._patch(
            kind,
            key_of(document),
            document,
            PatchType.APPLY,
            subresource=subresource,
            options=WriteOptions(field_manager, options.field_validation, options.dry_run),
            force=force,
        )

    async def delete(self, kind: Kind[Any], key: ObjectKey, options: DeleteOptions = ANY) -> None:
        """Request deletion of the object. An object with finalizers still exists afterwards."""
        await self._transport.request(requests.delete(kind.resource, key, options))

    async def delete_collection(self, kind: Kind[Any], selection: Selection, options: DeleteOptions = ANY) -> None:
        await self._transport.request(requests.delete_collection(kind.resource, selection, options))

    # --- other -------------------------------------------------------------------------------------------------------

    async def create_subresource(
        self,
        resource: Resource,
        key: ObjectKey,
        subresource: str,
        body: Any,
        result: type[R],
        *,
        options: WriteOptions = PLAIN,
    ) -> R:
        """POST to a subresource and decode the response as `result`."""
        document, named = msgspec.json.encode(body), self._named(options)
        request = requests.create_subresource(resource, key, subresource, document, options=named)
        return _decoded(await self._transport.request(request), result, request)

    async def token_request(
        self,
        service_account: ObjectKey,
        *,
        audiences: Sequence[str] = (),
        expiration_seconds: int | None = None,
        bound_to: BoundObject | None = None,
    ) -> Token:
        """Issue a token for a service account; the server decides its lifetime (at least 600 s)."""
        spec: JsonObject = {"audiences": [*audiences]}
        if expiration_seconds is not None:
            spec["expirationSeconds"] = expiration_seconds
        if bound_to is not None:
            named = {"apiVersion": bound_to.api_version, "kind": bound_to.kind, "name": bound_to.name}
            spec["boundObjectRef"] = {**named, "uid": bound_to.uid} if bound_to.uid else named
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        response = await self.create_subresource(SERVICE_ACCOUNTS, service_account, "token", body, _TokenRequest)
        return Token(response.status.token, response.status.expiration_timestamp)

    async def read(self, path: str, result: type[R]) -> R:
        """GET a path that is not an object, such as /version or discovery."""
        request = Request("GET", path)
        return _decoded(await self._transport.request(request), result, request)

    async def _patch(
        self,
        kind: Kind[T],
        key: ObjectKey,
        patch: Any,
        patch_type: PatchType,
        *,
        subresource: str,
        options: WriteOptions,
        force: bool = False,
    ) -> T:
        request = requests.patch(
            kind.resource,
            key,
            msgspec.json.encode(patch),
            patch_type,
            subresource=subresource,
            options=self._named(options),
            force=force,
            metadata=_one(kind),
        )
        return await self._object(kind, request)

    def _named(self, options: WriteOptions) -> WriteOptions:
        if options.field_manager or not self._field_manager:
            return options
        return replace(options, field_manager=self._field_manager)

    async def _object(self, kind: Kind[T], request: Request) -> T:
        body = await self._transport.request(request)
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = ObjectDecoder(kind)
        found: T | Malformed = decoder.decode(body)
        if isinstance(found, Malformed):
            raise BadResponse(
                f"the response is not a {kind.resource.kind}: {found.error}", code=200, where=request.where
            )
        return found


class _TokenStatus(msgspec.Struct, rename="camel"):
    token: str
    expiration_timestamp: datetime


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus


def _one(kind: Kind[Any]) -> Metadata:
    return Metadata.ONLY if kind.type is Object else Metadata.FULL


def _document(kind: Kind[Any], obj: Any) -> JsonObject:
    """Return the object as JSON with its apiVersion and kind, which callers may omit."""
    document: JsonObject = obj if isinstance(obj, dict) else msgspec.to_builtins(obj)
    return {**document, "apiVersion": kind.resource.api_version, "kind": kind.resource.kind}


def _decoded(body: bytes, result: type[R], request: Request) -> R:
    try:
        return msgspec.json.decode(body, type=result)
    except msgspec.DecodeError as exc:
        raise BadResponse(f"the response has another form: {error_text(exc)}", code=200, where=request.where) from None
