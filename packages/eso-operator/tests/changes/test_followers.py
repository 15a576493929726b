"""The index of who reads what, and who is to hear of a change."""

from collections.abc import Mapping

from eso_operator.changes.followers import FollowerLimits, Followers, ReadState, Topic, WatchedKey, topic_of
from eso_operator.changes.subscriptions import StreamKey, stream_key
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.memory import Memory
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.boundstores import bound_store, endpoint
from eso_wire.values import RemoteRef, WatchItem
from kubebase.meta import ObjectKey

A, B, C = (ObjectKey("team", name) for name in "abc")
STREAM = stream_key(bound_store())


def watched(*keys: str, identity: str = "identity", versions: Mapping[str, str] | None = None) -> WatchedKey:
    """These remote keys were read."""
    seen = versions or {}
    return WatchedKey(bound_store(identity=identity), {Topic(RemoteRef(key)): seen.get(key, "") for key in keys})


def items(followers: Followers, stream: StreamKey = STREAM) -> dict[str, WatchItem]:
    """Return the items that a stream must watch, by remote key."""
    watch_set = followers.watch_set(stream)
    return {} if watch_set is None else {item.ref.key: item for item in watch_set.items if item.ref is not None}


def hear(followers: Followers, *remote_keys: str) -> list[ObjectKey]:
    watched = items(followers)
    return followers.followers_of(STREAM, [watched[key].watch_id for key in remote_keys])


def test_a_stream_watches_what_all_its_followers_read() -> None:
    followers = Followers(Memories().external_secrets)

    followers.subscribe(A, [watched("x", "y")])
    followers.subscribe(B, [watched("y", "z")])

    assert set(items(followers)) == {"x", "y", "z"}
    assert followers.take_touched() == {STREAM}
    assert (hear(followers, "x"), hear(followers, "y"), hear(followers, "x", "z")) == ([A], [A, B], [A, B])
    assert followers.all_of(STREAM) == [A, B]


def test_each_connection_and_each_identity_is_a_stream_of_its_own() -> None:
    followers, elsewhere = Followers(Memories().external_secrets), bound_store(endpoint("ipv4:127.0.0.1:2"))

    followers.subscribe(
        A, [watched("x"), watched("x", identity="other"), WatchedKey(elsewhere, {topic_of(RemoteRef("x")): ""})]
    )

    touched = followers.take_touched()
    assert touched == {STREAM, stream_key(bound_store(identity="other")), stream_key(elsewhere)}
    assert [set(items(followers, stream)) for stream in touched] == [{"x"}] * 3


def test_sights_of_one_stream_count_together() -> None:
    followers = Followers(Memories().external_secrets)

    followers.subscribe(A, [watched("x"), watched("y")])

    assert set(items(followers)) == {"x", "y"}


def test_obsolete_reads_are_unwatched_and_their_watch_ids_are_never_reused() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x", "y")])
    old = items(followers)["x"].watch_id
    followers.take_touched()

    followers.subscribe(A, [watched("y", "z")])

    assert set(items(followers)) == {"y", "z"}
    assert followers.take_touched() == {STREAM}
    assert followers.followers_of(STREAM, [old, "never heard of"]) == []
    followers.subscribe(A, [watched("x", "y", "z")])
    assert items(followers)["x"].watch_id != old


def test_reading_the_same_again_touches_nothing() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x")])
    followers.take_touched()

    followers.subscribe(A, [watched("x", versions={"x": "2"})])
    followers.subscribe(B, [watched("x")])

    assert followers.take_touched() == set()


def test_another_identity_moves_the_follower() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x")])

    followers.subscribe(A, [watched("x", identity="rotated")])

    assert followers.watch_set(STREAM) is None
    assert followers.all_of(stream_key(bound_store(identity="rotated"))) == [A]


def test_a_stream_without_followers_is_no_longer_needed() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x")])
    followers.subscribe(B, [watched("x")])
    followers.take_touched()

    followers.unsubscribe(A)
    after_one = (followers.take_touched(), followers.all_of(STREAM))
    followers.unsubscribe(B)

    assert after_one == (set(), [B])
    assert followers.take_touched() == {STREAM}
    assert followers.watch_set(STREAM) is None
    assert len(followers) == 0


