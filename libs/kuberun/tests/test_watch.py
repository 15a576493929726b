"""Listing and watching as a pure state machine: every step and every frame, in tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kubebase.meta import Malformed, Object, ObjectMeta, Page
from kuberun.testing.source import FakeCollection
from kuberun.watch import (
    Applied,
    Bookmarked,
    Changed,
    Deleted,
    Disconnected,
    Ended,
    Event,
    Listed,
    Listing,
    ListReason,
    Outage,
    PageListed,
    PagesEnded,
    Refused,
    Removed,
    Signal,
    State,
    Streaming,
    Unreadable,
    Waited,
    Waiting,
    read_frame,
    step,
)


def thing(name: str, version: str) -> Object:
    return Object(metadata=ObjectMeta(name=name, namespace="default", resource_version=version))


A, B, C = thing("a", "5"), thing("b", "6"), thing("c", "7")
MALFORMED = Malformed(ObjectMeta(name="bad", namespace="default", resource_version="9"), "spec.x: expected an integer")
FIRST_PAGE: Page[Object] = Page([A], "10", "more")
LAST_PAGE: Page[Object] = Page([B], "10")
PART = Listing(pages=(frozenset({A.key}),), continue_token=FIRST_PAGE.continue_token)


@pytest.mark.parametrize(
    ("state", "signal", "events", "after"),
    [
        pytest.param(
            Listing(), LAST_PAGE, (Listed([B]),), Streaming("10"), id="the only page of a list is delivered at once"
        ),
        pytest.param(
            Listing(),
            FIRST_PAGE,
            (PageListed([A]),),
            PART,
            id="a page with a token is delivered, and the next one follows",
        ),
        pytest.param(
            PART,
            LAST_PAGE,
            (PageListed([B]), PagesEnded((frozenset({A.key}), frozenset({B.key})))),
            Streaming("10"),
            id="after the last page it is known which objects exist",
        ),
        pytest.param(
            PART,
            Refused(410),
            (),
            Listing(expiries=1),
            id="an expired continue token starts the list over",
        ),
        pytest.param(
            PART,
            Disconnected("reset"),
            (),
            Waiting(replace(PART, outage=Outage(responds=False))),
            id="a broken connection repeats the same page after a back-off",
        ),
        pytest.param(
            PART,
            Unreadable("noise"),
            (),
            Waiting(Listing(failures=1)),
            id="a garbled page starts the list over after a back-off",
        ),
        pytest.param(
            Listing(failures=1),
            Refused(429, "TooManyRequests", 7),
            (),
            Waiting(Listing(failures=1, outage=Outage(responds=True)), 7),
            id="a throttled list waits as long as it was told",
        ),
        pytest.param(
            Listing(),
            Refused(410),
            (),
            Waiting(Listing(failures=1)),
            id="a refused first page is asked for again later",
        ),
        pytest.param(Streaming("3"), Changed(A), (Applied(A),), Streaming("5"), id="a change is delivered"),
        pytest.param(Streaming("3"), Removed(A), (Deleted(A),), Streaming("5"), id="a removal is delivered"),
        pytest.param(
            Streaming("3"),
            Changed(MALFORMED),
            (Applied(MALFORMED),),
            Streaming("9"),
            id="malformed objects are delivered",
        ),
        pytest.param(Streaming("3"), Bookmarked("8"), (), Streaming("8"), id="a bookmark moves the position only"),
        pytest.param(
            Streaming("3", failures=4, strikes=1),
            Bookmarked("8"),
            (),
            Streaming("8"),
            id="any frame clears the failures",
        ),
        pytest.param(
            Streaming("3"),
            Refused(410, "Expired"),
            (),
            Listing(ListReason.EXPIRED, failures=1),
            id="an expired position is listed anew at once",
        ),
        pytest.param(
            Streaming("3", failures=1),
            Refused(410, "Expired"),
            (),
            Waiting(Listing(ListReason.EXPIRED, failures=2)),
            id="a position that expires over and over is listed with back-off",
        ),
        pytest.param(
            Streaming("3"),
            Unreadable("noise"),
            (),
            Waiting(Streaming("3", strikes=1, failures=1)),
            id="a garbled frame is asked for again from before it",
        ),
        pytest.param(
            Streaming("3", strikes=1, failures=1),
            Unreadable("noise"),
            (),
            Waiting(Listing(ListReason.UNREADABLE, failures=2)),
            id="a frame garbled twice leads to a new list",
        ),
        pytest.param(
            Streaming("3", strikes=1, failures=1),
            Refused(500),
            (),
            Waiting(Listing(ListReason.UNREADABLE, failures=2)),
            id="a position refused twice leads to a new list",
        ),
        pytest.param(
            Streaming("3", failures=9),
            Refused(503, "ServiceUnavailable", 2),
            (),
            Waiting(Streaming("3", failures=9, outage=Outage(responds=True)), 2),
            id="a busy server is asked for the same position however long it takes",
        ),
        pytest.param(
            Streaming("3", failures=9),
            Disconnected("refused"),
            (),
            Waiting(Streaming("3", failures=9, outage=Outage(responds=False))),
            id="a server that is away is asked for the same position however long it takes",
        ),
        pytest.param(
            Streaming("3", outage=Outage(responds=False, attempts=9)),
            Refused(503, "ServiceUnavailable"),
            (),
            Waiting(Streaming("3", outage=Outage(responds=True))),
            id="a server that begins to respond is called soon",
        ),
        pytest.param(
            Streaming("3", outage=Outage(responds=True, attempts=9)),
            Refused(410, "Expired"),
            (),
            Listing(ListReason.EXPIRED, failures=1),
            id="a position that expired in an outage is listed anew at once",
        ),
        pytest.param(
            Streaming("3", failures=2),
            Ended(300.0),
            (),
            Streaming("3"),
            id="a stream that ended of age goes on at once",
        ),
        pytest.param(
            Streaming("3"), Ended(0.1), (), Streaming("3", failures=1), id="a stream that ends at once gets a free turn"
        ),
        pytest.param(
            Streaming("3", failures=1),
            Ended(0.1),
            (),
            Waiting(Streaming("3", failures=2)),
            id="and backs off when that ends at once, too",
        ),
        pytest.param(Waiting(Streaming("3")), Waited(), (), Streaming("3"), id="after waiting it goes on where it was"),
        pytest.param(
            Listing(ListReason.EXPIRED, failures=3),
            LAST_PAGE,
            (Listed([B]),),
            Streaming("10", failures=3),
            id="a list alone is no proof that the stream works",
        ),
    ],
)
def test_step(state: State, signal: Signal[Object], events: Sequence[Event[Object]], after: State) -> None:
    assert step(state, signal) == (events, after)


@pytest.mark.parametrize(
    ("state", "signal"),
    [
        pytest.param(Listing(), Changed(A), id="no frames while listing"),
        pytest.param(Streaming("1"), LAST_PAGE, id="no pages while streaming"),
        pytest.param(Waiting(Streaming("1")), Bookmarked("2"), id="nothing while waiting"),
    ],
)
def test_a_signal_that_cannot_happen_is_a_bug_and_says_so(state: State, signal: Signal[Object]) -> None:
    with pytest.raises(AssertionError, match="cannot happen while"):
        step(state, signal)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"8"}}}', Bookmarked("8"), id="bookmark"
        ),
        pytest.param(
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}',
            Refused(410, "Expired"),
            id="expired",
        ),
        pytest.param(
            b'{"type":"ERROR","object":{"code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":3}}}',
            Refused(429, "TooManyRequests", 3.0),
            id="throttled",
        ),
        pytest.param(b'{"type":"ERROR","object":{}}', Refused(0), id="error without a code"),
        pytest.param(b'{"type":"NEW","object":{}}', Unreadable("a frame of unknown type"), id="unknown type"),
        pytest.param(b'{"type":"ADDED","object":{}}', Unreadable("an object without a name"), id="nameless object"),
        pytest.param(b'{"type":"ADDED"', Unreadable("a frame that is not a watch event"), id="cut off"),
        pytest.param(b"[]", Unreadable("a frame that is not a watch event"), id="another shape"),
        pytest.param(b"", Unreadable("a frame that is not a watch event"), id="empty"),
        pytest.param(b"\xff\xfe\x00", Unreadable("a frame that is not a watch event"), id="binary"),
        pytest.param(
            b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
            Unreadable("a frame that is not a watch event"),
            id="not UTF-8",
        ),
        pytest.param(
            b'{"type":"BOOKMARK","object":3}', Unreadable("a frame that is not a watch event"), id="bad bookmark"
        ),
    ],
)
def test_read_frame(raw: bytes, expected: Signal[Object]) -> None:
    assert read_frame(raw, FakeCollection().decode) == expected


@pytest.mark.parametrize(
    ("kind", "signal"),
    [("ADDED", Changed), ("MODIFIED", Changed), ("DELETED", Removed)],
    ids=["added", "modified", "deleted"],
)
def test_read_frame_with_an_object(kind: str, signal: Callable[[Object], Signal[Object]]) -> None:
    raw = (
        b'{"type":"%s","object":{"metadata":{"namespace":"default","name":"a","resourceVersion":"5"}}}' % kind.encode()
    )

    assert read_frame(raw, FakeCollection().decode) == signal(A)
