"""The loop that lists and watches, on a misbehaving collection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubebase.meta import Malformed, Object, Page
from kubebase.testing.clock import VirtualClock
from kuberun.errors import ApiError, BadResponse, Details, Forbidden, Gone, ServiceUnavailable, Throttled, Unreachable
from kuberun.testing.source import Call, FakeCollection, Fault
from kuberun.watch import (
    Applied,
    Deleted,
    Event,
    Listed,
    PageListed,
    PagesEnded,
    ServerRecovery,
    Watcher,
    WatchSettings,
)

SETTINGS = WatchSettings(page_size=2, request_timeout=60, stream_seconds=300, inactivity=150)


class Watched:
    """A running watcher and the events it has delivered."""

    def __init__(
        self, collection: FakeCollection, clock: VirtualClock, recovery: ServerRecovery | None, settings: WatchSettings
    ) -> None:
        self.events: list[Event[Object]] = []
        self.watcher = Watcher(collection, clock=clock, settings=settings, draw=lambda: 0.5, recovery=recovery)

    def names(self) -> list[Any]:
        """Return lists as lists of names, pages as +name+name, changes as +name, deletions as -name."""

        def named(event: Event[Object]) -> Any:
            match event:
                case Listed(objects=objects):
                    return [obj.key.name for obj in objects]
                case PageListed(objects=objects):
                    return "+".join(["", *(obj.key.name for obj in objects)])
                case PagesEnded(pages=pages):
                    return sorted(key.name for page in pages for key in page)
                case Applied(object=obj):
                    return f"+{obj.key.name}"
                case Deleted(object=obj):
                    return f"-{obj.key.name}"

        return [named(event) for event in self.events]


@asynccontextmanager
async def watched(
    collection: FakeCollection,
    clock: VirtualClock,
    recovery: ServerRecovery | None = None,
    settings: WatchSettings = SETTINGS,
) -> AsyncIterator[Watched]:
    seen = Watched(collection, clock, recovery, settings)
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

    assert seen.names() == ["+a+b", "+c+d", "+e", ["a", "b", "c", "d", "e"], "+f", "-a"]
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


async def test_after_compaction_the_watch_lists_again() -> None:
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

    assert seen.names() == ["+a+b", "+a+b", ["a", "b", "c", "d", "e"]]
    assert [call.limit for call in collection.calls if call.verb == "list"] == [2, 2, 2, 2, 0]


async def test_a_server_that_says_when_to_come_back_is_asked_soon_however_often_it_has_refused() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")
    server_starting = Throttled(429, "TooManyRequests", "storage is initializing", Details(retry_after=3))
    collection.refusals.extend([server_starting] * 12)

    async with watched(collection, clock) as seen:
        await clock.advance(12 * 3)
        assert seen.names() == [], "it is not asked before"
        await clock.advance(12 * 1.5)

        assert seen.names() == [["a"]]


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
        requested = len(collection.calls)
        await clock.advance(44)
        assert len(collection.calls) == requested
        await clock.advance(24)

        assert len(collection.calls) > requested


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden(403, "Forbidden", "no"),
        BadResponse("not JSON"),
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
        requested = len(collection.calls)
        collection.refusals.clear()
        await clock.advance(30)

    assert requested < 300, "it backs off"
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
    """A collection whose first list never responds."""

    hung = 0

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[Object]:
        if not self.hung:
            self.hung = 1
            await asyncio.Event().wait()
        return await super().list_page(limit=limit, continue_token=continue_token, resource_version=resource_version)


@pytest.mark.parametrize(
    ("refusal", "resumes"),
    [
        pytest.param(Unreachable("connection refused"), True, id="a server that was away"),
        pytest.param(ServiceUnavailable(503, "ServiceUnavailable", "starting"), True, id="a server that was starting"),
        pytest.param(Forbidden(403, "Forbidden", "no"), False, id="a kind that we may not read has to wait its time"),
    ],
)
async def test_the_first_watch_that_reaches_the_server_ends_the_back_off_of_the_others(
    refusal: ApiError, resumes: bool
) -> None:
    clock, recovery = VirtualClock(), ServerRecovery()
    early, late = FakeCollection(), FakeCollection()
    early.put("early")
    late.put("late")
    early.refusals.extend(Unreachable("connection refused") for _ in range(5))
    late.refusals.extend(refusal for _ in range(6))

    async with watched(late, clock, recovery) as other, watched(early, clock, recovery) as first:
        for _ in range(600):
            await clock.advance(0.1)
            if first.events:
                break

        assert first.names() == [["early"]]
        assert (other.names() == [["late"]]) is resumes
        await clock.advance(60)
        assert other.names() == [["late"]]


async def test_the_first_answer_of_a_server_that_starts_ends_the_back_off_of_the_others() -> None:
    """They have waited longer and longer for a response; the start takes a few seconds more."""
    clock, recovery = VirtualClock(), ServerRecovery()
    early, late = FakeCollection(), FakeCollection()
    away, server_starting = Unreachable("connection refused"), ServiceUnavailable(503, "ServiceUnavailable", "starting")
    early.refusals.extend([*[away] * 5, server_starting])
    late.refusals.extend([*[away] * 6, *[server_starting] * 2])

    async with watched(late, clock, recovery) as other, watched(early, clock, recovery) as first:
        while not first.events:
            await clock.advance(0.1)
        await clock.advance(3)

        assert other.names() == [[]]


async def test_after_an_outage_the_watches_do_not_come_back_all_at_once() -> None:
    clock, recovery = VirtualClock(), ServerRecovery()
    early, late = FakeCollection(), FakeCollection()
    away = Unreachable("connection refused")
    early.refusals.extend([away] * 5)
    late.refusals.extend([away] * 6)

    async with (
        watched(late, clock, recovery, WatchSettings(spread=4.0)) as other,
        watched(early, clock, recovery) as first,
    ):
        while not first.events:
            await clock.advance(0.1)

        assert other.names() == []
        await clock.advance(4)
        assert other.names() == [[]]


async def test_a_server_that_says_when_to_come_back_is_not_asked_before() -> None:
    clock, recovery = VirtualClock(), ServerRecovery()
    collection = FakeCollection()
    collection.refusals.append(Throttled(429, "TooManyRequests", "wait", Details(retry_after=20)))

    async with watched(collection, clock, recovery) as seen:
        recovery.server_recovered()
        await clock.advance(19)
        assert seen.names() == []
        recovery.server_recovered()
        await clock.advance(1)

        assert seen.names() == [[]]
