"""A provider's kind that is installed after its first use is found soon, and objects that need it are woken."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from eso_operator.stores.resolved import Scope
from eso_operator.watches import MAX_MISSING, WatchedKinds
from eso_wire.values import KindId
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.errors import Forbidden, NotServed
from kuberun.requests import Request

WIDGET = KindId("example.com", "v1", "Widget")
FIVE_SECONDS, AN_HOUR = 5.0, 3600.0


@dataclass
class Server:
    """It serves Widgets once they are installed, and lists them once that is permitted."""

    installed: bool = False
    permitted: bool = True
    requested: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        self.requested.append(request.path)
        if not self.installed:
            raise NotServed(404, "", "no such group")
        if request.path == "/apis/example.com/v1":
            return json.dumps({"resources": [{"name": "widgets", "kind": "Widget", "namespaced": True}]}).encode()
        if not self.permitted:
            raise Forbidden(403, "Forbidden", "not for you")
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()

    @asynccontextmanager
    async def stream(self, _: Request) -> AsyncGenerator[AsyncIterator[bytes], None]:
        yield self._nothing()

    async def close(self) -> None:
        return

    async def _nothing(self) -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""


class Cluster:
    """The watches of an operator, running."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.watched = WatchedKinds(Client(server), self.clock)
        self.appeared: list[KindId] = []
        self.watched.listen_for_kinds(self.appeared.append)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.watched.run())
            await self.clock.settle()
            yield
            task.cancel()


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(Server(installed=False), id="it was not installed"),
        pytest.param(Server(installed=True, permitted=False), id="we had no right to read it"),
    ],
)
async def test_a_kind_that_was_missed_is_found_without_being_asked_for_again(server: Server) -> None:
    cluster = Cluster(server)
    async with cluster.running():
        included = await cluster.watched.include(WIDGET)
        await cluster.clock.advance(FIVE_SECONDS)
        before = (cluster.watched.scope(WIDGET), list(cluster.appeared))

        server.installed = server.permitted = True
        await cluster.clock.advance(FIVE_SECONDS)

        requested = len(server.requested)
        await cluster.clock.advance(FIVE_SECONDS)
        assert len(server.requested) == requested
    assert included is False
    assert before == (None, [])
    assert cluster.watched.scope(WIDGET) is Scope.NAMESPACED
    assert cluster.appeared == [WIDGET]


async def test_whoever_asks_first_after_the_installation_finds_it_for_everybody() -> None:
    cluster = Cluster(Server())
    async with cluster.running():
        await cluster.watched.include(WIDGET)
        cluster.server.installed = True

        included = await cluster.watched.include(WIDGET)

    assert included is True
    assert cluster.appeared == [WIDGET]


async def test_a_kind_that_existed_before_is_not_reported_as_new() -> None:
    cluster = Cluster(Server(installed=True))
    async with cluster.running():
        await cluster.watched.include(WIDGET)

    assert cluster.appeared == []


async def test_the_lookup_of_a_missing_kind_stops_without_requests_for_it() -> None:
    cluster = Cluster(Server())
    async with cluster.running():
        await cluster.watched.include(WIDGET)
        await cluster.clock.advance(AN_HOUR + FIVE_SECONDS)
        requested = len(cluster.server.requested)

        await cluster.clock.advance(AN_HOUR)

        assert len(cluster.server.requested) == requested


async def test_no_more_than_so_many_kinds_are_looked_for() -> None:
    cluster = Cluster(Server())
    async with cluster.running():
        for number in range(MAX_MISSING + 8):
            await cluster.watched.include(KindId("example.com", f"v{number}", "Widget"))
        cluster.server.requested.clear()

        await cluster.clock.advance(FIVE_SECONDS)

    assert cluster.server.requested == [f"/apis/example.com/v{number}" for number in range(8, MAX_MISSING + 8)]


async def test_missing_kinds_of_one_api_version_are_looked_for_with_one_request() -> None:
    cluster = Cluster(Server())
    async with cluster.running():
        for number in range(MAX_MISSING - 1):
            await cluster.watched.include(KindId("example.com", "v1", f"Gadget{number}"))
        await cluster.watched.include(WIDGET)
        cluster.server.requested.clear()

        await cluster.clock.advance(FIVE_SECONDS)
        requested = list(cluster.server.requested)
        cluster.server.installed = True
        await cluster.clock.advance(FIVE_SECONDS)

    assert requested == ["/apis/example.com/v1"]
    assert cluster.appeared == [WIDGET]


@dataclass
class Slow(Server):
    """It serves Widgets, but listing them never ends."""

    listing: int = 0

    async def request(self, request: Request) -> bytes:
        answer = await super().request(request)
        if self.requested.count("/apis/example.com/v1/widgets") < 2:
            return answer
        self.listing += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.listing -= 1
        return answer


async def test_a_watch_ends_when_the_caller_that_started_it_is_cancelled() -> None:
    """A reconcile has a deadline. A watch that outlived it would not be recorded, and the next caller would add one."""
    server = Slow(installed=True)
    cluster = Cluster(server)
    async with cluster.running(), asyncio.TaskGroup() as group:
        asking = group.create_task(cluster.watched.include(WIDGET))
        await cluster.clock.settle()
        begun = server.listing

        asking.cancel()
        await cluster.clock.settle()

        assert (begun, server.listing) == (1, 0)
