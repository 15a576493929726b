"""The positions of a stream up to which events count as read."""

from eso_operator.changes.resumetokens import Checkpoints
from eso_operator.changes.subscriptions import StreamKey
from kubebase.meta import ObjectKey

A, B = ObjectKey("team", "a"), ObjectKey("team", "b")
STREAM, OTHER = StreamKey("here", "me"), StreamKey("there", "me")


def test_a_mark_settles_once_all_followers_have_read() -> None:
    marks = Checkpoints()
    marks.mark(STREAM, "t1", {A: 5.0, B: 5.0})
    marks.mark(OTHER, "o1", {})

    marks.read(A, 6.0)
    early = (marks.take_completed(STREAM), marks.take_completed(OTHER))
    marks.left(B)

    assert early == (None, "o1")
    assert [marks.take_completed(STREAM) for _ in range(2)] == ["t1", None]


def test_a_read_before_the_announcement_does_not_count() -> None:
    marks = Checkpoints()
    marks.mark(STREAM, "t1", {A: 5.0})

    marks.read(A, 4.0)
    before = marks.take_completed(STREAM)
    marks.read(A, 5.0)

    assert (before, marks.take_completed(STREAM)) == (None, "t1")


def test_a_stream_that_is_gone_is_settled_nowhere() -> None:
    marks = Checkpoints()
    marks.mark(STREAM, "t1", {})

    marks.forget(STREAM)

    assert marks.take_completed(STREAM) is None
    assert STREAM not in marks.marked()
