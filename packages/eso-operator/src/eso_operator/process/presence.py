"""Kinds that the cluster may lack, and kinds that this operator does not use.

    REQUIRED    the operator is not ready without the kind
    OPTIONAL    a kind that is not served, or that the operator may not list, has no objects; it is logged once and
                watched as soon as it can be listed. One discovery request covers all missing kinds of an API version
    OFF         no request is sent for the kind; it has no objects

A kind that was listed once stays watched: a later error keeps its objects, because an API server that restarts may
not serve all kinds at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Final, Generic, TypeVar

import structlog

from eso_operator.targets.discovery import served_resources
from kubebase.clock import Clock
from kubebase.meta import Malformed, Page, Resource
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotServed
from kuberun.watch import Source

T = TypeVar("T")

LOOK_AGAIN_SECONDS: Final = 15.0
_EXPIRED: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}'

_log = structlog.get_logger(__name__)


class Presence(Enum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    OFF = "off"


class ServedKinds:
    """The kinds that the API server serves. All missing kinds share it, and it reads an API version once in a while."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._reading = asyncio.Lock()
        self._served: dict[str, frozenset[str] | None] = {}
        self._read_at: dict[str, float] = {}

    async def has(self, resource: Resource) -> bool:
        """Return whether a kind may be served, as of LOOK_AGAIN_SECONDS ago at most."""
        version = resource.api_version
        async with self._reading:
            if self._remaining(version) <= 0:
                self._served[version] = await self._read(version)
                self._read_at[version] = self._clock.monotonic()
            served = self._served[version]
            return served is None or resource.plural in served

    async def _read(self, version: str) -> frozenset[str] | None:
        """Return the plural names; None if they may not be read, so that each kind has to be tried."""
        try:
            return frozenset(each.plural for each in await served_resources(self._client, version))
        except Forbidden:
            return None

    async def wait(self, resource: Resource) -> None:
        """Wait until `has` reads again. Kinds of one API version wait for the same moment and share that request."""
        await self._clock.sleep(self._remaining(resource.api_version))

    def _remaining(self, version: str) -> float:
        read_at = self._read_at.get(version)
        return 0.0 if read_at is None else read_at + LOOK_AGAIN_SECONDS - self._clock.monotonic()


def present(source: Source[T], resource: Resource, presence: Presence, served: ServedKinds) -> Source[T]:
    """Return a source that treats a missing kind as its presence says."""
    match presence:
        case Presence.REQUIRED:
            return source
        case Presence.OPTIONAL:
            return _IfServed(source, resource, served)
        case Presence.OFF:
            return _Unused(source)


class _IfServed(Generic[T]):
    """A source that is empty for as long as its kind cannot be listed."""

    def __init__(self, whole: Source[T], resource: Resource, served: ServedKinds) -> None:
        self._whole = whole
        self._resource = resource
        self._served = served
        self._seen = False
        self._missing = False

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        try:
            page = await self._whole.list_page(
                limit=limit, continue_token=continue_token, resource_version=resource_version
            )
        except (NotServed, Forbidden) as error:
            if self._seen:
                raise
            self._miss(error)
            return Page([], resource_version="")
        if self._missing:
            _log.info("kind is there now", kind=str(self._resource))
        self._seen, self._missing = True, False
        return page

    def _miss(self, error: ApiError) -> None:
        if not self._missing:
            reason = "may not be listed" if isinstance(error, Forbidden) else "is not served"
            _log.info(f"kind {reason}: it is left out until that changes", kind=str(self._resource))
        self._missing = True

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self._missing:
            return frames_of(self._until_served())
        return self._whole.watch(
            resource_version=resource_version, timeout_seconds=timeout_seconds, allow_bookmarks=allow_bookmarks
        )

    def decode(self, raw: bytes) -> T | Malformed:
        return self._whole.decode(raw)

    async def _until_served(self) -> AsyncGenerator[bytes, None]:
        """Wait until a list succeeds, then end the watch in a way that makes the watcher list the kind."""
        while not await self._can_be_listed():
            await self._served.wait(self._resource)
        yield _EXPIRED

    async def _can_be_listed(self) -> bool:
        if not await self._served.has(self._resource):
            return False
        try:
            await self._whole.list_page(limit=1, continue_token="", resource_version="")
        except (NotServed, Forbidden):
            return False
        return True


class _Unused(Generic[T]):
    """An empty source that sends no request."""

    def __init__(self, whole: Source[T]) -> None:
        self._whole = whole

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        del limit, continue_token, resource_version
        return Page([], resource_version="")

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        del resource_version, timeout_seconds, allow_bookmarks
        return frames_of(nothing())

    def decode(self, raw: bytes) -> T | Malformed:
        return self._whole.decode(raw)


@asynccontextmanager
async def frames_of(frames: AsyncGenerator[bytes, None]) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """Return a stream of these frames."""
    yield frames


async def nothing() -> AsyncGenerator[bytes, None]:
    """Yield nothing; wait until the watch is cancelled."""
    await asyncio.Event().wait()
    yield b""
