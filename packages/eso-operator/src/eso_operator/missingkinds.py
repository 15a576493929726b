"""Kinds that the operator may do without: the cluster lacks them, they are off, or they may not be listed.

    REQUIRED    the operator is not ready without the kind
    OPTIONAL    a kind that is not served, or that the operator may not list, has no objects; it is logged once and
                watched as soon as it can be listed. One discovery request covers all missing kinds of an API version
    OFF         no request is sent for the kind; it has no objects

A kind that was listed once stays watched: a later error keeps its objects, because an API server that restarts may
not serve all kinds at once.

`LeftOutKinds` decides which cluster-scoped kinds an operator of one namespace (`--namespace`) leaves out. `Definitions`
reports missing CustomResourceDefinitions of ours in the log and by the readiness probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Final, Generic, NoReturn, TypeVar

import structlog

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_operator.targets.discovery import served_resources
from kubebase.clock import Clock
from kubebase.meta import Kind, Malformed, Page, Resource, raw
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotServed
from kuberun.health import Healthy, Unhealthy, Verdict
from kuberun.requests import ALL, Selection
from kuberun.watch import Source

T = TypeVar("T")

SERVED_SECONDS: Final = 15.0
"""The age at which the list of served kinds is read again while a kind is missing."""
_CHECK_SECONDS: Final = 5.0
_EXPIRED: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}'
_LEFT_OUT_REMEDY: Final = "if they are wanted, grant list and watch on them cluster-wide and restart"
_MISSING_REMEDY: Final = "apply those of this release, in deploy/crds or printed by `eso crds --core`"

_log = structlog.get_logger(__name__)


class Presence(Enum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    OFF = "off"


def present(source: Source[T], resource: Resource, presence: Presence, served: ServedKinds) -> Source[T]:
    """Return a source that treats a missing kind as its presence says."""
    match presence:
        case Presence.REQUIRED:
            return source
        case Presence.OPTIONAL:
            return _IfServed(source, resource, served)
        case Presence.OFF:
            return _Unused(source)


# --- sources of kinds that may be missing -----------------------------------------------------------------------------


class _Unused(Generic[T]):
    """An empty source that sends no request. The base class of sources that are empty under a condition."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        del limit, continue_token, resource_version
        return Page([], resource_version="")

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        del resource_version, timeout_seconds, allow_bookmarks
        return _stream_of(no_frames())

    def decode(self, raw: bytes) -> T | Malformed:
        return self._source.decode(raw)


class _IfServed(_Unused[T]):
    """A source that is empty for as long as its kind cannot be listed."""

    def __init__(self, source: Source[T], resource: Resource, served: ServedKinds) -> None:
        super().__init__(source)
        self._resource = resource
        self._served = served
        self._was_listed = False
        self._missing = False

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        try:
            page = await self._source.list_page(
                limit=limit, continue_token=continue_token, resource_version=resource_version
            )
        except (NotServed, Forbidden) as error:
            if self._was_listed:
                raise
            if not self._missing:
                reason = "may not be listed" if isinstance(error, Forbidden) else "is not served"
                _log.info(f"kind {reason}: it is left out until that changes", kind=str(self._resource))
            self._missing = True
            return Page([], resource_version="")
        if self._missing:
            _log.info("kind is there now", kind=str(self._resource))
        self._was_listed, self._missing = True, False
        return page

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self._missing:
            return _stream_of(self._expire_when_served())
        return self._source.watch(
            resource_version=resource_version, timeout_seconds=timeout_seconds, allow_bookmarks=allow_bookmarks
        )

    async def _expire_when_served(self) -> AsyncGenerator[bytes, None]:
        """Wait until a list succeeds, then end the watch in a way that makes the watcher list the kind."""
        while not await self._can_be_listed():
            await self._served.wait(self._resource)
        yield _EXPIRED

    async def _can_be_listed(self) -> bool:
        if not await self._served.has(self._resource):
            return False
        try:
            await self._source.list_page(limit=1, continue_token="", resource_version="")
        except (NotServed, Forbidden):
            return False
        return True


