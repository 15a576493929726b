"""The index of who reads what, and who is to hear of a change."""

from collections.abc import Mapping

from eso_operator.changes.followers import FollowerLimits, Followers
from eso_operator.changes.sights import Reading, Sight, Topic, topic_of
from eso_operator.changes.subscriptions import StreamKey, stream_key
from eso_operator.controllers.externalsecret.memory import ExternalSecretRecord
from eso_operator.memory import Memory
from eso_operator.process.memory import Memories
from eso_operator.testing.boundstores import bound_store, endpoint
from eso_wire.values import RemoteRef, WatchItem
from kubebase.meta import ObjectKey

A, B, C = (ObjectKey("team", name) for name in "abc")
STREAM = stream_key(bound_store())


def sight(*keys: str, identity: str = "identity", versions: Mapping[str, str] | None = None) -> Sight:
    """These remote keys were read."""
    seen = versions or {}
    return Sight(bound_store(identity=identity), {Topic(RemoteRef(key)): seen.get(key, "") for key in keys})


def items(followers: Followers, stream: StreamKey = STREAM) -> dict[str, WatchItem]:
    """Return the items that a stream must watch, by remote key."""
    wish = followers.wish(stream)
    return {} if wish is None else {item.ref.key: item for item in wish.items if item.ref is not None}


def hear(followers: Followers, *remote_keys: str) -> list[ObjectKey]:
    watched = items(followers)
    return followers.followers_of(STREAM, [watched[key].watch_id for key in remote_keys])


def test_a_stream_watches_what_all_its_followers_read() -> None:
    followers = Followers(Memories().external_secrets)

    followers.follow(A, [sight("x", "y")])
    followers.follow(B, [sight("y", "z")])

    assert set(items(followers)) == {"x", "y", "z"}
    assert followers.take_touched() == {STREAM}
    assert (hear(followers, "x"), hear(followers, "y"), hear(followers, "x", "z")) == ([A], [A, B], [A, B])
    assert followers.all_of(STREAM) == [A, B]


def test_each_connection_and_each_identity_is_a_stream_of_its_own() -> None:
    followers, elsewhere = Followers(Memories().external_secrets), bound_store(endpoint("ipv4:127.0.0.1:2"))

    followers.follow(A, [sight("x"), sight("x", identity="other"), Sight(elsewhere, {topic_of(RemoteRef("x")): ""})])

    touched = followers.take_touched()
    assert touched == {STREAM, stream_key(bound_store(identity="other")), stream_key(elsewhere)}
    assert [set(items(followers, stream)) for stream in touched] == [{"x"}] * 3


def test_sights_of_one_stream_count_together() -> None:
    followers = Followers(Memories().external_secrets)

    followers.follow(A, [sight("x"), sight("y")])

    assert set(items(followers)) == {"x", "y"}


def test_obsolete_reads_are_unwatched_and_their_watch_ids_are_never_reused() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x", "y")])
    old = items(followers)["x"].watch_id
    followers.take_touched()

    followers.follow(A, [sight("y", "z")])

    assert set(items(followers)) == {"y", "z"}
    assert followers.take_touched() == {STREAM}
    assert followers.followers_of(STREAM, [old, "never heard of"]) == []
    followers.follow(A, [sight("x", "y", "z")])
    assert items(followers)["x"].watch_id != old


def test_reading_the_same_again_touches_nothing() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x")])
    followers.take_touched()

    followers.follow(A, [sight("x", versions={"x": "2"})])
    followers.follow(B, [sight("x")])

    assert followers.take_touched() == set()


def test_another_identity_moves_the_follower() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x")])

    followers.follow(A, [sight("x", identity="rotated")])

    assert followers.wish(STREAM) is None
    assert followers.all_of(stream_key(bound_store(identity="rotated"))) == [A]


def test_a_stream_without_followers_is_no_longer_needed() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x")])
    followers.follow(B, [sight("x")])
    followers.take_touched()

    followers.leave(A)
    after_one = (followers.take_touched(), followers.all_of(STREAM))
    followers.leave(B)

    assert after_one == (set(), [B])
    assert followers.take_touched() == {STREAM}
    assert followers.wish(STREAM) is None
    assert len(followers) == 0


