"""Pages and watch frames of one selection of objects: the source of an informer.

A page is decoded in one step, which takes half the time. If that fails, each object is decoded on its own, so that an
object that does not fit its type does not cost the rest of the page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeVar

import msgspec

from kubebase.meta import Kind, Malformed, Object, Page
from kuberun import requests
from kuberun.decoding import ObjectDecoder, error_text
from kuberun.errors import BadResponse
from kuberun.requests import ALL, Metadata, Request, Selection
from kuberun.transport import Transport

T = TypeVar("T")


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
