"""From a provider's event to the queue, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from eso_operator.providers.settings import SubscriptionSettings
from eso_operator.providers.subscriptions import Subscriptions
from eso_operator.sync.followers import Followers, Sight, topic_of
from eso_operator.sync.pace import Pace, PaceSettings
from eso_operator.sync.pushrefresh import PushRefresh
from eso_operator.testing.boundtargets import bound_target
from eso_operator.testing.gateways import LoopbackGateway, loopback
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, Heartbeat, RemoteRef
from kuberun.meta import ObjectKey
from kuberun.testing.clock import START, VirtualClock
from kuberun.workqueue import WorkQueue

A, B = ObjectKey("team", "a"), ObjectKey("team", "b")
RESYNC = ChangeEvent(ChangeType.RESYNC)


def sight(*keys: str, identity: str = "identity") -> Sight:
    return Sight(bound_target(identity=identity), {topic_of(RemoteRef(key)): "" for key in keys})


@dataclass
class Stage:
    loop: LoopbackGateway = field(default_factory=loopback)
    pace: PaceSettings = field(default_factory=PaceSettings)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(self.clock)
        self.streams = Subscriptions(
            self.loop.gateway, self.clock, settings=SubscriptionSettings(), metrics=self.loop.metrics, draw=lambda: 0.0
        )
        self.push = PushRefresh(self.streams, self.clock, pace=Pace(self.pace, lambda: 0.0), followers=Followers())
        self.push.feed(self.queue)

    @property
    def clock(self) -> VirtualClock:
        return self.loop.clock

    @property
    def watched(self) -> set[str]:
        """Remote keys."""
        return {item.ref.key for item in self.loop.provider.watches.values() if item.ref is not None}

    async def follow(self, key: ObjectKey, *sights: Sight) -> None:
        self.push.follow(key, sights)
        await self.clock.advance(2.0)

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


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    running = asyncio.create_task(made.push.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_event_brings_its_followers_into_the_queue_and_they_know_why(stage: Stage) -> None:
    await stage.follow(A, sight("x"))
    await stage.follow(B, sight("y"))

    await stage.say(stage.loop.provider.changed("x"))

    assert await stage.after(2.0) == [A]
    told = stage.push.told_at(A)
    assert told is not None
    assert stage.push.told_at(B) is None
    stage.push.heard(A, told)
    assert stage.push.told_at(A) is None


async def test_a_crowd_of_followers_is_one_stream_and_few_messages(stage: Stage) -> None:
    for number in range(300):
        stage.push.follow(ObjectKey("team", str(number)), [sight(f"key-{number}")])
    await stage.clock.advance(2.0)

    assert len(stage.watched) == 300
    assert stage.loop.provider.calls["Subscribe"] == 1


async def test_whoever_reads_brings_the_stream_its_newest_credentials(stage: Stage) -> None:
    """Tokens of service accounts end."""
    await stage.follow(A, sight("x"))
    renewed = Sight(bound_target(spec=b'{"n":2}'), {topic_of(RemoteRef("x")): ""})

    await stage.follow(A, renewed)
    await stage.say(None)
    await stage.after(10.0)

    specs = [opening.context.config.spec_json for opening in stage.loop.provider.openings]
    assert [spec.reveal() for spec in specs if spec is not None] == [b"{}", b'{"n":2}']


async def test_those_who_leave_are_told_nothing_and_the_last_one_closes_the_stream(stage: Stage) -> None:
    await stage.follow(A, sight("x"))
    await stage.follow(B, sight("x"))
    event = stage.loop.provider.changed("x")

    stage.push.leave(A)
    await stage.say(event)
    heard = await stage.after(5.0)
    stage.push.leave(B)
    await stage.after(5.0)

    assert heard == [B]
    assert len(stage.streams) == 0


async def test_a_follower_that_leaves_while_it_waits_is_not_told(stage: Stage) -> None:
    await stage.follow(A, sight("x"))
    await stage.say(stage.loop.provider.changed("x"))

    stage.push.leave(A)

    assert await stage.after(60.0) == []


async def test_a_storm_costs_one_read_in_a_gap(stage: Stage) -> None:
    await stage.follow(A, sight("x"))
    event = stage.loop.provider.changed("x")

    reads = []
    for _ in range(30):
        await stage.say(*[event] * 200)
        reads += await stage.after(1.0)

    assert reads == [A, A, A]


async def test_a_resync_concerns_all_followers_of_the_stream_in_line(stage: Stage) -> None:
    keys = [ObjectKey("team", f"{number:03}") for number in range(200)]
    for key in keys:
        stage.push.follow(key, [sight(f"of-{key.name}")])
    await stage.clock.advance(2.0)

    await stage.say(RESYNC)
    seconds = [await stage.after(1.0) for _ in range(6)]

    assert sorted(key for second in seconds for key in second) == keys
    assert max(len(second) for second in seconds) <= 52  # fifty in a second, and the two ends of it


async def test_a_stream_that_breaks_is_opened_again_and_everybody_reads(stage: Stage) -> None:
    """It had nothing to resume from."""
    await stage.follow(A, sight("x"))
    await stage.follow(B, sight("y"))

    await stage.say(None)

    assert sorted(await stage.after(10.0)) == [A, B]
    assert stage.watched == {"x", "y"}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ChangeEvent(ChangeType.UPDATED, ("unknown",)), id="a watch nobody asked for"),
        pytest.param(ChangeEvent(ChangeType.UPDATED), id="no watch at all"),
        pytest.param(ChangeEvent(ChangeType.CONDITION), id="a condition"),
        pytest.param(Heartbeat(START), id="a heartbeat"),
    ],
)
async def test_what_concerns_nobody_moves_nobody(stage: Stage, event: ChangeEvent | Heartbeat) -> None:
    await stage.follow(A, sight("x"))

    await stage.say(event)

    assert await stage.after(60.0) == []


async def test_a_provider_that_fails_to_stream_is_named_once_and_disturbs_nobody(stage: Stage) -> None:
    stage.loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, "no stream today")
    with capture_logs() as logs:
        await stage.follow(A, sight("x"))
        await stage.clock.advance(600.0)
        stage.loop.provider.broken = None
        while not stage.loop.provider.openings:
            await stage.clock.advance(1.0)
        await stage.clock.advance(SubscriptionSettings().proven_after)
        await stage.say(Heartbeat(START))

    said = [(line["log_level"], line["store"], line.get("why")) for line in logs if "push refresh" in line["event"]]
    assert said == [("warning", "SecretStore team/store", "no stream today"), ("info", "SecretStore team/store", None)]