def test_a_provider_hears_the_version_that_was_read_the_longest_ago() -> None:
    """Then followers that differ all hear of it."""
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x", versions={"x": "1"})])
    followers.follow(B, [sight("x", versions={"x": "2"})])
    before = items(followers)["x"].known_version

    followers.follow(A, [sight("x", versions={"x": "2"})])

    assert (before, items(followers)["x"].known_version) == ("1", "2")


def test_the_index_is_bounded_and_reads_beyond_it_are_not_followed() -> None:
    followers = Followers(Memories().external_secrets, FollowerLimits(followers=2, streams=1, topics=2))

    followers.follow(A, [sight("x", "y", "z"), sight("x", identity="second stream")])
    followers.follow(B, [sight("x")])
    followers.follow(C, [sight("x")])

    assert set(items(followers)) == {"x", "y"}
    assert followers.take_touched() == {STREAM}
    assert followers.all_of(STREAM) == [A, B]
    followers.leave(A)
    followers.follow(C, [sight("z")])
    assert followers.all_of(STREAM) == [B, C]


def test_an_announcement_stays_until_the_follower_has_read_that_change() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x")])

    followers.tell(A, 1.0)
    followers.tell(A, 2.0)
    followers.heard(A, 1.0)
    in_between = followers.told_at(A)
    followers.heard(A, None)
    followers.heard(A, 2.0)

    assert (in_between, followers.told_at(A)) == (2.0, None)


def test_only_followers_get_events() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x")])
    followers.tell(A, 1.0)

    followers.leave(A)

    assert followers.told_at(A) is None
    assert not followers.tell(A, 2.0)
    assert followers.told_at(A) is None


def test_who_has_not_read_is_named_once_for_each_stream() -> None:
    followers = Followers(Memories().external_secrets)
    other = stream_key(bound_store(identity="other"))
    followers.follow(A, [sight("x"), sight("x", identity="other")], Reading.UNREAD)
    followers.follow(B, [sight("x")], Reading.PART)

    first = [followers.take_unread(stream) for stream in (STREAM, other)]
    again = followers.take_unread(STREAM)
    followers.follow(A, [sight("x", "y")], Reading.UNREAD)

    assert (first, again) == ([[A], [A]], [])
    assert followers.take_unread(STREAM) == [A]


def test_who_reads_or_leaves_has_nothing_to_make_up_for() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x")], Reading.UNREAD)
    followers.follow(B, [sight("x")], Reading.UNREAD)

    followers.follow(A, [sight("x")], Reading.WHOLE)
    followers.leave(B)

    assert followers.take_unread(STREAM) == []


def test_a_reconcile_without_a_read_keeps_what_this_process_has_read() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x", versions={"x": "2"})], Reading.WHOLE)

    followers.follow(A, [sight("x", "y")], Reading.UNREAD)

    assert {key: item.known_version for key, item in items(followers).items()} == {"x": "2", "y": ""}
    assert not followers.hears_of_all(A)


def test_only_who_has_read_everything_and_found_room_hears_of_all() -> None:
    followers = Followers(Memories().external_secrets, FollowerLimits(topics=2))

    followers.follow(A, [sight("x"), sight("x")], Reading.WHOLE)
    followers.follow(B, [sight("x")], Reading.PART)
    followers.follow(C, [sight("x", "y", "z")], Reading.WHOLE)

    assert [followers.hears_of_all(key) for key in (A, B, C)] == [True, False, False]


def test_who_follows_is_known_by_stream_and_target() -> None:
    followers = Followers(Memories().external_secrets)
    followers.follow(A, [sight("x"), sight("x", identity="other")])
    followers.tell(A, 1.0)

    assert followers.streams_of([A, B]) == {STREAM, stream_key(bound_store(identity="other"))}
    assert sorted(bound.identity for bound in followers.stores_of(A)) == ["identity", "other"]
    assert followers.told() == [A]


def test_a_follower_with_an_unread_change_is_evicted_last() -> None:
    memory = Memory(ExternalSecretRecord, limit=2)
    followers = Followers(memory)
    for key in (A, B):
        followers.follow(key, [sight("db")])
    followers.tell(A, 1.0)

    memory.at(C)

    assert followers.told() == [A]
