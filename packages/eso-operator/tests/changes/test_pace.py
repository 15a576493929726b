"""An event storm costs no more reads than the pace allows."""

from eso_operator.changes.pace import Pace, PaceSettings
from eso_operator.changes.subscriptions import StreamKey
from kubebase.meta import ObjectKey

A = ObjectKey("team", "a")
STREAM, OTHER = StreamKey("connection", "one"), StreamKey("connection", "other")
SETTINGS = PaceSettings(debounce=1.0, jitter=1.0, gap=10.0, per_second=2.0)


def pace() -> Pace:
    """In which chance gives a quarter of the jitter."""
    return Pace(SETTINGS, lambda: 0.25)


def crowd(count: int) -> list[ObjectKey]:
    return [ObjectKey("team", f"follower-{number:04}") for number in range(count)]


def drained(line: Pace) -> list[tuple[float, ObjectKey]]:
    """Everybody who waits, with the time of their turn."""
    turns = []
    while (then := line.next_at()) is not None:
        turns += [(then, key) for key in line.due(then)]
    return turns


def test_a_first_event_waits_for_debounce_and_jitter_only() -> None:
    line = pace()

    line.request(A, STREAM, 100.0)

    assert line.due(101.0) == []
    assert drained(line) == [(101.25, A)]


def test_many_events_within_a_moment_are_one() -> None:
    line = pace()

    for number in range(1000):
        line.request(A, STREAM, 100.0 + number / 1000)

    assert drained(line) == [(101.25, A)]


def test_one_follower_comes_through_once_in_a_gap_however_long_the_storm_is() -> None:
    line, turns = pace(), 0

    for second in range(100):
        line.request(A, STREAM, float(second))
        turns += len(line.due(float(second)))

    assert turns == 10


def test_after_a_quiet_gap_the_next_event_is_quick_again() -> None:
    line = pace()
    line.request(A, STREAM, 0.0)
    drained(line)

    line.request(A, STREAM, 50.0)

    assert drained(line) == [(51.25, A)]


def test_the_followers_of_a_stream_come_in_line_and_other_streams_do_not_wait_for_them() -> None:
    line, followers = pace(), crowd(20)
    for key in followers:
        line.request(key, STREAM, 0.0)
    line.request(A, OTHER, 0.0)

    turns = drained(line)

    assert (1.25, A) in turns
    assert [then for then, key in turns if key != A] == [1.25 + number / 2 for number in range(20)]
    assert sorted(key for _, key in turns if key != A) == followers


def test_nothing_is_kept_after_a_storm() -> None:
    line = pace()
    for key in crowd(50):
        line.request(key, STREAM, 0.0)
    drained(line)

    line.due(1000.0)

    assert (line.next_at(), line.remembered) == (None, 0)


def test_a_storm_over_many_followers_is_let_through_in_parts() -> None:
    line, keys = pace(), crowd(2500)
    for key in keys:
        line.request(key, StreamKey("connection", key.name), 0.0)  # streams do not wait for each other

    parts = [line.due(5.0) for _ in range(4)]

    assert [len(part) for part in parts] == [1000, 1000, 500, 0]
    assert {key for part in parts for key in part} == set(keys)
