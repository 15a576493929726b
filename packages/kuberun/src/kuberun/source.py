"""Pages and watch frames of one selection of objects: what an informer reads from.

Every object is decoded on its own, so one that does not fit its type never costs the rest of the page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeVar

import msgspec

from kuberun import requests
from kuberun.decoding import ObjectDecoder, error_text
from kuberun.errors import BadAnswer
from kuberun.meta import Kind, Malformed, Object, Page
from kuberun.requests import ALL, Metadata, Selection
from kuberun.transport import Transport

T = TypeVar("T")


class ResourceSource(Generic[T]):
    """One kind, restricted by namespace and selectors; metadata only if the kind is (`meta.metadata_of`)."""

    def __init__(self, transport: Transport, kind: Kind[T], selection: Selection = ALL) -> None:
        self._transport = transport
        self._resource = kind.resource
        self._selection = selection
        self._decoder = ObjectDecoder(kind)
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
        body = await self._transport.request(request)
        try:
            found = _LIST.decode(body)
        except msgspec.DecodeError as exc:
            raise BadAnswer(f"the answer is not a list: {error_text(exc)}", code=200, where=request.where) from None
        return Page(
            items=[self._decoder.decode(item) for item in found.items or ()],
            resource_version=found.metadata.resource_version,
            continue_token=found.metadata.continue_ or "",
            remaining_item_count=found.metadata.remaining_item_count,
        )

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool = True
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The frames after a version, one JSON document each, until the server ends the stream."""
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


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_LIST: Final = msgspec.json.Decoder(_List)
