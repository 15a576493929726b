"""Acknowledgements reach the author, and the stream survives their failures."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from eso_sdk.errors import unavailable
from eso_sdk.operations import ACKNOWLEDGE_SECONDS
from eso_sdk.provider import Provider, store_kind
from eso_sdk.store import Store
from eso_sdk.testing import Client, InMemory, ProviderServer, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted, ScriptedConfig
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Context,
    Heartbeat,
    RemoteRef,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)
from kubebase.testing.clock import VirtualClock

SECONDS = 30.0  # far more than any of this takes
WATCH = WatchItem("a", RemoteRef("a"))


class Caller:
    """One end of a subscription: sends messages and receives events."""

    def __init__(self, client: Client) -> None:
        self._said: asyncio.Queue[SubscribeMessage] = asyncio.Queue()
        self._heard: asyncio.Queue[ChangeEvent | Heartbeat] = asyncio.Queue()
        self._stream = client.subscribe(self._messages())
        self._listening = asyncio.ensure_future(self._listen())

    def say(self, *messages: SubscribeMessage) -> None:
        for message in messages:
            self._said.put_nowait(message)

    async def change(self) -> ChangeEvent:
        """Return the next change; skip heartbeats."""
        async with asyncio.timeout(SECONDS):
            while isinstance(event := await self._heard.get(), Heartbeat):
                continue
        return event

    async def leave(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._stream.aclose()

    async def _listen(self) -> None:
        async for event in self._stream:
            self._heard.put_nowait(event)

    async def _messages(self) -> AsyncIterator[SubscribeMessage]:
        while True:
            yield await self._said.get()


class Author:
    """A store that reports the test's changes and records acknowledgements."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[ChangeEvent] = asyncio.Queue()
        self.acknowledged: asyncio.Queue[str] = asyncio.Queue()
        self.free = asyncio.Event()
        self.free.set()
        self.trouble: list[Exception] = []
        self.script = Script.new(subscribe=self._subscribe, acknowledged=self._acknowledged)
        self.context: Context = call_context(Scripted, {"script": self.script.name})

    def changed(self, token: str) -> ChangeEvent:
        event = ChangeEvent(ChangeType.UPDATED, ("a",), resume_token=token)
        self.changes.put_nowait(event)
        return event

    async def next_acknowledged(self) -> str:
        async with asyncio.timeout(SECONDS):
            return await self.acknowledged.get()

    async def _subscribe(self, _: Any, __: Sequence[WatchItem], ___: str) -> AsyncIterator[ChangeEvent]:
        while True:
            yield await self.changes.get()

    async def _acknowledged(self, store: Any, token: str) -> None:
        self.acknowledged.put_nowait(f"{store.call.store.name} {token}")
        await self.free.wait()
        if self.trouble:
            raise self.trouble.pop()


@pytest.fixture
async def served() -> AsyncIterator[ProviderServer]:
    async with ProviderServer(SCRIPTED) as server:
        yield server


@asynccontextmanager
async def opened(client: Client, context: Context) -> AsyncIterator[Caller]:
    caller = Caller(client)
    caller.say(SubscribeOpen(context, (WATCH,)))
    try:
        yield caller
    finally:
        await caller.leave()


async def test_an_acknowledgement_reaches_the_author_and_the_stream_goes_on(served: ProviderServer) -> None:
    author = Author()
    name = author.context.store.name
    async with opened(served.client, author.context) as caller:
        author.changed("t1")
        first = await caller.change()

        caller.say(SubscribeAck(first.resume_token))
        settled = await author.next_acknowledged()
        expected = author.changed("t2")

        assert settled == f"{name} t1"
        assert await caller.change() == expected


