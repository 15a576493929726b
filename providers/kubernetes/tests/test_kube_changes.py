"""A watch reports changes in the cluster: once, in order, without gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    RemoteRef,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)
from kubebase.clock import SystemClock

pytestmark = pytest.mark.live

PATIENCE = 30.0
UPDATED, DELETED, RESYNC = ChangeType.UPDATED, ChangeType.DELETED, ChangeType.RESYNC


class Stream:
    """An open subscription, event by event. Heartbeats are remembered for their token only."""

    def __init__(self, events: AsyncIterator[Any], messages: asyncio.Queue[SubscribeMessage]) -> None:
        self._events = events
        self._messages = messages
        self.token = ""

    async def next(self) -> ChangeEvent:
        while True:
            event = await self._next()
            if isinstance(event, ChangeEvent):
                return event

    async def stands(self) -> None:
        """Wait for the first heartbeat with a token: changes from now on are reported."""
        while not self.token:
            event = await self._next()
            assert not isinstance(event, ChangeEvent), event

    async def say(self, message: SubscribeMessage) -> None:
        await self._messages.put(message)

    async def _next(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            event = await anext(self._events)
        self.token = event.resume_token or self.token
        return event


@asynccontextmanager
async def subscribed(store: Any, items: Sequence[WatchItem], token: str = "") -> AsyncIterator[Stream]:
    messages: asyncio.Queue[SubscribeMessage] = asyncio.Queue()
    await messages.put(SubscribeOpen(store.context, tuple(items), token))

    async def said() -> AsyncIterator[SubscribeMessage]:
        while True:
            yield await messages.get()

    async with aclosing(store.client.subscribe(said())) as events:
        yield Stream(events, messages)


def watch(key: str, known: str = "", watch_id: str = "w") -> WatchItem:
    return WatchItem(watch_id, RemoteRef(key), known_version=known)


async def test_a_change_and_a_deletion_are_announced_with_their_version(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})

    async with subscribed(store, [watch("db", version)]) as stream:
        await stream.stands()
        changed = await remote.change("db", {"k": "2"})
        first = await stream.next()
        await remote.api.delete(remote.path("db"))
        second = await stream.next()

    assert (first.type, first.watch_ids, first.provider_version) == (UPDATED, ("w",), changed)
    assert (second.type, second.watch_ids) == (DELETED, ("w",))
    assert stream.token


async def test_an_unwatched_secret_is_not_reported(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})

    async with subscribed(store, [watch("db", version)]) as stream:
        await stream.stands()
        await remote.put("other", {"k": "1"})
        changed = await remote.change("db", {"k": "2"})
        event = await stream.next()

    assert event.provider_version == changed


async def test_a_change_between_read_and_watch_is_announced_at_once(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})
    gone = await remote.put("gone", {"k": "1"})
    same = await remote.put("same", {"k": "1"})
    await remote.change("db", {"k": "2"})
    await remote.api.delete(remote.path("gone"))
    items = [watch("db", version, "changed"), watch("gone", gone, "gone"), watch("same", same, "same")]

    async with subscribed(store, items) as stream:
        events = [await stream.next(), await stream.next()]
        await stream.stands()

    assert {(one.type, one.watch_ids) for one in events} == {(UPDATED, ("changed",)), (DELETED, ("gone",))}


async def test_a_search_by_name_hears_of_new_secrets(remote: Any, store: Any) -> None:
    async with subscribed(store, [WatchItem("w", name_regexp="^app-")]) as stream:
        assert (await stream.next()).type is UPDATED  # it may have been read before the watch began
        await stream.stands()
        await remote.put("other", {"k": "1"})
        version = await remote.put("app-1", {"k": "1"})
        event = await stream.next()

    assert (event.watch_ids, event.provider_version) == (("w",), version)


async def test_a_search_by_labels_hears_of_secrets_that_join_and_leave(remote: Any, store: Any) -> None:
    await remote.put("a", {"k": "1"}, metadata={"labels": {"team": "red"}})

    async with subscribed(store, [WatchItem("w", tags={"team": "red"})]) as stream:
        await stream.next()
        await stream.stands()
        joined = await remote.put("b", {"k": "1"}, metadata={"labels": {"team": "red"}})
        first = await stream.next()
        answer = await remote.api.patch(remote.path("a"), {"metadata": {"labels": {"team": "blue"}}})
        second = await stream.next()
        await remote.change("a", {"k": "2"})
        await remote.api.delete(remote.path("b"))
        third = await stream.next()

    assert (first.provider_version, second.provider_version) == (joined, answer.body["metadata"]["resourceVersion"])
    assert third.type is DELETED


async def test_a_stream_goes_on_from_its_token(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})
    async with subscribed(store, [watch("db", version)]) as stream:
        await stream.stands()
    changed = await remote.change("db", {"k": "2"})

    async with subscribed(store, [watch("db")], stream.token) as again:
        event = await again.next()

    assert (event.type, event.provider_version) == (UPDATED, changed)


async def test_a_new_session_goes_on_from_a_token_without_reading_all_again(remote: Any, kube: Any) -> None:
    version = await remote.put("db", {"k": "1"})
    await remote.put("app-1", {"k": "1"})
    items = [watch("db"), WatchItem("search", name_regexp="^app-")]
    async with subscribed(await kube.full(), [watch("db", version)]) as stream:
        await stream.stands()

    async with subscribed(await kube.full(), items, stream.token) as again:
        await again.stands()
        changed = await remote.change("app-1", {"k": "2"})
        event = await again.next()

    assert (event.watch_ids, event.provider_version) == (("search",), changed)


async def test_history_that_is_gone_asks_for_a_resync_and_goes_on(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})
    async with subscribed(store, [watch("db", version)]) as stream:
        await stream.stands()
    await remote.change("db", {"k": "2"})
    await asyncio.to_thread(remote.server.compact)

    async with subscribed(store, [watch("db")], stream.token) as again:
        first = await again.next()
        changed = await remote.change("db", {"k": "3"})
        second = await again.next()

    assert (first.type, first.watch_ids) == (RESYNC, ())
    assert second.provider_version == changed


async def test_a_token_of_another_cluster_asks_for_a_resync(remote: Any, kube: Any) -> None:
    await remote.put("db", {"k": "1"})

    async with subscribed(await kube.full(), [watch("db")], "9999999999999") as stream:
        first = await stream.next()
        changed = await remote.change("db", {"k": "2"})
        second = await stream.next()

    assert (first.type, second.provider_version) == (RESYNC, changed)


async def test_watches_that_are_added_later_hear_of_what_they_missed(remote: Any, store: Any) -> None:
    known = {name: await remote.put(name, {"k": "1"}) for name in ("a", "b", "c")}

    async with subscribed(store, [watch("a", known["a"], "a")]) as stream:
        await stream.stands()
        await remote.change("b", {"k": "2"})
        await stream.say(SubscribeUpdate((watch("b", known["b"], "b"), watch("c", known["c"], "c"))))
        first = await stream.next()
        later = await remote.change("c", {"k": "2"})
        second = await stream.next()

    assert (first.type, first.watch_ids) == (UPDATED, ("b",))
    assert (second.watch_ids, second.provider_version) == (("c",), later)


async def test_a_second_stream_of_a_session_gets_earlier_changes(remote: Any, store: Any) -> None:
    """The operator may lose a stream, and its place in it, while the session stays open."""
    version = await remote.put("db", {"k": "1"})
    async with subscribed(store, [watch("db", version)]) as first:
        await first.stands()

    await remote.change("db", {"k": "2"})

    async with subscribed(store, [watch("db", version)]) as second:
        assert (await second.next()).type is UPDATED


async def test_a_watch_survives_a_restart_of_the_server(remote: Any, store: Any) -> None:
    version = await remote.put("db", {"k": "1"})
    items = [watch("db", version)]

    async with subscribed(store, items) as stream:
        await stream.stands()
        await asyncio.to_thread(remote.server.restart)
        await remote.change("db", {"k": "2"})
        change = await told(stream)
    for _ in range(100):
        # A real API server denies everything until it has read its roles. The operator opens such a stream again.
        if change is not ErrorReason.PERMISSION_DENIED:
            break
        await SystemClock().sleep(0.1)
        async with subscribed(store, items) as again:
            change = await told(again)

    assert change is UPDATED


async def told(stream: Any) -> ChangeType | ErrorReason:
    """Return the next events of the stream except RESYNC; or the reason why it ended."""
    try:
        event = await stream.next()
        while event.type is RESYNC:
            event = await stream.next()
    except ProviderError as ended:
        return ended.reason
    return ChangeType(event.type)
