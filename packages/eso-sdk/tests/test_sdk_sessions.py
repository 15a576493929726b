"""Sessions: opened once, shared by identity, bounded, closed when no call uses them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from eso_api.values import SecretBytes
from eso_sdk.errors import rejected
from eso_sdk.session import CLOSE_SECONDS, OPEN_SECONDS, Session, Sessions, identity_of
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import RemoteRef, Token
from kubebase.testing.clock import VirtualClock


class Backend:
    """A backend that only records whether it is open."""

    def __init__(self, name: str, log: list[str], gate: asyncio.Event | None = None) -> None:
        self.name = name
        self.log = log
        self.gate = gate
        self.failure: Exception | None = None

    async def open(self) -> None:
        self.log.append(f"open {self.name}")
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        self.log.append(f"close {self.name}")


class Bench:
    def __init__(self, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.log: list[str] = []
        self.sizes: list[int] = []
        self.sessions = Sessions(self.clock, on_change=self.sizes.append, **settings)

    async def use(self, name: str, owner: str = "", **backend: Any) -> None:
        async with self.sessions.use(name.encode(), lambda: self.session(Backend(name, self.log, **backend)), owner):
            pass

    def session(self, backend: Any) -> Session:
        return Session(b"", backend, asyncio.Semaphore(1))


async def test_many_sessions_of_one_namespace_do_not_close_those_of_others() -> None:
    bench = Bench(limit=10)

    await bench.use("shared", "core")
    for number in range(50):
        await bench.use(f"tenant {number}", "tenant")
    await bench.use("shared", "core")

    assert bench.log.count("open shared") == 1
    assert len(bench.sessions) == 10


async def test_a_session_is_opened_once_and_used_again() -> None:
    bench = Bench()

    await bench.use("a")
    await bench.use("a")

    assert bench.log == ["open a"]
    assert len(bench.sessions) == 1


async def test_callers_who_come_while_it_opens_share_one_open() -> None:
    bench = Bench()
    gate = asyncio.Event()
    callers = [asyncio.ensure_future(bench.use("a", gate=gate)) for _ in range(5)]
    await bench.clock.settle()

    gate.set()
    await asyncio.gather(*callers)

    assert bench.log == ["open a"]


async def test_a_caller_who_gives_up_does_not_take_the_open_away_from_the_others() -> None:
    bench = Bench()
    gate = asyncio.Event()
    first, second = (asyncio.ensure_future(bench.use("a", gate=gate)) for _ in range(2))
    await bench.clock.settle()

    first.cancel()
    await bench.clock.settle()
    gate.set()
    await second

    assert first.cancelled()
    assert bench.log == ["open a"]


async def test_a_failed_open_reaches_all_waiting_callers_and_is_retried() -> None:
    bench = Bench()
    gate = asyncio.Event()
    broken = Backend("a", bench.log, gate)
    broken.failure = failure = rejected("no")

    async def use() -> None:
        async with bench.sessions.use(b"a", lambda: bench.session(broken)):
            pytest.fail("it is not open")

    callers = [asyncio.ensure_future(use()) for _ in range(2)]
    await bench.clock.settle()
    gate.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    broken.failure = None
    await bench.use("a")

    assert outcomes == [failure, failure]
    assert bench.log == ["open a", "close a", "open a"]


async def test_an_open_that_hangs_ends() -> None:
    bench = Bench()
    caller = asyncio.ensure_future(bench.use("a", gate=asyncio.Event()))
    await bench.clock.settle()

    await bench.clock.advance(OPEN_SECONDS)

    with pytest.raises(TimeoutError):
        await caller
    assert len(bench.sessions) == 0
    assert bench.log == ["open a", "close a"]


async def test_an_open_that_cancels_itself_is_closed_and_tried_again() -> None:
    bench = Bench()
    broken = Backend("a", bench.log)

    async def give_up() -> None:
        raise asyncio.CancelledError

    broken.open = give_up  # type: ignore[method-assign]  # a backend that misbehaves
    with pytest.raises(asyncio.CancelledError):
        async with bench.sessions.use(b"a", lambda: bench.session(broken)):
            pytest.fail("it is not open")
    await bench.use("a")

    assert bench.log == ["close a", "open a"]


async def test_a_close_that_cannot_cope_with_half_an_open_does_not_hide_why_it_failed() -> None:
    async def opening(_: Any) -> None:
        raise rejected("the token has expired")

    async def closing(store: Any) -> None:
        await store.connection.close()  # which `open` did not reach

    script = Script.new(open=opening, close=closing)
    async with InMemory(SCRIPTED) as provider:
        with capture_logs() as logs:
            with pytest.raises(ProviderError, match="the token has expired") as raised:
                await provider.get_one(call_context(Scripted, {"script": script.name}), "key")
            await provider.sessions.close()

    assert raised.value.reason is ErrorReason.CREDENTIALS_REJECTED
    assert script.log == ["open", "close"]
    (said,) = [entry for entry in logs if entry["event"] == "session not closed cleanly"]
    assert said["error"].startswith("AttributeError at ")


async def test_the_one_used_longest_ago_goes_first() -> None:
    bench = Bench(limit=2)

    for name in ("a", "b", "a", "c"):
        await bench.use(name)
    await bench.clock.settle()

    assert sorted(bench.log) == ["close b", "open a", "open b", "open c"]
    assert max(bench.sizes) == 2


async def test_an_evicted_session_is_closed_only_when_no_call_uses_it() -> None:
    bench = Bench(limit=1)

    async with bench.sessions.use(b"a", lambda: bench.session(Backend("a", bench.log))):
        await bench.use("b")
        await bench.clock.settle()
        still_open = "close a" not in bench.log
    await bench.clock.settle()

    assert still_open
    assert bench.log.count("close a") == 1


async def test_an_idle_session_is_closed_after_a_while() -> None:
    bench = Bench(idle_seconds=600.0)
    sweeping = asyncio.ensure_future(bench.sessions.sweep())
    await bench.use("a")

    await bench.clock.advance(599)
    before = list(bench.log)
    await bench.clock.advance(301)

    assert before == ["open a"]
    assert bench.log == ["open a", "close a"]
    sweeping.cancel()


async def test_a_session_in_use_does_not_grow_idle() -> None:
    bench = Bench(idle_seconds=10.0)

    async with bench.sessions.use(b"a", lambda: bench.session(Backend("a", bench.log))):
        await bench.clock.advance(100)
        bench.sessions.forget_idle()
        await bench.use("a")

    assert bench.log == ["open a"]


async def test_closing_all_waits_for_them() -> None:
    bench = Bench()
    await bench.use("a")
    await bench.use("b")

    await bench.sessions.close()

    assert sorted(bench.log) == ["close a", "close b", "open a", "open b"]
    assert bench.sizes[-1] == 0


async def test_a_close_that_hangs_does_not_hold_up_the_end() -> None:
    bench = Bench()
    stuck = Backend("a", bench.log)

    async def hang() -> None:
        await asyncio.Event().wait()

    stuck.close = hang  # type: ignore[method-assign]  # a backend that misbehaves
    async with bench.sessions.use(b"a", lambda: bench.session(stuck)):
        pass
    closing = asyncio.ensure_future(bench.sessions.close())
    await bench.clock.settle()

    await bench.clock.advance(CLOSE_SECONDS)

    await closing


async def test_an_open_that_hangs_does_not_hold_up_the_end() -> None:
    bench = Bench()
    caller = asyncio.ensure_future(bench.use("a", gate=asyncio.Event()))
    await bench.clock.settle()
    caller.cancel()
    await bench.clock.settle()

    await asyncio.wait_for(bench.sessions.close(), 10)

    assert bench.log == ["open a", "close a"]
    assert len(bench.sessions) == 0


# --- who shares a session --------------------------------------------------------------------------------------------

TOKEN = Token(SecretBytes(b"token"))
BASE = call_context(Scripted, {"script": "s"}, {"/tokenRef": "one", "/accountRef": TOKEN})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(call_context(Scripted, {"script": "t"}), id="another configuration"),
        pytest.param(
            call_context(Scripted, {"script": "s"}, {"/tokenRef": "two", "/accountRef": TOKEN}), id="a secret"
        ),
        pytest.param(
            call_context(
                Scripted, {"script": "s"}, {"/tokenRef": "one", "/accountRef": Token(SecretBytes(b"renewed"))}
            ),
            id="a renewed token",
        ),
        pytest.param(
            call_context(Scripted, {"script": "s"}, {"/tokenRef": "one", "/accountRef": "token"}), id="its type"
        ),
        pytest.param(
            call_context(Scripted, {"script": "s"}, {"/tokenRef": "one", "/accountRef": TOKEN}, auth_namespace="x"),
            id="another auth namespace",
        ),
        pytest.param(
            call_context(Scripted, {"script": "s"}, {"/tokenRef": "one", "/accountRef": TOKEN}, namespace="other"),
            id="another object",
        ),
    ],
)
def test_another_identity_is_another_session(other: Any) -> None:
    assert identity_of(other) != identity_of(BASE)


def test_who_asks_makes_no_difference() -> None:
    again = call_context(Scripted, {"script": "s"}, {"/accountRef": TOKEN, "/tokenRef": "one"}, max_backend_retries=3)

    assert identity_of(again) == identity_of(BASE)


async def test_a_login_that_the_backend_no_longer_accepts_is_repeated() -> None:
    answers = iter((rejected("expired"), None))

    async def get(_: Any, ref: RemoteRef) -> bytes:
        if failure := next(answers):
            raise failure
        return ref.key.encode()

    script = Script.new(get=get)
    context = call_context(Scripted, {"script": script.name})
    async with InMemory(SCRIPTED) as provider:
        first = await provider.get_one(context, "key")
        second = await provider.get_one(context, "key")

    assert isinstance(first.outcome, ProviderError)
    assert first.outcome.reason is ErrorReason.CREDENTIALS_REJECTED
    assert second.outcome == SecretBytes(b"key")
    assert script.log == ["open", "get", "close", "open", "get", "close"]


# --- objects that are gone --------------------------------------------------------------------------------------------


async def test_the_sessions_of_an_object_that_is_gone_are_closed_and_no_others() -> None:
    gone, other = Script.new(values={"k": b"v"}), Script.new(values={"k": b"v"})
    contexts = {script.name: call_context(Scripted, {"script": script.name}) for script in (gone, other)}
    same_name = contexts[other.name]
    config = replace(same_name.config, ref=replace(same_name.config.ref, uid="another object with that name"))
    contexts[other.name] = replace(same_name, config=config)

    async with InMemory(SCRIPTED) as provider:
        for context in contexts.values():
            await provider.get_one(context, "k")
        await provider.close_sessions(replace(contexts[gone.name].config.ref, generation=7))
        left = len(provider.sessions)
        await provider.get_one(contexts[other.name], "k")

    assert left == 1
    assert gone.log == ["open", "get", "close"]
    assert other.log == ["open", "get", "get", "close"]


async def test_a_session_in_use_is_closed_after_its_last_call() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def get(_: Any, __: RemoteRef) -> bytes:
        asked.set()
        await answer.wait()
        return b"v"

    script = Script.new(get=get)
    context = call_context(Scripted, {"script": script.name})

    async with InMemory(SCRIPTED) as provider:
        call = asyncio.ensure_future(provider.get_one(context, "k"))
        await asked.wait()
        await provider.close_sessions(context.config.ref)
        during = list(script.log)
        answer.set()
        result = await call
        await provider.get_one(context, "k")

    assert during == ["open", "get"]
    assert result.outcome == SecretBytes(b"v")
    assert sorted(script.log) == ["close", "close", "get", "get", "open", "open"]