async def test_the_token_of_an_earlier_stream_is_passed_on_too(served: ProviderServer) -> None:
    author = Author()
    async with opened(served.client, author.context) as caller:
        author.changed("t9")
        await caller.change()

        caller.say(SubscribeAck("from-before"))

        assert (await author.next_acknowledged()).endswith(" from-before")


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        pytest.param(unavailable("CANARY is gone"), {"reason": "BACKEND_UNAVAILABLE"}, id="an error of the author"),
        pytest.param(
            ProviderError(ErrorReason.INTERNAL, "CANARY broke"), {"reason": "INTERNAL"}, id="a bug, as the author says"
        ),
        pytest.param(KeyError("CANARY"), {"reason": "INTERNAL"}, id="a bug"),
    ],
)
async def test_an_author_who_fails_is_asked_again_with_the_next_token(
    served: ProviderServer, trouble: Exception, said: dict[str, str]
) -> None:
    author = Author()
    author.trouble.append(trouble)
    async with opened(served.client, author.context) as caller:
        with structlog.testing.capture_logs() as lines:
            caller.say(SubscribeAck("t1"))
            await author.next_acknowledged()
            caller.say(SubscribeAck("t2"))
            second = await author.next_acknowledged()
        expected = author.changed("t3")

        (line,) = (one for one in lines if one["event"].startswith("acknowledgement failed"))
        assert second.endswith(" t2")
        assert line.items() >= {"log_level": "warning", **said}.items()
        assert "CANARY" not in str(line)
        assert await caller.change() == expected


async def test_acknowledgements_while_the_author_is_busy_arrive_as_one(served: ProviderServer) -> None:
    author = Author()
    author.free.clear()
    async with opened(served.client, author.context) as caller:
        caller.say(SubscribeAck("t1"))
        await author.next_acknowledged()

        # The update follows the acknowledgements, so they were processed once it takes effect.
        caller.say(SubscribeAck("t2"), SubscribeAck("t3"), SubscribeUpdate(add=(WatchItem("b", RemoteRef("b")),)))
        await followed_anew(author)
        author.free.set()

        assert (await author.next_acknowledged()).endswith(" t3")
        assert author.acknowledged.empty()


async def test_an_author_who_never_answers_is_given_up() -> None:
    clock, author = VirtualClock(), Author()
    author.free.clear()
    async with InMemory(SCRIPTED, clock) as provider:
        caller = Caller(provider)
        caller.say(SubscribeOpen(author.context, (WATCH,)), SubscribeAck("t1"))
        await clock.settle()

        with structlog.testing.capture_logs() as lines:
            await clock.advance(ACKNOWLEDGE_SECONDS)
        author.free.set()
        caller.say(SubscribeAck("t2"))
        await clock.settle()

        given_up = [line for line in lines if line["event"].startswith("acknowledgement failed")]
        assert [line["reason"] for line in given_up] == ["BACKEND_TIMEOUT"]
        assert author.acknowledged.qsize() == 2
        await caller.leave()


@store_kind(kind="Plain", plural="plains")
class Plain(Store[ScriptedConfig]):
    """A store that reports changes and has nothing to acknowledge."""

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent]:
        for at in range(len(items)):
            yield ChangeEvent(ChangeType.UPDATED, (items[at].watch_id,), resume_token=f"{resume_token}{at}")
        await asyncio.Event().wait()


async def test_an_author_without_a_use_for_them_need_not_know_of_acknowledgements() -> None:
    async with (
        ProviderServer(Provider(name="plain", version="1", kinds=(Plain,))) as served,
        opened(served.client, call_context(Plain, {"script": "none"})) as caller,
    ):
        first = await caller.change()

        caller.say(SubscribeAck(first.resume_token), SubscribeUpdate(add=(WatchItem("b", RemoteRef("b")),)))

        assert (await caller.change()).watch_ids == ("a",)
        assert (await caller.change()).watch_ids == ("b",)


async def followed_anew(author: Author) -> None:
    async with asyncio.timeout(SECONDS):
        while len([line for line in author.script.log if line.startswith("subscribe")]) < 2:  # noqa: ASYNC110 - it happens in gRPC, which sets no event
            await asyncio.sleep(0.01)
