"""Informers on a real API server under constant failures.

Thousands of random writes go straight to the server. The informers reach it through a proxy that cuts connections,
leaves them half open, and refuses new ones while the server compacts its history (which forces 410) or restarts. In the
end every cache, and the picture every consumer built from changes, must equal the server's state.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from kubebase.backoff import ExponentialBackoff
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Kind, Malformed, ObjectKey, ObjectMeta, Page, Resource, key_of, metadata_of, raw
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.client import Client
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound, ServerError, Throttled, Unreachable
from kuberun.informer import Informer, Subscription
from kuberun.requests import Selection
from kuberun.source import ResourceSource
from kuberun.testing.proxy import Proxy
from kuberun.transport import AiohttpTransport
from kuberun.watch import WatchSettings

T = TypeVar("T")

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
WRITES = int(os.environ.get("ESO_CHAOS_WRITES", "1000"))
WRITERS = 8
NAMES = 150
SEED = 20300101
SETTINGS = WatchSettings(
    page_size=20,
    request_timeout=5,
    stream_seconds=4,
    inactivity=2,
    backoff=ExponentialBackoff(first=0.05, cap=0.5, jitter=0.5),
)


class TypedConfigMap(msgspec.Struct, gc=False, kw_only=True):
    """A typed form that omits fields."""

    metadata: ObjectMeta
    data: dict[str, str] = {}


class Counted(Generic[T]):
    """A source that counts full lists."""

    def __init__(self, source: ResourceSource[T]) -> None:
        self._source = source
        self.watch = source.watch
        self.decode = source.decode
        self.lists = 0

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[T]:
        page = await self._source.list_page(
            limit=limit, continue_token=continue_token, resource_version=resource_version
        )
        self.lists += not page.continue_token
        return page


class Observer(Generic[T]):
    """An informer, and a consumer that takes its changes from time to time."""

    def __init__(self, client: Client, kind: Kind[T], selection: Selection, name: str) -> None:
        self.source = Counted(client.source(kind, selection))
        self.informer: Informer[T] = Informer(self.source, clock=SystemClock(), name=name, settings=SETTINGS)
        self._subscription: Subscription[T] = self.informer.subscribe()
        self._truth = (kind, selection)
        self.picture: dict[ObjectKey, T | Malformed] = {}

    async def follow(self, chance: random.Random) -> None:
        while True:
            for change in await self._subscription.take():
                assert change.old is None or change.key in self.picture, "told about the past of something unknown"
                if change.new is None:
                    del self.picture[change.key]
                else:
                    self.picture[change.key] = change.new
            await asyncio.sleep(chance.random() * 0.2)

    async def agrees_with(self, server: Client) -> bool:
        kind, selection = self._truth
        truth = {key_of(obj): obj for obj in (await server.list(kind, selection)).items}
        store = {key: self.informer.cache.get(key) for key in self.informer.cache.keys()}  # noqa: SIM118 - not a dict
        return store == truth == self.picture


class Writer:
    """Random creates, updates and deletes, straight to the server."""

    def __init__(self, client: Client, namespace: str, chance: random.Random) -> None:
        self._client = client
        self._namespace = namespace
        self._chance = chance
        self._progress = asyncio.Event()
        self.written = 0

    async def write(self, count: int) -> None:
        while count:
            try:
                await self._write_once()
            except (Unreachable, ServerError, Throttled):
                await asyncio.sleep(0.1)  # the server restarts
                continue
            except (NotFound, Conflict, AlreadyExists):
                continue
            count -= 1
            self.written += 1
            self._progress.set()

    async def reaches(self, written: int) -> None:
        while self.written < written:
            self._progress.clear()
            await self._progress.wait()

    async def _write_once(self) -> None:
        key = ObjectKey(self._namespace, f"thing-{self._chance.randrange(NAMES)}")
        team = self._chance.choice(["red", "blue"])
        data = {"value": str(self._chance.random())}
        match self._chance.randrange(5):
            case 0:
                await self._client.delete(MAPS, key)
            case 1:
                metadata = {"namespace": key.namespace, "name": key.name, "labels": {"team": team}}
                await self._client.create(MAPS, {"metadata": metadata, "data": data})
            case _:
                await self._client.merge_patch(MAPS, key, {"metadata": {"labels": {"team": team}}, "data": data})


MAPS: Kind[JsonObject] = raw(CONFIG_MAPS)


async def disturb(proxy: Proxy, writer: Writer, server: ApiServer, chance: random.Random) -> None:
    """Cause small faults all the time, a compaction after each quarter of the writes, a restart after half of them."""
    troubles: dict[int, Callable[[], None]] = {
        WRITES // 4: server.compact,
        WRITES // 2: server.restart,
        3 * WRITES // 4: server.compact,
    }
    while True:
        await asyncio.sleep(chance.random() * 0.5)
        due = [share for share in troubles if writer.written >= share]
        if due:
            async with proxy.blackout():
                await writer.reaches(min(writer.written + 50, WRITES - WRITERS))  # positions fall behind the compaction
                await asyncio.to_thread(troubles.pop(due[0]))
        elif chance.random() < 0.5:
            proxy.cut()
        else:
            proxy.freeze()


@asynccontextmanager
async def client_of(kubeconfig: Path, server: str = "") -> AsyncIterator[Client]:
    connection = config.load(kubeconfig)
    client = Client(AiohttpTransport(replace(connection, server=server or connection.server)))
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_whatever_happens_every_informer_ends_equal_to_the_server(api_server: ApiServer, namespace: str) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same faults in every run
    proxy = Proxy(int(api_server.url.rpartition(":")[2]), chance)
    async with (
        proxy.serving(),
        client_of(api_server.kubeconfig) as direct,
        client_of(api_server.kubeconfig, f"https://127.0.0.1:{proxy.port}") as shaky,
    ):
        observers: list[Observer[Any]] = [
            Observer(shaky, raw(CONFIG_MAPS), Selection(namespace), "dicts"),
            Observer(shaky, Kind(CONFIG_MAPS, TypedConfigMap), Selection(namespace), "structs"),
            Observer(shaky, metadata_of(CONFIG_MAPS), Selection(namespace), "metadata"),
            Observer(shaky, raw(CONFIG_MAPS), Selection(namespace, label_selector="team=red"), "selected"),
        ]
        writer = Writer(direct, namespace, chance)

        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[None]] = [group.create_task(observer.informer.run()) for observer in observers]
            tasks += [group.create_task(observer.follow(chance)) for observer in observers]
            trouble = group.create_task(disturb(proxy, writer, api_server, chance))
            await asyncio.gather(*(writer.write(WRITES // WRITERS) for _ in range(WRITERS)))
            trouble.cancel()

            disagreeing = await settled(observers, direct)
            for task in tasks:
                task.cancel()

    assert disagreeing == []
    assert writer.written == WRITES
    assert all(observer.source.lists >= 2 for observer in observers), "the compaction has reached everyone"


async def settled(observers: list[Observer[Any]], server: Client) -> list[str]:
    """Return the names of the informers that still differ from the server after time to catch up."""
    deadline = asyncio.get_running_loop().time() + 60
    left = observers
    while left and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.2)
        with suppress(ApiError):
            left = [observer for observer in left if not await observer.agrees_with(server)]
    return [observer.informer.name for observer in left]
