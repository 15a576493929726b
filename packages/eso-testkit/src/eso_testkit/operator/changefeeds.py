"""Push refresh in virtual time: real streams over a gateway in memory, and the queue that its followers get into."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from eso_operator.changes.feed import ChangeFeed
from eso_operator.changes.followers import Followers, ReadState, WatchedKey, topic_of
from eso_operator.changes.pace import Pace, PaceSettings
from eso_operator.changes.resumetokens import ResumeTokens
from eso_operator.changes.subscriptions import Subscriptions
from eso_operator.dependencies import OnObject
from eso_operator.providers.settings import SubscriptionSettings
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.gateways import LoopbackGateway, loopback
from eso_wire.values import ChangeEvent, Heartbeat, RemoteRef
from kubebase.meta import JsonObject, Kind, ObjectKey, version_of
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.errors import AlreadyExists, Conflict, NotFound, Unreachable
from kuberun.workqueue import WorkQueue


def watched(*keys: str, identity: str = "identity") -> WatchedKey:
    return WatchedKey(bound_store(identity=identity), {topic_of(RemoteRef(key)): "" for key in keys})


@dataclass
class MemoryLeases(Client):
    """Leases without an API server, by name, with optimistic locking. Writes are counted."""

    held: dict[str, JsonObject] = field(default_factory=dict)
    writes: int = 0
    down: bool = False

    async def get(self, kind: Kind[Any], key: ObjectKey, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        self._check_up()
        if key.name not in self.held:
            raise NotFound(404, "NotFound", f"lease {key} not found")
        return copy.deepcopy(self.held[key.name])

    async def create(self, kind: Kind[Any], obj: Any, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        self._check_up()
        if obj["metadata"]["name"] in self.held:
            raise AlreadyExists(409, "AlreadyExists", "it exists")
        return self._write(obj)

    async def update(self, kind: Kind[Any], obj: Any, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        self._check_up()
        present = self.held.get(obj["metadata"]["name"])
        if present is None:
            raise NotFound(404, "NotFound", "it is gone")
        if version_of(present) != version_of(obj):
            raise Conflict(409, "Conflict", "it changed")
        return self._write(obj)

    def _check_up(self) -> None:
        if self.down:
            raise Unreachable("connection refused")

    def _write(self, obj: JsonObject) -> JsonObject:
        self.writes += 1
        written = copy.deepcopy(obj)
        written["metadata"]["resourceVersion"] = str(self.writes)
        self.held[written["metadata"]["name"]] = written
        return copy.deepcopy(written)


@dataclass
class Stage:
    loop: LoopbackGateway = field(default_factory=loopback)
    pace: PaceSettings = field(default_factory=PaceSettings)
    leases: MemoryLeases = field(default_factory=MemoryLeases)
    stores: list[OnObject] = field(default_factory=list)
    """The stores whose state was reported as changed."""

    def __post_init__(self) -> None:
        self.queue = WorkQueue(self.clock)
        tokens = ResumeTokens(self.leases, ObjectKey("core", "streams"), self.clock)
        self.streams = Subscriptions(
            self.loop.gateway, self.clock, settings=SubscriptionSettings(), metrics=self.loop.metrics, draw=lambda: 0.0
        )
        pace, followers = Pace(self.pace, lambda: 0.0), Followers(Memories().external_secrets)
        self.changes = ChangeFeed(self.streams, self.clock, pace=pace, followers=followers, tokens=tokens)
        self.changes.feed(self.queue)
        self.changes.listen(self.stores.append)

    @property
    def clock(self) -> VirtualClock:
        return self.loop.clock

    @property
    def watched(self) -> set[str]:
        """Return the watched remote keys."""
        return {item.ref.key for item in self.loop.provider.watches.values() if item.ref is not None}

    @property
    def openings(self) -> list[str]:
        """Return the tokens that streams were opened with."""
        return [opening.resume_token for opening in self.loop.provider.openings]

    async def subscribe(
        self, key: ObjectKey, *watched_keys: WatchedKey, read_state: ReadState = ReadState.PART
    ) -> None:
        self.changes.subscribe(key, watched_keys, read_state)
        await self.clock.advance(2.0)

    async def read(self, *keys: ObjectKey) -> None:
        """Record that these followers have read."""
        for key in keys:
            self.changes.mark_read(key, self.changes.notified_at(key))

    async def send(self, *events: ChangeEvent | Heartbeat | None) -> None:
        for event in events:
            self.loop.provider.events.put_nowait(event)
        await self.clock.settle()

    async def after(self, seconds: float) -> list[ObjectKey]:
        """Return the queued objects after this time, in order; each is finished at once."""
        await self.clock.advance(seconds)
        taken = []
        while self.queue.waiting():
            taken.append((await self.queue.take()).key)
            self.queue.done(taken[-1])
        return taken


@asynccontextmanager
async def running(made: Stage) -> AsyncIterator[Stage]:
    """Run the feed as the manager does, inside the block."""
    task = asyncio.create_task(made.changes.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
