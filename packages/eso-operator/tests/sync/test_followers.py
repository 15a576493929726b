"""The index of who reads what, and who is to hear of a change."""

from collections.abc import Mapping

from eso_operator.providers.subscriptions import StreamKey, stream_key
from eso_operator.sync.followers import FollowerLimits, Followers, Reading, Sight, Topic, topic_of
from eso_operator.testing.boundtargets import bound_target, endpoint
from eso_wire.values import RemoteRef, WatchItem
from kuberun.meta import ObjectKey

A, B, C = (ObjectKey("team", name) for name in "abc")
STREAM = stream_key(bound_target())


def sight(*keys: str, identity: str = "identity", versions: Mapping[str, str] | None = None) -> Sight:
    """These remote keys were read."""
    seen = versions or {}
    return Sight(bound_target(identity=identity), {Topic(RemoteRef(key)): seen.get(key, "") for key in keys})


def items(followers: Followers, stream: StreamKey = STREAM) -> dict[str, WatchItem]:
    """What a stream is to watch, by remote key."""
    wish = followers.wish(stream)
    return {} if wish is None else {item.ref.key: item for item in wish.items if item.ref is not None}


def hear(followers: Followers, *remote_keys: str) -> list[ObjectKey]:
    watched = items(followers)
    return followers.followers_of(STREAM, [watched[key].watch_id for key in remote_keys])


def test_a_stream_watches_what_all_its_followers_read() -> None:
    followers = Followers()

    followers.follow(A, [sight("x", "y")])
    followers.follow(B, [sight("y", "z")])

    assert set(items(followers)) == {"x", "y", "z"}
    assert followers.take_touched() == {STREAM}
    assert (hear(followers, "x"), hear(followers, "y"), hear(followers, "x", "z")) == ([A], [A, B], [A, B])
    assert followers.all_of(STREAM) == [A, B]


def test_each_connection_and_each_identity_is_a_stream_of_its_own() -> None:
    followers, elsewhere = Followers(), bound_target(endpoint("ipv4:127.0.0.1:2"))

    followers.follow(A, [sight("x"), sight("x", identity="other"), Sight(elsewhere, {topic_of(RemoteRef("x")): ""})])

    touched = followers.take_touched()
    assert touched == {STREAM, stream_key(bound_target(identity="other")), stream_key(elsewhere)}
    assert [set(items(followers, stream)) for stream in touched] == [{"x"}] * 3


def test_sights_of_one_stream_count_together() -> None:
    followers = Followers()

    followers.follow(A, [sight("x"), sight("y")])

    assert set(items(followers)) == {"x", "y"}


def test_what_is_read_no_more_is_watched_no_more_and_its_watch_id_means_nothing_else() -> None:
    followers = Followers()
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
    followers = Followers()
    followers.follow(A, [sight("x")])
    followers.take_touched()

    followers.follow(A, [sight("x", versions={"x": "2"})])
    followers.follow(B, [sight("x")])

    assert followers.take_touched() == set()


def test_another_identity_moves_the_follower() -> None:
    followers = Followers()
    followers.follow(A, [sight("x")])

    followers.follow(A, [sight("x", identity="rotated")])

    assert followers.wish(STREAM) is None
    assert followers.all_of(stream_key(bound_target(identity="rotated"))) == [A]


def test_a_stream_whose_last_follower_leaves_is_needed_no_more() -> None:
    followers = Followers()
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
    followers = Followers()
    followers.follow(A, [sight("x", versions={"x": "1"})])
    followers.follow(B, [sight("x", versions={"x": "2"})])
    before = items(followers)["x"].known_version

    followers.follow(A, [sight("x", versions={"x": "2"})])

    assert (before, items(followers)["x"].known_version) == ("1", "2")


def test_everything_is_bounded_and_what_does_not_fit_is_left_out() -> None:
    followers = Followers(FollowerLimits(followers=2, streams=1, topics=2))

    followers.follow(A, [sight("x", "y", "z"), sight("x", identity="second stream")])
    followers.follow(B, [sight("x")])
    followers.follow(C, [sight("x")])

    assert set(items(followers)) == {"x", "y"}
    assert followers.take_touched() == {STREAM}
    assert followers.all_of(STREAM) == [A, B]
    followers.leave(A)
    followers.follow(C, [sight("z")])
    assert followers.all_of(STREAM) == [B, C]


def test_who_was_told_stays_told_until_it_has_read_what_it_was_told_of() -> None:
    followers = Followers()
    followers.follow(A, [sight("x")])

    followers.tell(A, 1.0)
    followers.tell(A, 2.0)
    followers.heard(A, 1.0)
    in_between = followers.told_at(A)
    followers.heard(A, None)
    followers.heard(A, 2.0)

    assert (in_between, followers.told_at(A)) == (2.0, None)


def test_only_followers_are_told() -> None:
    followers = Followers()
    followers.follow(A, [sight("x")])
    followers.tell(A, 1.0)

    followers.leave(A)

    assert followers.told_at(A) is None
    assert not followers.tell(A, 2.0)
    assert followers.told_at(A) is None


def test_who_has_not_read_is_named_once_for_each_stream() -> None:
    followers = Followers()
    other = stream_key(bound_target(identity="other"))
    followers.follow(A, [sight("x"), sight("x", identity="other")], Reading.UNREAD)
    followers.follow(B, [sight("x")], Reading.PART)

    first = [followers.take_unread(stream) for stream in (STREAM, other)]
    again = followers.take_unread(STREAM)
    followers.follow(A, [sight("x", "y")], Reading.UNREAD)

    assert (first, again) == ([[A], [A]], [])
    assert followers.take_unread(STREAM) == [A]


def test_who_reads_or_leaves_has_nothing_to_make_up_for() -> None:
    followers = Followers()
    followers.follow(A, [sight("x")], Reading.UNREAD)
    followers.follow(B, [sight("x")], Reading.UNREAD)

    followers.follow(A, [sight("x")], Reading.WHOLE)
    followers.leave(B)

    assert followers.take_unread(STREAM) == []


def test_what_this_process_has_read_is_not_forgotten_when_it_is_looked_at_without_reading() -> None:
    followers = Followers()
    followers.follow(A, [sight("x", versions={"x": "2"})], Reading.WHOLE)

    followers.follow(A, [sight("x", "y")], Reading.UNREAD)

    assert {key: item.known_version for key, item in items(followers).items()} == {"x": "2", "y": ""}
    assert not followers.hears_of_all(A)


def test_only_who_has_read_everything_and_found_room_hears_of_all() -> None:
    followers = Followers(FollowerLimits(topics=2))

    followers.follow(A, [sight("x"), sight("x")], Reading.WHOLE)
    followers.follow(B, [sight("x")], Reading.PART)
    followers.follow(C, [sight("x", "y", "z")], Reading.WHOLE)

    assert [followers.hears_of_all(key) for key in (A, B, C)] == [True, False, False]


def test_who_follows_is_known_by_stream_and_target() -> None:
    followers = Followers()
    followers.follow(A, [sight("x"), sight("x", identity="other")])
    followers.tell(A, 1.0)

    assert followers.streams_of([A, B]) == {STREAM, stream_key(bound_target(identity="other"))}
    assert sorted(bound.identity for bound in followers.targets_of(A)) == ["identity", "other"]
    assert followers.told() == [A]