class _IfReadable(_Unused[T]):
    """A source that is empty and sends no request if its kind is left out."""

    def __init__(self, source: Source[T], resource: Resource, left_out: LeftOutKinds) -> None:
        super().__init__(source)
        self._resource = resource
        self._left_out = left_out

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        if self._resource in await self._left_out.decide():
            return Page([], resource_version="")
        return await self._source.list_page(
            limit=limit, continue_token=continue_token, resource_version=resource_version
        )

    def watch(
        self, *, resource_version: str, timeout_seconds: int, allow_bookmarks: bool
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        if self._resource in self._left_out:
            return _stream_of(no_frames())
        return self._source.watch(
            resource_version=resource_version, timeout_seconds=timeout_seconds, allow_bookmarks=allow_bookmarks
        )


@asynccontextmanager
async def _stream_of(frames: AsyncGenerator[bytes, None]) -> AsyncGenerator[AsyncIterator[bytes], None]:
    yield frames


async def no_frames() -> AsyncGenerator[bytes, None]:
    """Yield nothing; wait until the watch is cancelled."""
    await asyncio.Event().wait()
    yield b""


class ServedKinds:
    """The kinds that the API server serves. All missing kinds share it, and it reads an API version once in a while."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._reading = asyncio.Lock()
        self._served: dict[str, frozenset[str] | None] = {}
        self._read_at: dict[str, float] = {}

    async def has(self, resource: Resource) -> bool:
        """Return whether a kind may be served, as of SERVED_SECONDS ago at most."""
        version = resource.api_version
        async with self._reading:
            if self._remaining(version) <= 0:
                self._served[version] = await self._read(version)
                self._read_at[version] = self._clock.monotonic()
            served = self._served[version]
            return served is None or resource.plural in served

    async def wait(self, resource: Resource) -> None:
        """Wait until `has` reads again. Kinds of one API version wait for the same moment and share that request."""
        await self._clock.sleep(self._remaining(resource.api_version))

    async def _read(self, version: str) -> frozenset[str] | None:
        """Return the plural names; None if they may not be read, so that each kind has to be tried."""
        try:
            return frozenset(each.plural for each in await served_resources(self._client, version))
        except Forbidden:
            return None

    def _remaining(self, version: str) -> float:
        read_at = self._read_at.get(version)
        return 0.0 if read_at is None else read_at + SERVED_SECONDS - self._clock.monotonic()


# --- cluster-scoped kinds and --namespace -----------------------------------------------------------------------------


class LeftOutKinds:
    """The decision which cluster-scoped kinds are left out: once for the process, at the first list of such a kind.

    A kind that the API server forbids is left out: it appears to have no objects, is neither watched nor tried again,
    and is logged once. The decision waits until a list in the namespace itself is allowed, so that an operator that
    starts before its RBAC rules does not leave out every kind. An operator of the whole cluster, whose `namespace` is
    empty, leaves nothing out.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._used: dict[Resource, Resource | None] = {}
        self._deciding = asyncio.Lock()
        self._left_out: frozenset[Resource] | None = frozenset() if not namespace else None

    def source(self, kind: Kind[T], needs: Resource | None = None) -> Source[T]:
        """Return a source of a cluster-scoped kind; empty if that kind, or the kind that it `needs`, is left out."""
        source = self._client.source(kind, ALL)
        if not self._namespace:
            return source
        self._used[kind.resource] = needs
        return _IfReadable(source, kind.resource, self)

    def __contains__(self, resource: Resource) -> bool:
        """Return whether the kind is left out; False before the decision."""
        return self._left_out is not None and resource in self._left_out

    async def decide(self) -> frozenset[Resource]:
        """Return the kinds that are left out, after deciding if necessary. Raises ApiError if that fails."""
        async with self._deciding:
            if self._left_out is None:
                inside = self._client.source(raw(EXTERNAL_SECRET.resource()), Selection(self._namespace))
                await inside.list_page(limit=1, continue_token="", resource_version="")
                forbidden = {resource for resource in self._used if await self._is_forbidden(resource)}
                self._left_out = frozenset(
                    each for each, needs in self._used.items() if each in forbidden or needs in forbidden
                )
                if self._left_out:
                    _log.info(
                        "cluster-scoped kinds are left out: they may not be listed",
                        namespace=self._namespace,
                        kinds=sorted(map(str, self._left_out)),
                        remedy=_LEFT_OUT_REMEDY,
                    )
            return self._left_out

    async def _is_forbidden(self, resource: Resource) -> bool:
        try:
            await self._client.source(raw(resource), ALL).list_page(limit=1, continue_token="", resource_version="")
        except Forbidden:
            return True
        except ApiError:
            return False  # the watch of this kind logs it and retries
        return False


# --- missing definitions ----------------------------------------------------------------------------------------------


class Definitions:
    """Reports missing definitions of `resources`. `run` is a service of the manager, `check` a readiness check.

    They are checked at the start, then every few seconds while one is missing. Optional kinds and kinds that are left
    out do not count. The informers wait for their kinds on their own; this class only reports.
    """

    def __init__(self, client: Client, clock: Clock, resources: Iterable[Resource], *, left_out: LeftOutKinds) -> None:
        self._client = client
        self._clock = clock
        self._left_out = left_out
        self._required: dict[str, set[Resource]] = {}
        for resource in resources:
            if resource.group:  # the core group has no definitions
                self._required.setdefault(resource.api_version, set()).add(resource)
        self._missing: list[str] = []

    async def check(self) -> Verdict:
        if not self._missing:
            return Healthy()
        return Unhealthy(f"missing CustomResourceDefinitions: {', '.join(self._missing)}; {_MISSING_REMEDY}")

    async def run(self) -> NoReturn:
        """Check until all definitions are served, then wait to be cancelled."""
        while not await self._everything_is_served():
            await self._clock.sleep(_CHECK_SECONDS)
        await asyncio.Event().wait()
        raise AssertionError("a service ends by being cancelled only")

    async def _everything_is_served(self) -> bool:
        try:
            left_out = await self._left_out.decide()
            missing = sorted([name for version in self._required for name in await self._missing_of(version, left_out)])
        except ApiError:
            return False  # the informers log it
        if missing and missing != self._missing:
            _log.warning("CustomResourceDefinitions are missing", missing=missing, remedy=_MISSING_REMEDY)
        elif self._missing and not missing:
            _log.info("all CustomResourceDefinitions are there")
        self._missing = missing
        return not missing

    async def _missing_of(self, api_version: str, left_out: frozenset[Resource]) -> list[str]:
        """Return the missing resources with their version: an installed definition may serve older versions only."""
        served = {resource.plural for resource in await served_resources(self._client, api_version)}
        required = self._required[api_version] - left_out
        return [f"{each} ({each.version})" for each in required if each.plural not in served]
