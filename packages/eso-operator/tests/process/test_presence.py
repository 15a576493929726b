"""Kinds that the cluster may lack: they have no objects, are logged once, and are watched when they appear."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from eso_operator.missingkinds import SERVED_SECONDS, Presence, no_frames
from eso_operator.settings import Reconcilers, Settings
from eso_operator.watches import WatchedKinds, informers_of
from kubebase.meta import ObjectKey, Resource, raw
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotServed
from kuberun.requests import Request
from kuberun.testing.builders import document

THINGS = Resource("example.com", "v1", "things", "Thing")
UNSERVED = NotServed(404, "", "no such kind")
FORBIDDEN = Forbidden(403, "Forbidden", "not for you")


@dataclass
class Server:
    """A server with one thing, which refuses every request for it with `error` for as long as that is set.

    It always serves other kinds of the same API version.
    """

    error: ApiError | None = None
    asked: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        self.asked.append(request.path)
        if request.path == THINGS.root:
            served = ["others", *([] if isinstance(self.error, NotServed) else [THINGS.plural])]
            return json.dumps({"resources": [{"name": name, "kind": name.title()} for name in served]}).encode()
        if self.error is not None:
            raise self.error
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": [document(THINGS, "one", "team")]}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        del request
        return self._quiet()

    async def close(self) -> None:
        return

    @asynccontextmanager
    async def _quiet(self) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.error is not None:
            raise self.error
        yield no_frames()


class Story:
    """An informer of things with the given presence, beside a virtual clock."""

    def __init__(self, server: Server, presence: Presence) -> None:
        self.clock = VirtualClock()
        self.watched = WatchedKinds(Client(server), self.clock)
        self.informer = self.watched.add(raw(THINGS), presence=presence)

    @property
    def knows_it(self) -> bool:
        return self.informer.cache.get(ObjectKey("team", "one")) is not None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(UNSERVED, "kind is not served", id="no definition"),
        pytest.param(FORBIDDEN, "kind may not be listed", id="no rights"),
    ],
)
async def test_an_optional_kind_has_no_objects_until_it_can_be_listed(error: ApiError, words: str) -> None:
    server = Server(error)
    story = Story(server, Presence.OPTIONAL)

    with capture_logs() as lines:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(story.informer.run())
            await story.clock.advance(4 * 3600.0)
            missing = (story.informer.synced, story.knows_it, story.informer.age < 600)
            server.error = None
            await story.clock.advance(SERVED_SECONDS)
            there = story.knows_it
            server.error = error
            await story.clock.advance(3600.0)
            kept = story.knows_it
            running.cancel()

    assert missing == (True, False, True)
    assert there
    assert kept, "a kind that was there once keeps its objects: an API server that restarts may lack it for a moment"
    said = [line["event"] for line in lines if line["event"].startswith("kind ")]
    assert said == [f"{words}: it is left out until that changes", "kind is there now"]


async def test_fifty_missing_kinds_cost_one_request_in_a_while_and_each_is_found_when_it_appears() -> None:
    server = Server(UNSERVED)
    clock = VirtualClock()
    watched = WatchedKinds(Client(server), clock)
    plurals = [THINGS.plural, *(f"things{number}" for number in range(49))]
    informers = [watched.add(raw(replace(THINGS, plural=each)), presence=Presence.OPTIONAL) for each in plurals]

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(informer.run()) for informer in informers]
        await clock.advance(1.0)
        server.asked.clear()
        await clock.advance(100 * SERVED_SECONDS)
        asked = list(server.asked)
        server.error = None
        await clock.advance(SERVED_SECONDS)
        found = [informer.cache.get(ObjectKey("team", "one")) is not None for informer in informers]
        for task in running:
            task.cancel()

    assert asked == [THINGS.root] * 100
    assert found == [True, *([False] * 49)]


async def test_without_the_right_to_discover_kinds_each_missing_kind_is_tried() -> None:
    class Undiscoverable(Server):
        async def request(self, request: Request) -> bytes:
            if request.path == THINGS.root:
                raise FORBIDDEN
            return await super().request(request)

    server = Undiscoverable(UNSERVED)
    story = Story(server, Presence.OPTIONAL)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(story.informer.run())
        await story.clock.advance(10 * SERVED_SECONDS)
        tried = server.asked.count(THINGS.path())
        server.error = None
        await story.clock.advance(SERVED_SECONDS)
        there = story.knows_it
        running.cancel()

    assert tried == 1 + 1 + 10, "the first list, the first check, and one check in a while"
    assert there


async def test_a_kind_that_is_off_is_never_asked_for() -> None:
    server = Server()
    story = Story(server, Presence.OFF)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(story.informer.run())
        await story.clock.advance(3600.0)
        running.cancel()

    assert (story.informer.synced, story.knows_it, server.asked) == (True, False, [])


async def test_a_required_kind_is_waited_for() -> None:
    story = Story(Server(UNSERVED), Presence.REQUIRED)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(story.informer.run())
        await story.clock.advance(3600.0)
        running.cancel()

    assert not story.informer.synced
    assert story.watched.required == [THINGS]


@pytest.mark.parametrize(
    ("reconcilers", "kinds"),
    [
        pytest.param(Reconcilers(), set(), id="everything on"),
        pytest.param(
            Reconcilers(push_secret=False, cluster_push_secret=False),
            {"PushSecret", "ClusterPushSecret"},
            id="nothing is pushed",
        ),
        pytest.param(Reconcilers(push_secret=False), set(), id="children of ClusterPushSecrets are watched"),
        pytest.param(Reconcilers(cluster_external_secret=False), {"ClusterExternalSecret"}, id="no fan-out"),
        pytest.param(Reconcilers(generator_state=False), {"GeneratorState"}, id="no generator states"),
        pytest.param(
            Reconcilers(cluster_store=False), {"ClusterSecretStore", "ClusterProvider"}, id="no cluster stores"
        ),
        pytest.param(Reconcilers(secret_store=False), {"SecretStore", "Provider"}, id="no stores"),
    ],
)
def test_the_definitions_of_a_controller_that_is_off_are_not_required(
    reconcilers: Reconcilers, kinds: set[str]
) -> None:
    def required(settings: Settings) -> set[str]:
        watched = WatchedKinds(Client(Server()), VirtualClock())
        informers_of(watched, settings)
        return {resource.kind for resource in watched.required if resource.group}

    everything = required(Settings())
    left = required(replace(Settings(), reconcilers=reconcilers))

    assert everything - left >= kinds
    assert {"ExternalSecret", "ProviderClass"} <= left
    assert not {"Password", "VaultDynamicSecret"} & everything