def test_a_provider_hears_the_version_that_was_read_the_longest_ago() -> None:
    """Then followers that differ all hear of it."""
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x", versions={"x": "1"})])
    followers.subscribe(B, [watched("x", versions={"x": "2"})])
    before = items(followers)["x"].known_version

    followers.subscribe(A, [watched("x", versions={"x": "2"})])

    assert (before, items(followers)["x"].known_version) == ("1", "2")


def test_the_index_is_bounded_and_reads_beyond_it_are_not_followed() -> None:
    followers = Followers(Memories().external_secrets, FollowerLimits(followers=2, streams=1, topics=2))

    followers.subscribe(A, [watched("x", "y", "z"), watched("x", identity="second stream")])
    followers.subscribe(B, [watched("x")])
    followers.subscribe(C, [watched("x")])

    assert set(items(followers)) == {"x", "y"}
    assert followers.take_touched() == {STREAM}
    assert followers.all_of(STREAM) == [A, B]
    followers.unsubscribe(A)
    followers.subscribe(C, [watched("z")])
    assert followers.all_of(STREAM) == [B, C]


def test_an_announcement_stays_until_the_follower_has_read_that_change() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x")])

    followers.notify(A, 1.0)
    followers.notify(A, 2.0)
    followers.mark_read(A, 1.0)
    in_between = followers.notified_at(A)
    followers.mark_read(A, None)
    followers.mark_read(A, 2.0)

    assert (in_between, followers.notified_at(A)) == (2.0, None)


def test_only_followers_get_events() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x")])
    followers.notify(A, 1.0)

    followers.unsubscribe(A)

    assert followers.notified_at(A) is None
    assert not followers.notify(A, 2.0)
    assert followers.notified_at(A) is None


def test_who_has_not_read_is_named_once_for_each_stream() -> None:
    followers = Followers(Memories().external_secrets)
    other = stream_key(bound_store(identity="other"))
    followers.subscribe(A, [watched("x"), watched("x", identity="other")], ReadState.UNREAD)
    followers.subscribe(B, [watched("x")], ReadState.PART)

    first = [followers.take_unread(stream) for stream in (STREAM, other)]
    again = followers.take_unread(STREAM)
    followers.subscribe(A, [watched("x", "y")], ReadState.UNREAD)

    assert (first, again) == ([[A], [A]], [])
    assert followers.take_unread(STREAM) == [A]


def test_who_reads_or_leaves_has_nothing_to_make_up_for() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x")], ReadState.UNREAD)
    followers.subscribe(B, [watched("x")], ReadState.UNREAD)

    followers.subscribe(A, [watched("x")], ReadState.WHOLE)
    followers.unsubscribe(B)

    assert followers.take_unread(STREAM) == []


def test_a_reconcile_without_a_read_keeps_what_this_process_has_read() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x", versions={"x": "2"})], ReadState.WHOLE)

    followers.subscribe(A, [watched("x", "y")], ReadState.UNREAD)

    assert {key: item.known_version for key, item in items(followers).items()} == {"x": "2", "y": ""}
    assert not followers.watches_all(A)


def test_only_who_has_read_everything_and_found_room_hears_of_all() -> None:
    followers = Followers(Memories().external_secrets, FollowerLimits(topics=2))

    followers.subscribe(A, [watched("x"), watched("x")], ReadState.WHOLE)
    followers.subscribe(B, [watched("x")], ReadState.PART)
    followers.subscribe(C, [watched("x", "y", "z")], ReadState.WHOLE)

    assert [followers.watches_all(key) for key in (A, B, C)] == [True, False, False]


def test_who_follows_is_known_by_stream_and_target() -> None:
    followers = Followers(Memories().external_secrets)
    followers.subscribe(A, [watched("x"), watched("x", identity="other")])
    followers.notify(A, 1.0)

    assert followers.streams_of([A, B]) == {STREAM, stream_key(bound_store(identity="other"))}
    assert sorted(bound.identity for bound in followers.stores_of(A)) == ["identity", "other"]
    assert followers.notified() == [A]


def test_a_follower_with_an_unread_change_is_evicted_last() -> None:
    memory = Memory(ExternalSecretRecord, limit=2)
    followers = Followers(memory)
    for key in (A, B):
        followers.subscribe(key, [watched("db")])
    followers.notify(A, 1.0)

    memory.at(C)

    assert followers.notified() == [A]
