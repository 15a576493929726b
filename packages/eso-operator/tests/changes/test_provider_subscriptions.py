"""Streams of changes that are kept alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from eso_operator.changes.subscriptions import StreamKey, StreamState, Subscriptions, stream_name
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import CallSettings, SubscriptionSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy
from eso_testkit.operator.boundstores import bound_store, endpoint
from eso_testkit.operator.gateways import LoopbackGateway, WiredGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, Heartbeat, ObjectRef, RemoteRef, WatchItem
from kubebase.clock import SystemClock
from kubebase.testing.clock import START

ITEMS = (WatchItem("w1", RemoteRef("a")),)
SILENCE = SubscriptionSettings().heartbeat * SubscriptionSettings().missed_heartbeats


def _with(**fields: Any) -> BoundStore:
    bound = bound_store()
    return replace(bound, resolved=replace(bound.resolved, **fields))


def _with_config(ref: ObjectRef) -> BoundStore:
    return _with(config=replace(bound_store().resolved.config, ref=ref))


def updated(token: str = "") -> ChangeEvent:
    return ChangeEvent(ChangeType.UPDATED, ("w1",), resume_token=token)


@dataclass
class Subscribed:
    loop: LoopbackGateway
    settings: SubscriptionSettings = field(default_factory=SubscriptionSettings)
    states: list[StreamState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.streams = Subscriptions(
            self.loop.gateway,
            self.loop.clock,
            settings=self.settings,
            metrics=self.loop.metrics,
            draw=lambda: 0.0,
        )
        self.streams.listen(self._heard)

    def _heard(self, _key: StreamKey, state: StreamState) -> None:
        self.states.append(state)

    async def send(self, event: ChangeEvent | Heartbeat | None) -> None:
        self.loop.provider.events.put_nowait(event)
        await self.loop.clock.settle()

    def received(self) -> list[ChangeType]:
        return [self.streams.events.get_nowait().event.type for _ in range(self.streams.events.qsize())]


@pytest.fixture
async def subscribed(loop: LoopbackGateway) -> AsyncIterator[Subscribed]:
    made = Subscribed(loop)
    running = asyncio.create_task(made.streams.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_changes_arrive_with_the_stream_they_came_from(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated("t1"))

    changed = subscribed.streams.events.get_nowait()

    assert (changed.key, changed.event.watch_ids) == (key, ("w1",))
    assert subscribed.streams.positions() == {key: (stream_name(bound_store()), "t1")}


def lags(loop: LoopbackGateway) -> dict[tuple[tuple[str, str], ...], float]:
    """Sums by labels: of every provider that anything is known of."""
    samples = (sample for family in loop.registry.collect() for sample in family.samples)
    name = "eso_provider_subscription_lag_seconds_sum"
    return {tuple(sample.labels.items()): sample.value for sample in samples if sample.name == name}


@pytest.mark.parametrize(
    ("ago", "waits", "lag"),
    [
        pytest.param(5.0, 0.0, 5.0, id="what happened a while ago"),
        pytest.param(5.0, 3.0, 8.0, id="with the time it waits for us"),
        pytest.param(-5.0, 0.0, 0.0, id="what its provider dates ahead is on time"),
    ],
)
async def test_a_change_is_as_late_as_it_is_acted_on(
    subscribed: Subscribed, ago: float, waits: float, lag: float
) -> None:
    """Whatever the address and the credentials: there is one series for each provider."""
    for name in ("one", "other"):
        subscribed.streams.want(bound_store(endpoint(f"dns:///{name}:8080"), identity=name), ITEMS)
    await subscribed.loop.clock.settle()
    happened = subscribed.loop.clock.now() - timedelta(seconds=ago)
    for _ in range(2):
        await subscribed.send(replace(updated(), observed_at=happened))

    await subscribed.loop.clock.advance(waits)
    for _ in range(2):
        subscribed.streams.handled(subscribed.streams.events.get_nowait())

    assert lags(subscribed.loop) == {(("provider", "scripted"),): 2 * lag}


async def test_a_change_of_unknown_time_and_one_of_a_dropped_stream_have_no_lag(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated())
    await subscribed.send(replace(updated(), observed_at=START))

    subscribed.streams.handled(subscribed.streams.events.get_nowait())
    subscribed.streams.drop(key)
    subscribed.streams.handled(subscribed.streams.events.get_nowait())

    assert lags(subscribed.loop) == {}


async def test_equal_identities_share_one_stream(subscribed: Subscribed) -> None:
    for _ in range(3):
        subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.loop.clock.settle()

    assert len(subscribed.loop.provider.openings) == 1


async def test_a_stream_that_ends_is_opened_again_from_where_it_was(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated("t1"))

    await subscribed.send(None)
    await subscribed.loop.clock.advance(2.0)

    assert [opening.resume_token for opening in subscribed.loop.provider.openings] == ["", "t1"]
    assert subscribed.received() == [ChangeType.UPDATED]


async def test_a_stream_without_a_token_asks_for_a_new_read_when_it_is_back(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated())

    await subscribed.send(None)
    await subscribed.loop.clock.advance(2.0)

    assert subscribed.received() == [ChangeType.UPDATED, ChangeType.RESYNC]


async def test_a_silent_stream_is_degraded_and_a_heartbeat_heals_it(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.loop.clock.settle()

    await subscribed.loop.clock.advance(SILENCE + 2.0)
    degraded = subscribed.states[-1].error
    await subscribed.loop.clock.advance(SubscriptionSettings().proven_after)
    await subscribed.send(Heartbeat(START))

    assert degraded is not None
    assert "no heartbeat" in degraded.message
    assert subscribed.states[-1].error is None


async def test_a_provider_that_takes_no_opening_is_asked_again(subscribed: Subscribed) -> None:
    """The provider runs and answers pings, so only the deadline of a call ends the attempt."""
    subscribed.loop.provider.hangs = True
    subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.loop.clock.advance(CallSettings().timeout)
    subscribed.loop.provider.hangs = False

    await subscribed.loop.clock.advance(2.0)

    assert subscribed.loop.provider.calls["Subscribe"] == 2
    assert len(subscribed.loop.provider.openings) == 1


async def test_heartbeats_keep_a_quiet_stream_open(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    for _ in range(20):
        await subscribed.loop.clock.advance(SILENCE / 3)
        await subscribed.send(Heartbeat(START))

    assert len(subscribed.loop.provider.openings) == 1
    assert not subscribed.states


async def test_a_provider_restart_is_not_reported(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(Heartbeat(START, "t1"))
    assert subscribed.streams.works(key)

    subscribed.loop.provider.broken = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "restarting")
    await subscribed.send(None)
    await subscribed.loop.clock.advance(10.0)
    worked = subscribed.streams.works(key)
    subscribed.loop.provider.broken = None
    await subscribed.loop.clock.advance(SubscriptionSettings().degraded_after)
    await subscribed.send(Heartbeat(START))
    await subscribed.loop.clock.advance(30.0)
    await subscribed.send(Heartbeat(START))

    assert not worked
    assert subscribed.streams.works(key)
    assert [state.error for state in subscribed.states] == [None]


async def test_a_stream_that_stands_for_moments_only_is_degraded(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)

    for _ in range(60):
        await subscribed.send(Heartbeat(START))
        await subscribed.loop.clock.advance(5.0)
        await subscribed.send(None)
        await subscribed.loop.clock.advance(5.0)

    assert subscribed.states
    assert all(state.error is not None for state in subscribed.states)


async def test_a_token_of_an_earlier_process_is_where_the_stream_begins(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS, resume_token="kept")
    await subscribed.send(Heartbeat(START, "kept"))
    at_start = subscribed.streams.is_at_start(key)

    await subscribed.send(updated("t1"))

    assert [opening.resume_token for opening in subscribed.loop.provider.openings] == ["kept"]
    assert (at_start, subscribed.streams.is_at_start(key)) == (True, False)
    assert subscribed.received() == [ChangeType.UPDATED]


async def test_a_token_that_is_refused_costs_one_new_read(subscribed: Subscribed) -> None:
    subscribed.loop.provider.errors.append(ProviderError(ErrorReason.INVALID_REQUEST, "no such token"))
    subscribed.streams.want(bound_store(), ITEMS, resume_token="kept")

    await subscribed.loop.clock.advance(10.0)
    await subscribed.send(Heartbeat(START, "t1"))
    await subscribed.send(None)
    await subscribed.loop.clock.advance(10.0)

    assert [opening.resume_token for opening in subscribed.loop.provider.openings] == ["", "t1"]
    assert subscribed.received() == [ChangeType.RESYNC]


async def test_heartbeats_move_nothing_that_would_have_to_be_kept(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(Heartbeat(START, "t1"))
    opened = subscribed.streams.moved.is_set()
    subscribed.streams.moved.clear()

    await subscribed.send(Heartbeat(START, "t2"))
    quiet = subscribed.streams.moved.is_set()
    await subscribed.send(updated("t3"))

    assert (opened, quiet, subscribed.streams.moved.is_set()) == (True, False, True)


async def test_processed_events_are_acknowledged_once(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated("t1"))
    await subscribed.send(updated("t2"))
    on_receipt = list(subscribed.loop.provider.acks)

    for token in ("t1", "t2", "t2"):
        subscribed.streams.acknowledge({key: token, StreamKey("gone", "me"): "t3"})
    await subscribed.loop.clock.settle()
    subscribed.streams.acknowledge({key: "t2"})
    await subscribed.loop.clock.settle()

    assert on_receipt == []
    assert subscribed.loop.provider.acks == ["t2"]


async def test_an_acknowledgement_waits_for_a_stream_that_broke(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated("t1"))
    await subscribed.send(None)

    subscribed.streams.acknowledge({key: "t1"})
    await subscribed.loop.clock.settle()
    broken = list(subscribed.loop.provider.acks)
    await subscribed.loop.clock.advance(2.0)

    assert broken == []
    assert subscribed.loop.provider.acks == ["t1"]


async def test_a_provider_without_tokens_has_nothing_to_be_acknowledged(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.send(updated())

    subscribed.streams.acknowledge({key: ""})
    await subscribed.loop.clock.settle()

    assert subscribed.loop.provider.acks == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(bound_store(identity="other credentials", token="t", credential=b"c"), id="other credentials"),
        pytest.param(bound_store(policy=CallPolicy(gated=False, call_timeout=1)), id="another policy"),
    ],
)
def test_a_stream_is_called_the_same_in_every_process(other: BoundStore) -> None:
    assert stream_name(other) == stream_name(bound_store())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(bound_store(endpoint("ipv4:127.0.0.1:2")), id="another provider"),
        pytest.param(_with(store=ObjectRef("v1", "SecretStore", "team", "store", "uid-2", 1)), id="another store"),
        pytest.param(_with(auth_namespace="other"), id="another namespace of credentials"),
        pytest.param(_with_config(ObjectRef("v1", "Scripted", "team", "config", "uid", 2)), id="it was changed"),
    ],
)
def test_a_configuration_that_may_mean_another_backend_gets_its_own_stream(other: BoundStore) -> None:
    assert stream_name(other) != stream_name(bound_store())


async def test_a_provider_that_cannot_subscribe_is_asked_again_much_later(subscribed: Subscribed) -> None:
    subscribed.loop.provider.broken = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "no")
    subscribed.streams.want(bound_store(), ITEMS)

    await subscribed.loop.clock.advance(600.0)

    assert subscribed.loop.provider.calls["Subscribe"] == 1
    assert all(state.error is None for state in subscribed.states)
    subscribed.loop.provider.broken = None
    await subscribed.loop.clock.advance(SubscriptionSettings().unsupported_pause - 599.0)
    assert len(subscribed.loop.provider.openings) == 1


async def test_a_stream_that_worked_and_is_unsupported_now_is_degraded(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.loop.clock.advance(SubscriptionSettings().proven_after)
    await subscribed.send(Heartbeat(START))

    subscribed.loop.provider.broken = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "no longer")
    await subscribed.send(None)
    await subscribed.loop.clock.advance(5.0)

    assert [state.error.message for state in subscribed.states if state.error is not None] == ["no longer"]


async def test_a_dropped_stream_ends_while_it_waits(subscribed: Subscribed) -> None:
    subscribed.loop.provider.broken = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "no")
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.loop.clock.advance(1.0)
    waiting = len(asyncio.all_tasks())

    subscribed.streams.drop(key)
    await subscribed.loop.clock.settle()

    assert len(asyncio.all_tasks()) < waiting


async def test_a_failing_stream_is_opened_again_ever_more_slowly(subscribed: Subscribed) -> None:
    subscribed.loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, "no")
    subscribed.streams.want(bound_store(), ITEMS)

    await subscribed.loop.clock.advance(30.0)

    assert subscribed.loop.provider.calls["Subscribe"] == 5  # at 0, 1, 3, 7, 15 seconds


async def test_a_stream_that_breaks_after_its_first_heartbeat_counts_as_failing(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)

    for _ in range(30):
        await subscribed.send(Heartbeat(START))
        await subscribed.send(None)
        await subscribed.loop.clock.advance(1.0)

    opened = len(subscribed.loop.provider.openings)
    await subscribed.loop.clock.advance(60.0)

    assert opened <= 6
    assert {state.error is not None for state in subscribed.states} == {True}


async def test_other_items_are_sent_on_the_open_stream_and_dropping_ends_it(subscribed: Subscribed) -> None:
    key = subscribed.streams.want(bound_store(), ITEMS)
    await subscribed.loop.clock.settle()
    more = WatchItem("w2", RemoteRef("b"), known_version="7")

    subscribed.streams.want(bound_store(), (*ITEMS, more))
    await subscribed.loop.clock.settle()
    watched = dict(subscribed.loop.provider.watches)
    subscribed.streams.want(bound_store(), (more,))
    await subscribed.loop.clock.settle()

    assert watched == {"w1": ITEMS[0], "w2": more}
    assert list(subscribed.loop.provider.watches) == ["w2"]
    subscribed.streams.drop(key)
    await subscribed.loop.clock.advance(1000.0)
    assert len(subscribed.loop.provider.openings) == 1
    assert subscribed.received() == []


async def test_a_stream_is_opened_again_with_all_items_and_says_known_versions_once(subscribed: Subscribed) -> None:
    """Changes since the stream was opened arrived as events, or are read after the RESYNC."""
    subscribed.streams.want(bound_store(), (replace(ITEMS[0], known_version="1"),))
    await subscribed.loop.clock.settle()
    subscribed.streams.want(bound_store(), (*ITEMS, WatchItem("w2", RemoteRef("b"), known_version="2")))
    await subscribed.loop.clock.settle()

    await subscribed.send(None)
    await subscribed.loop.clock.advance(2.0)

    first, second = subscribed.loop.provider.openings
    assert [item.known_version for item in first.items] == ["1"]
    assert [(item.watch_id, item.known_version) for item in second.items] == [("w1", ""), ("w2", "")]


async def test_items_wanted_while_the_stream_opens_are_sent(subscribed: Subscribed) -> None:
    subscribed.streams.want(bound_store(), ITEMS)
    subscribed.loop.provider.latency = 1.0
    await subscribed.loop.clock.settle()

    subscribed.streams.want(bound_store(), (*ITEMS, WatchItem("w2", RemoteRef("b"), known_version="2")))
    await subscribed.loop.clock.advance(1.0)

    assert [item.known_version for item in subscribed.loop.provider.watches.values()] == ["", "2"]


async def test_a_stream_is_opened_again_with_the_newest_credentials(subscribed: Subscribed) -> None:
    """Tokens of service accounts expire; each read brings new ones."""
    subscribed.streams.want(bound_store(spec=b'{"n":1}'), ITEMS)
    await subscribed.loop.clock.settle()
    subscribed.streams.renew(bound_store(spec=b'{"n":2}'))

    await subscribed.send(None)
    await subscribed.loop.clock.advance(2.0)

    specs = [opening.context.config.spec_json for opening in subscribed.loop.provider.openings]
    assert [spec.reveal() for spec in specs if spec is not None] == [b'{"n":1}', b'{"n":2}']


async def test_new_certificates_move_the_stream_to_the_new_channel(subscribed: Subscribed) -> None:
    bound = bound_store()
    subscribed.streams.want(bound, ITEMS)
    await subscribed.send(updated("t1"))

    subscribed.loop.materials.current = replace(subscribed.loop.materials.current, ca=b"new")
    await subscribed.loop.gateway.check(bound, [])
    await subscribed.loop.clock.settle()

    assert [opening.resume_token for opening in subscribed.loop.provider.openings] == ["", "t1"]
    assert subscribed.loop.transports[0].closed


async def test_a_storm_of_events_fills_the_queue_and_nothing_more(loop: LoopbackGateway) -> None:
    subscribed = Subscribed(loop, SubscriptionSettings(max_events=10))
    running = asyncio.create_task(subscribed.streams.run())
    subscribed.streams.want(bound_store(), ITEMS)

    for _ in range(100):
        loop.provider.events.put_nowait(updated())
    await loop.clock.settle()
    kept, unread = subscribed.streams.events.qsize(), loop.provider.events.qsize()
    running.cancel()

    assert kept == 10
    assert unread == 89


async def test_a_stream_over_real_sockets_survives_the_end_of_the_provider(wired: WiredGateway) -> None:
    settings = replace(SubscriptionSettings(), reconnect=replace(SubscriptionSettings().reconnect, first=0.05))
    streams = Subscriptions(
        wired.gateway,
        SystemClock(),
        settings=settings,
        metrics=ProviderMetrics(CollectorRegistry()),
        draw=lambda: 0.0,
    )
    running = asyncio.create_task(streams.run())
    streams.want(bound_store(endpoint(wired.host.target)), ITEMS)
    wired.provider.events.put_nowait(updated("t1"))
    first = await asyncio.wait_for(streams.events.get(), 20)

    await wired.host.stop()
    await wired.host.start()
    await wired.provider.until_called("Subscribe", 2)
    wired.provider.events.put_nowait(updated("t2"))
    second = await asyncio.wait_for(streams.events.get(), 20)

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (first.event.resume_token, second.event.resume_token) == ("t1", "t2")
    assert wired.provider.openings[-1].resume_token == "t1"
