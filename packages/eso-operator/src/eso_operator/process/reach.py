"""The cluster-scoped kinds that an operator of one namespace (`--namespace`) may list.

The first list of such a kind decides, once for the process. A kind that the API server forbids is left out: it appears
to have no objects, is neither watched nor tried again, and is logged once. The decision waits until a list in the
namespace itself is allowed, so that an operator that starts before its RBAC rules does not leave out every kind.
An operator of the whole cluster leaves nothing out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeVar

import structlog

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_operator.process.presence import frames_of, nothing
from kubebase.meta import Kind, Malformed, Page, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden
from kuberun.requests import ALL, Selection
from kuberun.watch import Source

T = TypeVar("T")

_REMEDY: Final = "if they are wanted, grant list and watch on them cluster-wide and restart"

_log = structlog.get_logger(__name__)


class Reach:
    """The decision which cluster-scoped kinds are left out, one for the process.

    `namespace` is empty for an operator of the whole cluster.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._asked_for: dict[Resource, Resource | None] = {}
        self._deciding = asyncio.Lock()
        self._left_out: frozenset[Resource] | None = frozenset() if not namespace else None

    def source(self, kind: Kind[T], needs: Resource | None = None) -> Source[T]:
        """Return a source of a cluster-scoped kind; empty if that kind, or the kind that it `needs`, is left out."""
        whole = self._client.source(kind, ALL)
        if not self.namespace:
            return whole
        self._asked_for[kind.resource] = needs
        return _IfReadable(whole, kind.resource, self)

    def leaves_out(self, resource: Resource) -> bool:
        """Return whether the kind is left out; False before the decision."""
        return self._left_out is not None and resource in self._left_out

    async def left_out(self) -> frozenset[Resource]:
        """Return the kinds that are left out, after deciding if necessary. Raises ApiError if that fails."""
        async with self._deciding:
            if self._left_out is None:
                await self._check_namespace()
                self._left_out = await self._unreadable()
                self._say(self._left_out)
            return self._left_out

    async def _check_namespace(self) -> None:
        inside = self._client.source(raw(EXTERNAL_SECRET.resource()), Selection(self.namespace))
        await inside.list_page(limit=1, continue_token="", resource_version="")

    async def _unreadable(self) -> frozenset[Resource]:
        forbidden = {resource for resource in self._asked_for if await self._is_forbidden(resource)}
        return frozenset(each for each, needs in self._asked_for.items() if each in forbidden or needs in forbidden)

    async def _is_forbidden(self, resource: Resource) -> bool:
        try:
            await self._client.source(raw(resource), ALL).list_page(limit=1, continue_token="", resource_version="")
        except Forbidden:
            return True
        except ApiError:
            return False  # the watch of this kind logs it and retries
        return False

    def _say(self, left_out: frozenset[Resource]) -> None:
        if left_out:
            kinds = sorted(str(resource) for resource in left_out)
            _log.info(
                "cluster-scoped kinds are left out: they may not be listed",
                namespace=self.namespace,
                kinds=kinds,
                remedy=_REMEDY,
            )


class _IfReadable(Generic[T]):
    """A source that is empty and sends no request if its kind is left out."""

    def __init__(self, whole: Source[T], resource: Resource, reach: Reach) -> None:
        self._whole = whole
        self._resource = resource
        self._reach = reach

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        if self._resource in await self._reach.left_out():
            return Page([], resource_version="")
        return await self._whole.list_page(
            limit=limit, continue_token=continue_token, resource_version=resource_version
        )

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self._reach.leaves_out(self._resource):
            return frames_of(nothing())
        return self._whole.watch(
            resource_version=resource_version, timeout_seconds=timeout_seconds, allow_bookmarks=allow_bookmarks
        )

    def decode(self, raw: bytes) -> T | Malformed:
        return self._whole.decode(raw)
