"""From a provider's event to the queue, in virtual time."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from eso_operator.changes.feed import SAVE_SECONDS
from eso_operator.changes.followers import ReadState, WatchedKey, topic_of
from eso_operator.dependencies import OnObject
from eso_operator.providers.settings import SubscriptionSettings
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.changefeeds import MemoryLeases, Stage, running, watched
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, Heartbeat, RemoteRef
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START

A, B = ObjectKey("team", "a"), ObjectKey("team", "b")
RESYNC = ChangeEvent(ChangeType.RESYNC)
STORE = OnObject("", "SecretStore", ObjectKey("team", "store"))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with running(Stage()) as made:
        yield made


async def test_an_event_brings_its_followers_into_the_queue_and_they_know_why(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    await stage.subscribe(B, watched("y"))

    await stage.send(stage.loop.provider.changed("x"))

    assert await stage.after(2.0) == [A]
    notified = stage.changes.notified_at(A)
    assert notified is not None
    assert stage.changes.notified_at(B) is None
    stage.changes.mark_read(A, notified)
    assert stage.changes.notified_at(A) is None


async def test_how_late_an_event_is_acted_on_is_counted(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    happened = stage.clock.now() - timedelta(seconds=7)

    await stage.send(replace(stage.loop.provider.changed("x"), observed_at=happened))

    lag = stage.loop.registry.get_sample_value("eso_provider_subscription_lag_seconds_sum", {"provider": "scripted"})
    assert lag == 7


async def test_a_crowd_of_followers_is_one_stream_and_few_messages(stage: Stage) -> None:
    for number in range(300):
        stage.changes.subscribe(ObjectKey("team", str(number)), [watched(f"key-{number}")])
    await stage.clock.advance(2.0)

    assert len(stage.watched) == 300
    assert stage.loop.provider.calls["Subscribe"] == 1


async def test_a_reading_follower_gives_the_stream_its_newest_credentials(stage: Stage) -> None:
    """Tokens of service accounts expire."""
    await stage.subscribe(A, watched("x"))
    renewed = WatchedKey(bound_store(spec=b'{"n":2}'), {topic_of(RemoteRef("x")): ""})

    await stage.subscribe(A, renewed)
    await stage.send(None)
    await stage.after(10.0)

    specs = [opening.context.config.spec_json for opening in stage.loop.provider.openings]
    assert [spec.reveal() for spec in specs if spec is not None] == [b"{}", b'{"n":2}']


async def test_a_stream_whose_credentials_expired_lets_one_follower_read_to_renew_them(stage: Stage) -> None:
    """Otherwise a long refresh interval would leave the stream closed until its end."""
    await stage.subscribe(A, watched("x"))
    await stage.subscribe(B, watched("x"))

    stage.loop.provider.broken = ProviderError(ErrorReason.CREDENTIALS_REJECTED, "the token expired")
    await stage.send(None)

    assert await stage.after(5.0) == [A]


async def test_former_followers_get_no_event_and_the_last_one_closes_the_stream(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    await stage.subscribe(B, watched("x"))
    event = stage.loop.provider.changed("x")

    stage.changes.unsubscribe(A)
    await stage.send(event)
    woken = await stage.after(5.0)
    stage.changes.unsubscribe(B)
    await stage.after(5.0)

    assert woken == [B]
    assert len(stage.streams) == 0


async def test_a_follower_that_leaves_while_it_waits_gets_no_event(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    await stage.send(stage.loop.provider.changed("x"))

    stage.changes.unsubscribe(A)

    assert await stage.after(60.0) == []


async def test_a_storm_costs_one_read_in_a_gap(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    event = stage.loop.provider.changed("x")

    reads = []
    for _ in range(30):
        await stage.send(*[event] * 200)
        reads += await stage.after(1.0)

    assert reads == [A, A, A]


async def test_a_resync_concerns_all_followers_of_the_stream_in_line(stage: Stage) -> None:
    keys = [ObjectKey("team", f"{number:03}") for number in range(200)]
    for key in keys:
        stage.changes.subscribe(key, [watched(f"of-{key.name}")])
    await stage.clock.advance(2.0)

    await stage.send(RESYNC)
    seconds = [await stage.after(1.0) for _ in range(6)]

    assert sorted(key for second in seconds for key in second) == keys
    assert max(len(second) for second in seconds) <= 52  # fifty in a second, and the two ends of it


async def test_a_broken_stream_is_reopened_and_all_followers_read(stage: Stage) -> None:
    """There was no token to resume from."""
    await stage.subscribe(A, watched("x"))
    await stage.subscribe(B, watched("y"))

    await stage.send(None)

    assert sorted(await stage.after(10.0)) == [A, B]
    assert stage.watched == {"x", "y"}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ChangeEvent(ChangeType.UPDATED, ("unknown",)), id="an unknown watch"),
        pytest.param(ChangeEvent(ChangeType.UPDATED), id="no watch at all"),
        pytest.param(ChangeEvent(ChangeType.CONDITION), id="a condition"),
        pytest.param(Heartbeat(START), id="a heartbeat"),
    ],
)
async def test_an_event_without_followers_causes_no_refresh(stage: Stage, event: ChangeEvent | Heartbeat) -> None:
    await stage.subscribe(A, watched("x"))

    await stage.send(event)

    assert await stage.after(60.0) == []


# --- streams that break -----------------------------------------------------------------------------------------------


async def test_a_provider_that_fails_to_stream_is_named_once_and_affects_no_object(stage: Stage) -> None:
    stage.loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, "no stream today")
    with capture_logs() as logs:
        await stage.subscribe(A, watched("x"))
        await stage.clock.advance(600.0)
        troubled, broken = stage.changes.trouble(STORE), list(stage.stores)
        stage.loop.provider.broken = None
        while not stage.loop.provider.openings:
            await stage.clock.advance(1.0)
        await stage.clock.advance(SubscriptionSettings().proven_after)
        await stage.send(Heartbeat(START))

    said = [(line["log_level"], line["store"], line.get("why")) for line in logs if "push refresh" in line["event"]]
    assert said == [("warning", "SecretStore team/store", "no stream today"), ("info", "SecretStore team/store", None)]
    assert troubled == "BackendError: no stream today"
    assert stage.changes.trouble(STORE) is None
    assert (broken, stage.stores) == ([STORE], [STORE, STORE])


async def test_a_backend_without_a_change_feed_is_no_trouble_of_the_store(stage: Stage) -> None:
    stage.loop.provider.broken = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "this server has no change feed")
    with capture_logs() as logs:
        await stage.subscribe(A, watched("x"))
        await stage.clock.advance(600.0)

    assert stage.loop.provider.calls["Subscribe"] == 1
    assert stage.changes.trouble(STORE) is None
    assert stage.stores == []
    assert [line for line in logs if "push refresh" in line["event"]] == []


async def test_missing_heartbeats_are_a_trouble_of_the_store_and_of_no_other(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))

    await stage.clock.advance(95.0)

    assert stage.changes.trouble(STORE) == "BackendTimeout: no heartbeat for 90 s"
    assert stage.changes.trouble(OnObject("", "SecretStore", ObjectKey("team", "other"))) is None


async def test_the_trouble_of_a_stream_without_followers_is_cleared(stage: Stage) -> None:
    stage.loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, "not today")
    await stage.subscribe(A, watched("x"))
    await stage.clock.advance(600.0)
    troubled = stage.changes.trouble(STORE)

    stage.changes.unsubscribe(A)
    await stage.clock.advance(2.0)

    assert troubled is not None
    assert stage.changes.trouble(STORE) is None
    assert stage.stores == [STORE, STORE]


async def test_who_has_read_everything_is_covered_while_the_stream_works(stage: Stage) -> None:
    whole, part, unread = (ObjectKey("team", name) for name in ("whole", "part", "unread"))
    stage.changes.subscribe(whole, [watched("x")], ReadState.WHOLE)
    stage.changes.subscribe(part, [watched("x")], ReadState.PART)
    stage.changes.subscribe(unread, [watched("x")], ReadState.UNREAD)
    before = stage.changes.is_covered(whole)
    await stage.clock.advance(2.0)
    covered = [stage.changes.is_covered(key) for key in (whole, part, unread)]

    stage.loop.provider.broken = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "gone")
    await stage.send(None)

    assert not before
    assert covered == [True, False, False]
    assert not stage.changes.is_covered(whole)


# --- where streams are ------------------------------------------------------------------------------------------------


async def restarted(stage: Stage) -> Stage:
    """Another process, later, with the same provider and the same record."""
    stage.loop.provider.openings.clear()
    return Stage(stage.loop, stage.pace, stage.leases)


async def test_a_successor_resumes_the_stream_without_reading_again() -> None:
    async with running(Stage()) as first:
        await first.subscribe(A, watched("x"))
        await first.send(Heartbeat(START, "t1"))

    async with running(await restarted(first)) as second:
        await second.subscribe(A, watched("x"), read_state=ReadState.UNREAD)
        quiet = await second.after(60.0)
        await second.send(second.loop.provider.changed("x", resume_token="t2"))
        woken = await second.after(60.0)

    assert second.openings == ["t1"]
    assert (quiet, woken) == ([], [A])


async def test_without_a_token_those_who_have_not_read_read_once_in_line() -> None:
    keys = [ObjectKey("team", f"{number:03}") for number in range(200)]
    async with running(Stage()) as first:
        await first.subscribe(A, watched("x"))

    async with running(await restarted(first)) as second:
        for key in keys:
            second.changes.subscribe(key, [watched(f"of-{key.name}")], ReadState.UNREAD)
        second.changes.subscribe(B, [watched("y")], ReadState.WHOLE)
        seconds = [await second.after(1.0) for _ in range(60)]

    assert sorted(key for each in seconds for key in each) == keys
    assert max(len(each) for each in seconds) <= 52


async def test_a_follower_that_joins_a_watched_topic_reads_too() -> None:
    async with running(Stage()) as first:
        await first.subscribe(A, watched("x"))

    async with running(await restarted(first)) as second:
        await second.subscribe(A, watched("x"), read_state=ReadState.UNREAD)
        await second.subscribe(B, watched("x"), read_state=ReadState.UNREAD)

        assert sorted(await second.after(10.0)) == [A, B]


async def test_a_stream_that_was_never_open_causes_no_reads() -> None:
    """Nothing was promised: until now they were read at their interval."""
    async with running(Stage()) as stage:
        await stage.subscribe(A, watched("x"), read_state=ReadState.UNREAD)

        assert await stage.after(60.0) == []


async def test_a_token_that_is_refused_costs_one_read_of_everything() -> None:
    async with running(Stage()) as first:
        await first.subscribe(A, watched("x"))
        await first.send(Heartbeat(START, "t1"))

    async with running(await restarted(first)) as second:
        second.loop.provider.errors.append(ProviderError(ErrorReason.INVALID_REQUEST, "what token?"))
        await second.subscribe(A, watched("x"), read_state=ReadState.UNREAD)

        assert await second.after(10.0) == [A]
        assert await second.after(60.0) == []


async def test_who_comes_after_the_stream_has_moved_on_reads_once() -> None:
    """The provider reports the changes since the token, but only for the items that are watched by then."""
    late, later = ObjectKey("team", "late"), ObjectKey("team", "later")
    async with running(Stage()) as first:
        await first.subscribe(A, watched("x"))
        await first.send(Heartbeat(START, "t1"))

    async with running(await restarted(first)) as second:
        await second.subscribe(A, watched("x"), read_state=ReadState.UNREAD)
        await second.subscribe(late, watched("late"), read_state=ReadState.UNREAD)
        none = await second.after(60.0)
        await second.send(second.loop.provider.changed("x", resume_token="t2"))
        moved = await second.after(60.0)
        await second.subscribe(later, watched("later"), read_state=ReadState.UNREAD)
        came = await second.after(60.0)

    assert (none, moved, came) == ([], [A], [later])


async def test_events_cost_one_write_in_a_minute_and_silence_costs_none(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    await stage.clock.advance(SAVE_SECONDS)
    opened = stage.leases.writes

    for number in range(300):
        await stage.send(stage.loop.provider.changed("x", resume_token=f"t{number}"), Heartbeat(START))
        await stage.after(1.0)
        await stage.read(A)
    stormy = stage.leases.writes - opened
    await stage.clock.advance(SAVE_SECONDS)
    after = stage.leases.writes
    for number in range(20):
        await stage.clock.advance(30.0)
        await stage.send(Heartbeat(START, f"quiet-{number}"))

    assert opened == 1
    assert 1 <= stormy <= 5
    assert stage.leases.writes == after


async def test_a_change_that_was_not_read_yet_is_not_left_behind() -> None:
    """A successor of a process that died in between hears of it again."""
    async with running(Stage()) as first:
        await first.subscribe(A, watched("x"))
        await first.send(Heartbeat(START, "t1"))
        await first.clock.advance(SAVE_SECONDS)
        await first.send(first.loop.provider.changed("x", resume_token="t2"))
        notified = await first.after(2 * SAVE_SECONDS)

    async with running(await restarted(first)) as second:
        await second.subscribe(A, watched("x"), read_state=ReadState.UNREAD)
        unread = list(second.openings)
        await second.send(second.loop.provider.changed("x", resume_token="t2"))
        await second.after(2.0)
        await second.read(A)

    async with running(await restarted(second)) as third:
        await third.subscribe(A, watched("x"), read_state=ReadState.UNREAD)

    assert notified == [A]
    assert unread == ["t1"]
    assert third.openings == ["t2"]


async def test_an_event_is_acknowledged_once_all_its_followers_have_read(stage: Stage) -> None:
    """A provider that deletes acknowledged events would lose one if the operator crashed before the reads."""
    await stage.subscribe(A, watched("x"))
    await stage.subscribe(B, watched("x"))
    await stage.send(stage.loop.provider.changed("x", resume_token="t1"))
    await stage.after(2 * SAVE_SECONDS)

    await stage.read(A)
    await stage.after(2 * SAVE_SECONDS)
    half = list(stage.loop.provider.acks)
    await stage.read(B)
    await stage.after(2 * SAVE_SECONDS)

    assert half == []
    assert stage.loop.provider.acks == ["t1"]


async def test_a_record_that_cannot_be_written_keeps_no_provider_waiting(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    await stage.send(stage.loop.provider.changed("x", resume_token="t1"))
    await stage.after(2.0)
    await stage.read(A)
    stage.leases.down = True

    await stage.after(SAVE_SECONDS)

    assert stage.loop.provider.acks == ["t1"]


async def test_a_storm_of_events_and_quiet_heartbeats_cost_few_acknowledgements(stage: Stage) -> None:
    await stage.subscribe(A, watched("x"))
    for number in range(300):
        await stage.send(stage.loop.provider.changed("x", resume_token=f"t{number}"))
        await stage.after(1.0)
        await stage.read(A)
    await stage.after(20.0)
    await stage.read(A)
    await stage.after(SAVE_SECONDS)
    stormy = list(stage.loop.provider.acks)

    for _ in range(4):
        await stage.send(Heartbeat(START, "quiet"))
        await stage.after(SAVE_SECONDS)

    assert len(stormy) <= 8
    assert stormy[-1] == "t299"
    assert stage.loop.provider.acks == [*stormy, "quiet"]


async def test_two_streams_of_one_store_leave_the_record_alone(stage: Stage) -> None:
    """While credentials change there is an old one and a new one, and either may be behind."""
    await stage.subscribe(A, watched("x"))
    await stage.clock.advance(SAVE_SECONDS)
    before = stage.leases.writes

    await stage.subscribe(B, watched("x", identity="rotated"))
    await stage.send(stage.loop.provider.changed("x", resume_token="t1"))
    await stage.after(5.0)
    await stage.read(A, B)
    await stage.clock.advance(2 * SAVE_SECONDS)

    assert stage.leases.writes == before


async def test_a_record_that_cannot_be_read_or_written_affects_no_object() -> None:
    async with running(Stage(leases=MemoryLeases(down=True))) as stage:
        await stage.subscribe(A, watched("x"), read_state=ReadState.UNREAD)
        await stage.send(stage.loop.provider.changed("x", resume_token="t1"))

        assert await stage.after(60.0) == [A]
