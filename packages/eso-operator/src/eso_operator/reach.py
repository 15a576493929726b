"""What an operator of one namespace (`--namespace`) may read beyond it: which cluster-scoped kinds it may list.

Asked once, by whoever lists one of them first. A kind that it may not list is left out: it has no objects, nothing is
watched or asked again, and the log says so in one line. "May not" is believed only once a list in the namespace itself
is allowed: an operator that starts before its rights are there waits for them instead.
An operator of the whole cluster needs all of its kinds; for it nothing is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar

import structlog

from eso_api.externalsecret import EXTERNAL_SECRET
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden
from kuberun.meta import Kind, Malformed, Page, Resource, raw
from kuberun.requests import ALL, Selection
from kuberun.watch import Source

T = TypeVar("T")

_REMEDY: Final = "if they are wanted, grant list and watch on them cluster-wide and restart"

_log = structlog.get_logger(__name__)


class Reach:
    """One for the process; `namespace` is empty for the whole cluster."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self._asked_for: dict[Resource, Resource | None] = {}
        self._deciding = asyncio.Lock()
        self._left_out: frozenset[Resource] | None = frozenset() if not namespace else None

    def source(self, kind: Kind[T], needs: Resource | None = None) -> Source[T]:
        """All objects of a cluster-scoped kind, or none. Without those that it `needs` it is left out as well."""
        whole = self._client.source(kind, ALL)
        if not self.namespace:
            return whole
        self._asked_for[kind.resource] = needs
        return _IfReadable(whole, kind.resource, self)

    def leaves_out(self, resource: Resource) -> bool:
        """As far as it is decided."""
        return self._left_out is not None and resource in self._left_out

    async def left_out(self) -> frozenset[Resource]:
        """Decided by now. Raises ApiError while it cannot be."""
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
            return False  # its own watch says so, and tries again
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
    """A source that has nothing, and asks nothing, if its kind is left out."""

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
            return _silent()
        return self._whole.watch(
            resource_version=resource_version, timeout_seconds=timeout_seconds, allow_bookmarks=allow_bookmarks
        )

    def decode(self, raw: bytes) -> T | Malformed:
        return self._whole.decode(raw)


@asynccontextmanager
async def _silent() -> AsyncGenerator[AsyncIterator[bytes], None]:
    yield _nothing()


async def _nothing() -> AsyncGenerator[bytes, None]:
    """Until whoever waits has waited long enough."""
    await asyncio.Event().wait()
    yield b""
