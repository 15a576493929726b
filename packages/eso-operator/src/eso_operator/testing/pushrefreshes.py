"""Push refresh in virtual time: real streams over a gateway in memory, and the queue that its followers get into."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from eso_operator.providers.settings import SubscriptionSettings
from eso_operator.providers.subscriptions import Subscriptions
from eso_operator.sync.dependencies import OnObject
from eso_operator.sync.followers import Followers, Reading, Sight, topic_of
from eso_operator.sync.pace import Pace, PaceSettings
from eso_operator.sync.pushrefresh import PushRefresh
from eso_operator.sync.resumetokens import ResumeTokens
from eso_operator.testing.boundtargets import bound_target
from eso_operator.testing.gateways import LoopbackGateway, loopback
from eso_operator.testing.leases import MemoryLeases
from eso_wire.values import ChangeEvent, Heartbeat, RemoteRef
from kuberun.meta import ObjectKey
from kuberun.testing.clock import VirtualClock
from kuberun.workqueue import WorkQueue


def sight(*keys: str, identity: str = "identity") -> Sight:
    return Sight(bound_target(identity=identity), {topic_of(RemoteRef(key)): "" for key in keys})


@dataclass
class Stage:
    loop: LoopbackGateway = field(default_factory=loopback)
    pace: PaceSettings = field(default_factory=PaceSettings)
    leases: MemoryLeases = field(default_factory=MemoryLeases)
    stores: list[OnObject] = field(default_factory=list)
    """Which stores had something else to say."""

    def __post_init__(self) -> None:
        self.queue = WorkQueue(self.clock)
        tokens = ResumeTokens(self.leases, ObjectKey("core", "streams"), self.clock)
        self.streams = Subscriptions(
            self.loop.gateway, self.clock, settings=SubscriptionSettings(), metrics=self.loop.metrics, draw=lambda: 0.0
        )
        pace = Pace(self.pace, lambda: 0.0)
        self.push = PushRefresh(self.streams, self.clock, pace=pace, followers=Followers(), tokens=tokens)
        self.push.feed(self.queue)
        self.push.listen(self.stores.append)

    @property
    def clock(self) -> VirtualClock:
        return self.loop.clock

    @property
    def watched(self) -> set[str]:
        """Remote keys."""
        return {item.ref.key for item in self.loop.provider.watches.values() if item.ref is not None}

    @property
    def openings(self) -> list[str]:
        """The tokens that streams were opened with."""
        return [opening.resume_token for opening in self.loop.provider.openings]

    async def follow(self, key: ObjectKey, *sights: Sight, reading: Reading = Reading.PART) -> None:
        self.push.follow(key, sights, reading)
        await self.clock.advance(2.0)

    async def read(self, *keys: ObjectKey) -> None:
        """Those who were told have read."""
        for key in keys:
            self.push.heard(key, self.push.told_at(key))

    async def say(self, *events: ChangeEvent | Heartbeat | None) -> None:
        for event in events:
            self.loop.provider.events.put_nowait(event)
        await self.clock.settle()

    async def after(self, seconds: float) -> list[ObjectKey]:
        """Who is in the queue by then, in order; they are done with at once."""
        await self.clock.advance(seconds)
        taken = []
        while self.queue.waiting():
            taken.append((await self.queue.take()).key)
            self.queue.done(taken[-1])
        return taken


@asynccontextmanager
async def running(made: Stage) -> AsyncIterator[Stage]:
    """As the manager runs it, until it stops."""
    task = asyncio.create_task(made.push.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
