"""Listing and watching: the pure machine by tables, the loop on a collection that misbehaves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kuberun.errors import ApiError, BadAnswer, Details, Forbidden, Gone, ServiceUnavailable, Throttled, Unreachable
from kuberun.meta import Malformed, Object, ObjectMeta, Page
from kuberun.testing.clock import VirtualClock
from kuberun.testing.source import Call, FakeCollection, Fault
from kuberun.watch import (
    Applied,
    Bookmarked,
    Broken,
    Cause,
    Changed,
    Deleted,
    Ended,
    Event,
    Garbled,
    Listed,
    Listing,
    Refused,
    Removed,
    Signal,
    State,
    Streaming,
    Waited,
    Waiting,
    Watcher,
    WatchSettings,
    read_frame,
    step,
)


def thing(name: str, version: str) -> Object:
    return Object(metadata=ObjectMeta(name=name, namespace="default", resource_version=version))


A, B, C = thing("a", "5"), thing("b", "6"), thing("c", "7")
MALFORMED = Malformed(ObjectMeta(name="bad", namespace="default", resource_version="9"), "spec.x: expected an integer")
FIRST_PAGE: Page[Object] = Page([A], "10", "more")
LAST_PAGE: Page[Object] = Page([B], "10")


@pytest.mark.parametrize(
    ("state", "signal", "events", "after"),
    [
        pytest.param(
            Listing(), LAST_PAGE, (Listed([B]),), Streaming("10"), id="the only page of a list is delivered at once"
        ),
        pytest.param(
            Listing(), FIRST_PAGE, (), Listing(pages=(FIRST_PAGE,)), id="a page with a token waits for the others"
        ),
        pytest.param(
            Listing(pages=(FIRST_PAGE,)),
            LAST_PAGE,
            (Listed([A, B]),),
            Streaming("10"),
            id="the last page delivers all pages as one list",
        ),
        pytest.param(
            Listing(pages=(FIRST_PAGE,)),
            Refused(410),
            (),
            Listing(expiries=1),
            id="an expired continue token starts the list over",
        ),
        pytest.param(
            Listing(pages=(FIRST_PAGE,)),
            Broken("reset"),
            (),
            Waiting(Listing(pages=(FIRST_PAGE,), failures=1)),
            id="a broken connection repeats the same page after a back-off",
        ),
        pytest.param(
            Listing(pages=(FIRST_PAGE,)),
            Garbled("noise"),
            (),
            Waiting(Listing(failures=1)),
            id="a garbled page starts the list over after a back-off",
        ),
        pytest.param(
            Listing(failures=1),
            Refused(429, "TooManyRequests", 7),
            (),
            Waiting(Listing(failures=2), 7),
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
            Listing(Cause.EXPIRED, failures=1),
            id="an expired position is listed anew at once",
        ),
        pytest.param(
            Streaming("3", failures=1),
            Refused(410, "Expired"),
            (),
            Waiting(Listing(Cause.EXPIRED, failures=2)),
            id="a position that expires over and over is listed with back-off",
        ),
        pytest.param(
            Streaming("3"),
            Garbled("noise"),
            (),
            Waiting(Streaming("3", strikes=1, failures=1)),
            id="a garbled frame is asked for again from before it",
        ),
        pytest.param(
            Streaming("3", strikes=1, failures=1),
            Garbled("noise"),
            (),
            Waiting(Listing(Cause.NONSENSE, failures=2)),
            id="a frame garbled twice leads to a new list",
        ),
        pytest.param(
            Streaming("3", strikes=1, failures=1),
            Refused(500),
            (),
            Waiting(Listing(Cause.NONSENSE, failures=2)),
            id="a position refused twice leads to a new list",
        ),
        pytest.param(
            Streaming("3", failures=9),
            Refused(503, "ServiceUnavailable", 2),
            (),
            Waiting(Streaming("3", failures=10), 2),
            id="a busy server is asked for the same position however long it takes",
        ),
        pytest.param(
            Streaming("3", failures=9),
            Broken("refused"),
            (),
            Waiting(Streaming("3", failures=10)),
            id="a server that is away is asked for the same position however long it takes",
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
            Listing(Cause.EXPIRED, failures=3),
            LAST_PAGE,
            (Listed([B]),),
            Streaming("10", failures=3),
            id="a list alone is no proof that the stream works",
        ),
    ],
)
def test_step(
    state: State[Object], signal: Signal[Object], events: Sequence[Event[Object]], after: State[Object]
) -> None:
    assert step(state, signal) == (events, after)


@pytest.mark.parametrize(
    ("state", "signal"),
    [
        pytest.param(Listing(), Changed(A), id="no frames while listing"),
        pytest.param(Streaming("1"), LAST_PAGE, id="no pages while streaming"),
        pytest.param(Waiting(Streaming("1")), Bookmarked("2"), id="nothing while waiting"),
    ],
)
def test_a_signal_that_cannot_happen_is_a_bug_and_says_so(state: State[Object], signal: Signal[Object]) -> None:
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
        pytest.param(b'{"type":"NEW","object":{}}', Garbled("a frame of unknown type"), id="unknown type"),
        pytest.param(b'{"type":"ADDED","object":{}}', Garbled("an object without a name"), id="nameless object"),
        pytest.param(b'{"type":"ADDED"', Garbled("a frame that is not a watch event"), id="cut off"),
        pytest.param(b"[]", Garbled("a frame that is not a watch event"), id="another shape"),
        pytest.param(b"", Garbled("a frame that is not a watch event"), id="empty"),
        pytest.param(b"\xff\xfe\x00", Garbled("a frame that is not a watch event"), id="binary"),
        pytest.param(
            b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}',
            Garbled("a frame that is not a watch event"),
            id="not UTF-8",
        ),
        pytest.param(
            b'{"type":"BOOKMARK","object":3}', Garbled("a frame that is not a watch event"), id="bad bookmark"
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


SETTINGS = WatchSettings(page_size=2, request_timeout=60, stream_seconds=300, inactivity=150)


class Watched:
    """A watcher at work, and what it has delivered."""

    def __init__(self, collection: FakeCollection, clock: VirtualClock) -> None:
        self.events: list[Event[Object]] = []
        self.watcher = Watcher(collection, clock=clock, settings=SETTINGS, draw=lambda: 0.5)

    def names(self) -> list[Any]:
        """Lists as lists of names, changes as +name, removals as -name."""

        def named(event: Event[Object]) -> Any:
            match event:
                case Listed(objects=objects):
                    return [obj.key.name for obj in objects]
                case Applied(object=obj):
                    return f"+{obj.key.name}"
                case Deleted(object=obj):
                    return f"-{obj.key.name}"

        return [named(event) for event in self.events]


@asynccontextmanager
async def watched(collection: FakeCollection, clock: VirtualClock) -> AsyncIterator[Watched]:
    seen = Watched(collection, clock)
    running = asyncio.ensure_future(seen.watcher.run(seen.events.append))
    await clock.settle()
    try:
        yield seen
    finally:
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
        assert collection.streams == 0, "a stream was left open"


async def test_a_collection_is_listed_in_pages_and_then_followed() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    for name in "abcde":
        collection.put(name)

    async with watched(collection, clock) as seen:
        collection.put("f")
        collection.delete("a")
        await clock.settle()

    assert seen.names() == [["a", "b", "c", "d", "e"], "+f", "-a"]
    assert [call.limit for call in collection.calls if call.verb == "list"] == [2, 2, 2]
    assert collection.calls[-1] == Call("watch", resource_version="105")


async def test_a_stream_is_resumed_from_the_last_bookmark() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with watched(collection, clock) as seen:
        collection.put("a")
        collection.put("b")
        collection.bookmark()
        await clock.settle()
        collection.disturb(Fault.CUT)
        await clock.advance(60)

    assert seen.names() == [[], "+a", "+b"]
    assert collection.calls[-1] == Call("watch", resource_version="102")


@pytest.mark.parametrize(
    "fault",
    [Fault.CUT, Fault.END, Fault.GARBLE, Fault.UNKNOWN_TYPE, Fault.INTERNAL],
    ids=lambda fault: fault.name.lower(),
)
async def test_after_a_disturbance_the_stream_goes_on_without_a_gap_and_without_a_list(fault: Fault) -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with watched(collection, clock) as seen:
        collection.put("a")
        await clock.settle()
        collection.disturb(fault)
        collection.put("b")
        collection.put("c")
        await clock.advance(60)

    assert seen.names() == [[], "+a", "+b", "+c"]
    assert [call.verb for call in collection.calls] == ["list", "watch", "watch"]


async def test_a_half_open_connection_is_noticed_and_replaced() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with watched(collection, clock) as seen:
        collection.disturb(Fault.SILENCE)
        collection.put("a")
        await clock.advance(149)
        assert seen.names() == [[]]
        await clock.advance(1)

        assert seen.names() == [[], "+a"]


async def test_frames_keep_a_stream_alive() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with watched(collection, clock) as seen:
        for _ in range(10):
            collection.bookmark()
            await clock.advance(100)
        age = seen.watcher.age

    assert [call.verb for call in collection.calls] == ["list", "watch"]
    assert age == 100


@pytest.mark.parametrize("how", ["frame", "status"])
async def test_an_expired_position_leads_to_a_list_that_tells_what_is_left(how: str) -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")
    collection.put("b")

    async with watched(collection, clock) as seen:
        if how == "frame":
            collection.disturb(Fault.EXPIRED)
        else:
            collection.disturb(Fault.CUT)
            collection.refusals.append(Gone(410, "Expired", "too old resource version"))
        collection.delete("a")
        await clock.advance(60)

    assert seen.names() == [["a", "b"], ["b"]] or seen.names() == [["a", "b"], "-a", ["b"]]
    assert seen.names()[-1] == ["b"]


async def test_a_compacted_history_is_listed_anew() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")

    async with watched(collection, clock) as seen:
        collection.disturb(Fault.SILENCE)
        collection.put("b")
        collection.delete("a")
        collection.compact()
        await clock.advance(200)

    assert seen.names() == [["a"], ["b"]]


async def test_a_continue_token_that_expires_once_restarts_the_pages_and_twice_asks_for_all_at_once() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    for name in "abcde":
        collection.put(name)
    expired = Gone(410, "Expired", "the continue token has expired")
    collection.refusals.extend([None, expired, None, expired])

    async with watched(collection, clock) as seen:
        pass

    assert seen.names() == [["a", "b", "c", "d", "e"]]
    assert [call.limit for call in collection.calls if call.verb == "list"] == [2, 2, 2, 2, 0]


async def test_a_list_that_fails_is_retried_with_growing_delays() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.refusals.extend(Unreachable("connection refused") for _ in range(3))

    lists: list[float] = []
    async with watched(collection, clock) as seen:
        for _ in range(60):
            made = sum(1 for call in collection.calls if call.verb == "list")
            lists += [clock.monotonic()] * (made - len(lists))
            await clock.advance(0.1)

    assert lists == pytest.approx([0, 0.6, 1.8, 4.2], abs=0.11), "0.8 s, doubled, less a quarter for the jitter"
    assert seen.names() == [[]]


@pytest.mark.parametrize("where", ["list", "watch"])
async def test_a_throttled_request_waits_as_long_as_the_server_asks(where: str) -> None:
    clock, collection = VirtualClock(), FakeCollection()
    throttled = Throttled(429, "TooManyRequests", "slow down", Details(retry_after=45))
    collection.refusals.extend([throttled] if where == "list" else [None, throttled])

    async with watched(collection, clock):
        asked = len(collection.calls)
        await clock.advance(44)
        assert len(collection.calls) == asked
        await clock.advance(1)

        assert len(collection.calls) > asked


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden(403, "Forbidden", "no"),
        BadAnswer("not JSON"),
        ServiceUnavailable(503, "ServiceUnavailable", "starting"),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
async def test_a_server_that_refuses_for_an_hour_is_followed_again_afterwards(refusal: ApiError) -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with watched(collection, clock) as seen:
        collection.put("a")
        await clock.settle()
        collection.refusals.extend(refusal for _ in range(10_000))
        collection.disturb(Fault.CUT)
        collection.put("b")
        await clock.advance(3600)
        asked = len(collection.calls)
        collection.refusals.clear()
        await clock.advance(30)

    assert asked < 300, "it backs off"
    assert seen.names()[-1] in ("+b", ["a", "b"])


async def test_a_list_that_hangs_is_given_up() -> None:
    clock, collection = VirtualClock(), _Hanging()

    async with watched(collection, clock) as seen:
        await clock.advance(59)
        assert collection.hung == 1
        await clock.advance(2)

        assert seen.names() == [[]]


async def test_malformed_objects_are_delivered_and_do_not_stop_the_others() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.malformed.add("bad")
    collection.put("good")
    collection.put("bad")

    async with watched(collection, clock) as seen:
        collection.put("bad")
        collection.put("better")
        collection.delete("bad")
        await clock.settle()

    assert seen.names() == [["good", "bad"], "+bad", "+better", "-bad"]
    assert isinstance(seen.events[1], Applied)
    assert isinstance(seen.events[1].object, Malformed)


async def test_the_age_grows_while_the_server_is_away() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with watched(collection, clock) as seen:
        collection.refusals.extend(Unreachable("gone") for _ in range(1000))
        collection.disturb(Fault.CUT)
        await clock.advance(500)

        assert seen.watcher.age == 500


class _Hanging(FakeCollection):
    """The first list never answers."""

    hung = 0

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[Object]:
        if not self.hung:
            self.hung = 1
            await asyncio.Event().wait()
        return await super().list_page(limit=limit, continue_token=continue_token, resource_version=resource_version)
