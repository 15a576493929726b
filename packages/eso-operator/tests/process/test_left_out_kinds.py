"""The kinds that an operator of one namespace reads: kinds that it may not list are left out, and logged once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from eso_api.references import StoreRef
from eso_operator.missingkinds import Definitions, LeftOutKinds
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import ClusterView, Reason, ResolutionError, Scope
from eso_operator.watches import WatchedKinds
from eso_testkit.operator.clusters import ANYTHING, SETTINGS, caller
from eso_wire.values import KindId
from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.errors import Forbidden, ServiceUnavailable
from kuberun.health import Healthy
from kuberun.informer import Informer
from kuberun.requests import Request
from kuberun.testing.builders import document

PLACES = Resource("example.com", "v1", "places", "Place", namespaced=False)
PARENTS = Resource("example.com", "v1", "parents", "Parent", namespaced=False)
THINGS = Resource("example.com", "v1", "things", "Thing", namespaced=False)
INSIDE = "/apis/external-secrets.io/v1/namespaces/team-a/externalsecrets"
SAID = "cluster-scoped kinds are left out: they may not be listed"


@dataclass
class Server:
    """A server that forbids lists of the kinds in `closed` and fails on lists of the kinds in `away`."""

    closed: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    holding: dict[str, JsonObject] = field(default_factory=dict)
    lists: Counter[str] = field(default_factory=Counter)
    streams: Counter[str] = field(default_factory=Counter)

    async def request(self, request: Request) -> bytes:
        self.lists[request.path] += 1
        if request.path in self.away:
            raise ServiceUnavailable(503, "ServiceUnavailable", "away")
        if request.path in self.closed:
            raise Forbidden(403, "Forbidden", "not for you")
        items = [self.holding[request.path]] if request.path in self.holding else []
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self.streams[request.path] += 1
        return _quiet()

    async def close(self) -> None:
        return


@asynccontextmanager
async def _quiet() -> AsyncIterator[AsyncIterator[bytes]]:
    async def frames() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    yield frames()


class Watching:
    """The three kinds, watched by an operator of one namespace or of the cluster; parents need places."""

    def __init__(self, server: Server, namespace: str = "team-a") -> None:
        self.clock = VirtualClock()
        self.client = Client(server)
        self.watched = WatchedKinds(self.client, self.clock, namespace)
        self.informers: dict[Resource, Informer[JsonObject]] = {
            PARENTS: self.watched.add(raw(PARENTS), needs=PLACES),
            PLACES: self.watched.add(raw(PLACES)),
            THINGS: self.watched.add(raw(THINGS)),
        }

    async def for_seconds(self, *seconds: float) -> list[set[Resource]]:
        """Which kinds have synced, after each of these times."""
        synced = []
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(informer.run()) for informer in self.informers.values()]
            for each in seconds:
                await self.clock.advance(each)
                synced.append({kind for kind, informer in self.informers.items() if informer.synced})
            for task in running:
                task.cancel()
        return synced


def kind_id(resource: Resource) -> KindId:
    return KindId(resource.group, resource.version, resource.kind)


async def test_a_kind_that_may_not_be_listed_has_no_objects_and_is_never_asked_for_again() -> None:
    server = Server(closed={THINGS.path()})
    watching = Watching(server)

    with capture_logs() as lines:
        (synced,) = await watching.for_seconds(3600.0)

    assert synced == {PARENTS, PLACES, THINGS}
    assert server.lists[THINGS.path()] == 1
    assert THINGS.path() not in server.streams
    assert server.streams[PLACES.path()] > 1
    assert [(line["event"], line["kinds"]) for line in lines] == [(SAID, [str(THINGS)])]
    assert watching.watched.scope(kind_id(THINGS)) is None
    assert watching.watched.scope(kind_id(PLACES)) is Scope.CLUSTER


async def test_a_kind_that_needs_a_kind_that_is_left_out_is_left_out_as_well() -> None:
    """Parents that know of no namespaces would take their children for those of namespaces that they do not choose."""
    server = Server(closed={PLACES.path()})

    with capture_logs() as lines:
        await Watching(server).for_seconds(60.0)

    assert set(server.streams) == {THINGS.path()}
    assert [line["kinds"] for line in lines] == [[str(PARENTS), str(PLACES)]]


async def test_nothing_is_left_out_before_the_rights_in_the_namespace_are_there() -> None:
    everything = {THINGS.path(), PARENTS.path(), PLACES.path(), INSIDE}
    server = Server(closed=set(everything))
    watching = Watching(server)
    granting = asyncio.get_running_loop().create_future()

    async def grant() -> None:
        await watching.clock.sleep(100.0)
        server.closed = {THINGS.path()}
        granting.set_result(None)

    with capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            group.create_task(grant())
            before, after = await watching.for_seconds(90.0, 90.0)

    assert granting.done()
    assert before == set()
    assert after == {PARENTS, PLACES, THINGS}
    assert [line["kinds"] for line in lines if line["event"] == SAID] == [[str(THINGS)]]


async def test_a_kind_that_cannot_be_asked_for_is_not_left_out() -> None:
    server = Server(away={THINGS.path()})
    watching = Watching(server)

    with capture_logs() as lines:
        (synced,) = await watching.for_seconds(60.0)

    assert synced == {PARENTS, PLACES}
    assert SAID not in {line["event"] for line in lines}
    assert server.lists[THINGS.path()] > 2


async def test_an_operator_of_the_whole_cluster_leaves_nothing_out() -> None:
    server = Server(closed={THINGS.path()})
    watching = Watching(server, namespace="")

    with capture_logs() as lines:
        (synced,) = await watching.for_seconds(60.0)

    assert synced == {PARENTS, PLACES}
    assert SAID not in {line["event"] for line in lines}
    assert server.lists[THINGS.path()] > 2
    assert INSIDE not in server.lists


async def test_the_definition_of_a_kind_that_is_left_out_is_not_missed() -> None:
    server = Server(closed={THINGS.path()})
    client, clock = Client(server), VirtualClock()
    left_out = LeftOutKinds(client, "team-a")
    left_out.source(raw(THINGS))
    definitions = Definitions(client, clock, [THINGS], left_out=left_out)

    with capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(definitions.run())
            await clock.advance(60.0)
            running.cancel()

    assert await definitions.check() == Healthy()
    assert [line["event"] for line in lines] == [SAID]


def test_a_store_of_a_kind_that_is_not_read_is_not_reported_as_missing() -> None:
    watched = WatchedKinds(Client(Server()), VirtualClock(), "team-a")
    ref = StoreRef(kind="ClusterSecretStore", name="store")

    with pytest.raises(ResolutionError, match="this operator does not read objects of that kind") as raised:
        resolve(ref, caller(), need=ANYTHING, view=ClusterView(watched), settings=SETTINGS)

    assert raised.value.reason is Reason.NOT_FOUND


async def test_a_kind_can_be_watched_in_further_namespaces() -> None:
    services = Resource("", "v1", "services", "Service")
    found = {each: document(services, "provider", each) for each in ("team-a", "shared", "team-b")}
    server = Server(holding={services.path(each): found[each] for each in found})
    watched = WatchedKinds(Client(server), VirtualClock(), "team-a")

    informers = (watched.add(raw(services)), *watched.add_in(raw(services), ["shared"]))
    before = watched.revision(kind_id(services))
    for informer in informers:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run())
            await informer.wait_synced()
            running.cancel()

    seen = {each: watched.get(kind_id(services), ObjectKey(each, "provider")) for each in found}
    assert seen == {**found, "team-b": None}
    assert list(watched.list(kind_id(services))) == [found["team-a"], found["shared"]]
    assert list(watched.list(kind_id(services), "shared")) == [found["shared"]]
    assert watched.revision(kind_id(services)) == before + 2
