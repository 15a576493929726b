"""Pages and watch frames of one selection of objects: the source of an informer.

A page is decoded in one step, which takes half the time. If that fails, each object is decoded on its own, so that an
object that does not fit its type does not cost the rest of the page.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from sys import intern
from typing import Final, Generic, TypeVar

import msgspec

from kubebase.meta import Kind, Malformed, Object, ObjectMeta, Page, meta_of
from kuberun import requests
from kuberun.errors import BadResponse
from kuberun.redaction import bounded
from kuberun.requests import ALL, Metadata, Request, Selection
from kuberun.transport import Transport

# --- Decode the bytes of one object to its Python type; an object that does not fit becomes `Malformed` ---------------

T = TypeVar("T")

_VALUE_IN_ERROR = re.compile(r"(Invalid (?:enum )?value) '.*?'(?=$| - at)", re.DOTALL)
_LONGEST_ERROR = 512
_MANIFEST_COPY = "kubectl.kubernetes.io/last-applied-configuration"


class ObjectDecoder(Generic[T]):
    """Decodes objects of one kind, each on its own: one bad object must never hide the others.

    Items of a list have no apiVersion and kind, and metadata-only objects have those of the metadata form. Both get the
    kind's own, so that an object looks the same however it was fetched. Metadata-only objects lose the copy of the
    whole manifest that `kubectl apply` keeps in an annotation: that of a Secret contains its values. With
    `annotations`, they keep only those whose names it accepts: users write up to 256 KiB of others on each object.
    """

    def __init__(self, kind: Kind[T], annotations: Callable[[str], bool] | None = None) -> None:
        self._annotations = annotations
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.type)
        self._api_version = kind.resource.api_version
        self._kind = kind.resource.kind
        self._only_metadata = kind.type is Object

    def decode(self, raw: bytes | msgspec.Raw) -> T | Malformed:
        try:
            found = self._decoder.decode(raw)
        except msgspec.DecodeError as exc:  # includes ValidationError
            return Malformed(_metadata(raw), error_text(exc))
        return self.labelled(found)

    def labelled(self, found: T) -> T:
        """Set the kind's own apiVersion and kind on the object, and share what many objects have in common."""
        if isinstance(found, Object):
            found.api_version, found.kind = self._api_version, self._kind
            if self._only_metadata:
                self._trim(found.metadata)
            _share(found.metadata)
        elif isinstance(found, dict):
            found["apiVersion"], found["kind"] = self._api_version, self._kind
        return found

    def _trim(self, meta: ObjectMeta) -> None:
        meta.annotations.pop(_MANIFEST_COPY, None)
        if self._annotations is not None and meta.annotations:
            kept = filter(self._annotations, meta.annotations)
            meta.annotations = {name: meta.annotations[name] for name in kept}


def _share(meta: ObjectMeta) -> None:
    """Let equal strings of all objects be one: caches keep thousands of objects with the same few labels and owners."""
    meta.namespace = intern(meta.namespace)
    if meta.labels:
        meta.labels = {intern(name): intern(value) for name, value in meta.labels.items()}
    if meta.annotations:
        meta.annotations = {intern(name): value for name, value in meta.annotations.items()}
    for owner in meta.owner_references:
        msgspec.structs.force_setattr(owner, "api_version", intern(owner.api_version))
        msgspec.structs.force_setattr(owner, "kind", intern(owner.kind))


def error_text(error: msgspec.DecodeError) -> str:
    """Return which field is wrong and what was expected there, without the value that was found."""
    return bounded(_VALUE_IN_ERROR.sub(r"\1", str(error)), _LONGEST_ERROR)


def _metadata(raw: bytes | msgspec.Raw) -> ObjectMeta:
    """Return as much of the metadata as can be read, so that the object can be named."""
    try:
        found = meta_of(msgspec.json.decode(raw, type=dict))
    except msgspec.DecodeError:
        return ObjectMeta()
    found.annotations.pop(_MANIFEST_COPY, None)
    return found


class ResourceSource(Generic[T]):
    """One kind, restricted by namespace and selectors; metadata only for kinds of `meta.metadata_of`."""

    def __init__(
        self,
        transport: Transport,
        kind: Kind[T],
        selection: Selection = ALL,
        annotations: Callable[[str], bool] | None = None,
    ) -> None:
        self._transport = transport
        self._resource = kind.resource
        self._selection = selection
        self._decoder = ObjectDecoder(kind, annotations)
        self._whole_pages: msgspec.json.Decoder[_ListBody[T]] = msgspec.json.Decoder(_ListBody[kind.type])  # type: ignore[name-defined]  # a type known at run time only
        self._metadata_only = kind.type is Object

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        request = requests.list_page(
            self._resource,
            self._selection,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
            metadata=Metadata.ONLY_LIST if self._metadata_only else Metadata.FULL,
        )
        return self._page(await self._transport.request(request), request)

    def _page(self, body: bytes, request: Request) -> Page[T]:
        items: Sequence[T | Malformed]
        try:
            whole = self._whole_pages.decode(body)
            items, meta = [self._decoder.labelled(item) for item in whole.items or ()], whole.metadata
        except msgspec.DecodeError:
            single = _decoded(body, request)
            items, meta = [self._decoder.decode(item) for item in single.items or ()], single.metadata
        return Page(
            items=items,
            resource_version=meta.resource_version,
            continue_token=meta.continue_ or "",
            remaining_item_count=meta.remaining_item_count,
        )

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool = True
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream the frames after a version, one JSON document each, until the server ends the stream."""
        request = requests.watch(
            self._resource,
            self._selection,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            allow_bookmarks=allow_bookmarks,
            metadata=Metadata.ONLY if self._metadata_only else Metadata.FULL,
        )
        return self._transport.stream(request)

    def decode(self, raw: bytes) -> T | Malformed:
        return self._decoder.decode(raw)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)
    remaining_item_count: int | None = None


class _ListBody(msgspec.Struct, Generic[T]):
    items: list[T] | None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_SEPARATE: Final = msgspec.json.Decoder(_ListBody[msgspec.Raw])


def _decoded(body: bytes, request: Request) -> _ListBody[msgspec.Raw]:
    try:
        return _SEPARATE.decode(body)
    except msgspec.DecodeError as exc:
        raise BadResponse(f"the response is not a list: {error_text(exc)}", code=200, where=request.where) from None
