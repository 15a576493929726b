"""Subscriptions: heartbeats on the clock, changing watches, an orderly end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import pytest

from eso_sdk.errors import unavailable
from eso_sdk.operations import HeartbeatSchedule, Subscription
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, ReadOnly, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Heartbeat,
    RemoteRef,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)
from kubebase.testing.clock import START, VirtualClock


class Caller:
    """One end of a subscription: sends messages and keeps events."""

    def __init__(self, provider: InMemory) -> None:
        self.said: asyncio.Queue[SubscribeMessage | None] = asyncio.Queue()
        self.events: list[ChangeEvent | Heartbeat] = []
        self.stream: AsyncGenerator[ChangeEvent | Heartbeat, None] = provider.subscribe(self._messages())
        self.task = asyncio.ensure_future(self._listen())

    def say(self, *messages: SubscribeMessage | None) -> None:
        for message in messages:
            self.said.put_nowait(message)

    async def _messages(self) -> AsyncIterator[SubscribeMessage]:
        while (message := await self.said.get()) is not None:
            yield message

    async def _listen(self) -> None:
        async for event in self.stream:
            self.events.append(event)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.provider = InMemory(SCRIPTED, self.clock)
        self.changes: asyncio.Queue[ChangeEvent | Exception | None] = asyncio.Queue()
        self.script = Script.new(subscribe=self._subscribe)
        self.context = call_context(Scripted, {"script": self.script.name})

    async def _subscribe(self, _: Any, __: Sequence[WatchItem], ___: str) -> AsyncIterator[ChangeEvent]:
        while (change := await self.changes.get()) is not None:
            if isinstance(change, Exception):
                raise change
            yield change

    async def open(self, *watches: str) -> Caller:
        caller = Caller(self.provider)
        caller.say(SubscribeOpen(self.context, tuple(watch(name) for name in watches)))
        await self.clock.settle()
        return caller


def watch(name: str) -> WatchItem:
    return WatchItem(name, RemoteRef(name))


def changed(name: str, token: str = "") -> ChangeEvent:
    return ChangeEvent(ChangeType.UPDATED, (name,), resume_token=token)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await bench.provider.sessions.close()


async def end(caller: Caller) -> None:
    caller.task.cancel()
    await asyncio.gather(caller.task, return_exceptions=True)


async def test_a_heartbeat_says_at_once_that_the_subscription_stands(bench: Bench) -> None:
    caller = await bench.open("a")

    assert caller.events == [Heartbeat(START)]
    await end(caller)


async def test_heartbeats_come_with_the_clock(bench: Bench) -> None:
    caller = await bench.open("a")

    await bench.clock.advance(29)
    before = len(caller.events)
    await bench.clock.advance(31)

    assert before == 1
    assert len(caller.events) == 3
    await end(caller)


async def test_changes_are_passed_on_and_their_token_remembered(bench: Bench) -> None:
    caller = await bench.open("a")

    bench.changes.put_nowait(changed("a", token="t1"))
    await bench.clock.settle()
    await bench.clock.advance(30)

    assert caller.events[1] == changed("a", token="t1")
    assert isinstance(caller.events[2], Heartbeat)
    assert caller.events[2].resume_token == "t1"
    await end(caller)


async def test_watches_come_and_go_and_the_author_goes_on_from_the_last_token(bench: Bench) -> None:
    caller = await bench.open("a")
    bench.changes.put_nowait(changed("a", token="t1"))
    await bench.clock.settle()

    caller.say(SubscribeUpdate(add=(watch("b"), watch("c"))), SubscribeAck("t1"))
    await bench.clock.settle()
    caller.say(SubscribeUpdate(remove=("a", "b", "unknown")))
    await bench.clock.settle()
    bench.changes.put_nowait(changed("c"))
    await bench.clock.settle()

    assert bench.script.log == ["open", "subscribe 1", "subscribe 3 t1", "subscribe 1 t1"]
    assert caller.events[-1] == changed("c")
    await end(caller)


async def test_a_caller_who_only_listens_is_still_told(bench: Bench) -> None:
    caller = await bench.open("a")
    caller.say(None)
    await bench.clock.settle()

    bench.changes.put_nowait(changed("a"))
    await bench.clock.settle()

    assert caller.events[-1] == changed("a")
    await end(caller)


async def test_a_caller_who_leaves_ends_the_authors_part(bench: Bench) -> None:
    caller = await bench.open("a")

    await end(caller)
    await bench.clock.settle()

    assert bench.clock.sleepers == 0
    await bench.provider.sessions.close()
    assert bench.script.log[-1] == "close"


async def test_changes_that_end_end_the_stream(bench: Bench) -> None:
    caller = await bench.open("a")

    bench.changes.put_nowait(None)

    await caller.task


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        pytest.param(unavailable("lost it"), ErrorReason.BACKEND_UNAVAILABLE, id="an error of the author"),
        pytest.param(KeyError("hunter2"), ErrorReason.INTERNAL, id="a bug"),
    ],
)
async def test_an_exception_ends_the_stream_with_its_reason(
    bench: Bench, trouble: Exception, reason: ErrorReason
) -> None:
    caller = await bench.open("a")

    bench.changes.put_nowait(trouble)

    with pytest.raises(ProviderError) as caught:
        await caller.task
    assert caught.value.reason is reason
    assert "hunter2" not in caught.value.message


async def test_a_shutdown_ends_the_stream(bench: Bench) -> None:
    caller = await bench.open("a")

    bench.provider.frame.draining.set()

    with pytest.raises(ProviderError, match="shuts down") as caught:
        await caller.task
    assert caught.value.reason is ErrorReason.BACKEND_UNAVAILABLE


@pytest.mark.parametrize(
    "first",
    [pytest.param(SubscribeAck("t"), id="something else first"), pytest.param(None, id="nothing at all")],
)
async def test_a_subscription_begins_with_its_opening(bench: Bench, first: SubscribeMessage | None) -> None:
    caller = Caller(bench.provider)
    caller.say(first)

    with pytest.raises(ProviderError, match="begins with its opening message"):
        await caller.task


async def test_a_stream_that_is_never_opened_is_ended(bench: Bench) -> None:
    caller = Caller(bench.provider)
    await bench.clock.settle()

    await bench.clock.advance(10)

    with pytest.raises(ProviderError, match="begins with its opening message"):
        await caller.task


async def test_a_subscription_is_opened_once(bench: Bench) -> None:
    caller = await bench.open("a")

    caller.say(SubscribeOpen(bench.context))

    with pytest.raises(ProviderError, match="opened once"):
        await caller.task


async def test_too_many_watches_are_refused(bench: Bench) -> None:
    caller = await bench.open(*(f"a{at}" for at in range(6000)))

    caller.say(SubscribeUpdate(add=tuple(watch(f"b{at}") for at in range(6000))))

    with pytest.raises(ProviderError, match="at most 10000 watches"):
        await caller.task


async def test_a_store_that_reports_no_changes_says_so(bench: Bench) -> None:
    caller = Caller(bench.provider)
    caller.say(SubscribeOpen(call_context(ReadOnly, {"script": bench.script.name})))

    with pytest.raises(ProviderError) as caught:
        await caller.task
    assert caught.value.reason is ErrorReason.UNSUPPORTED_OPERATION


class Broken:
    """A store whose changes end in an error at once."""

    before: tuple[ChangeEvent, ...] = ()

    async def subscribe(self, _items: Sequence[WatchItem], _token: str) -> AsyncIterator[ChangeEvent]:
        for event in self.before:
            yield event
        raise unavailable("the backend is gone")


async def silence() -> AsyncIterator[SubscribeMessage]:
    """A caller that sends nothing more."""
    await asyncio.Event().wait()
    yield SubscribeAck("")


async def test_a_failing_subscription_ends_after_the_message_that_is_being_written() -> None:
    """A status that is sent during a write is lost, and the caller would wait for it."""
    clock, begun, sent = VirtualClock(), asyncio.Event(), asyncio.Event()

    async def emit(_: ChangeEvent | Heartbeat) -> None:
        begun.set()
        await sent.wait()

    opened = SubscribeOpen(call_context(Scripted, {"script": "none"}))
    subscription = Subscription(Broken(), opened, emit, HeartbeatSchedule(clock))  # type: ignore[arg-type]  # only subscribe is used
    running = asyncio.ensure_future(subscription.run(silence()))
    await begun.wait()
    await clock.settle()
    ended_early = running.done()
    sent.set()

    with pytest.raises(ExceptionGroup):
        await running
    assert not ended_early
