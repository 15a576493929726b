"""A hanging backend: the caller learns why before its own deadline, and gets the answers so far. R139."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_sdk.frame import earliness
from eso_sdk.testing import Client, InMemory, call_context
from eso_sdk.testing.memory import MemoryTransport
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted, ScriptedMaker
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    Context,
    GetItem,
    PushBatch,
    PushItem,
    PushOutcome,
    PushResult,
    RemoteRef,
    SourceSecret,
)
from kubebase.testing.clock import VirtualClock

CALLER_SECONDS = 10.0


class Hanging:
    """A provider whose backend answers only "fast"."""

    def __init__(self, provider: InMemory, clock: VirtualClock) -> None:
        self.clock = clock
        self.client = Client(MemoryTransport(provider.frame), CALLER_SECONDS)
        self.given_up: list[str] = []
        self.script = Script.new(get=self._get, push=self._push)

    def context(self, kind: Any = Scripted) -> Context:
        return call_context(kind, {"script": self.script.name})

    async def ended(self, call: Awaitable[Any]) -> Any:
        """Return the outcome of a call shortly before the caller's deadline."""
        running = asyncio.ensure_future(call)
        await self.clock.settle()
        await self.clock.advance(CALLER_SECONDS - 0.1)
        assert running.done()
        return running.exception() or running.result()

    async def _get(self, _: Any, ref: RemoteRef) -> bytes:
        return await self.hang(ref.key) or b"value"

    async def _push(self, _: Any, item: PushItem) -> PushOutcome:
        return await self.hang(item.remote.key) or PushOutcome.CREATED

    async def hang(self, key: str = "") -> Any:
        if key == "fast":
            return None
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.given_up.append(key)
            raise


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    clock = VirtualClock()
    async with InMemory(SCRIPTED, clock) as provider:
        yield Hanging(provider, clock)


def pushed(key: str) -> PushItem:
    return PushItem(key, RemoteRef(key), SecretBytes(b"value"))


async def test_the_items_of_a_batch_that_have_an_answer_keep_it(hanging: Hanging) -> None:
    items = [GetItem(key, RemoteRef(key)) for key in ("slow", "fast", "slower")]

    slow, fast, slower = await hanging.ended(hanging.client.get(hanging.context(), items))

    assert fast.outcome == SecretBytes(b"value")
    assert [each.outcome.reason for each in (slow, slower)] == [ErrorReason.BACKEND_TIMEOUT] * 2
    assert slow.outcome.message == "the backend did not answer in time"
    assert sorted(hanging.given_up) == ["slow", "slower"]


async def test_items_pushed_before_the_deadline_are_reported_as_pushed(hanging: Hanging) -> None:
    batch = PushBatch((pushed("fast"), pushed("slow")), SourceSecret(), "key")

    fast, slow = await hanging.ended(hanging.client.push(hanging.context(), batch))

    assert fast == PushResult("fast", PushOutcome.CREATED)
    assert slow.outcome.reason is ErrorReason.BACKEND_TIMEOUT


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda h: h.client.get_one(h.context(), "slow"), id="a read of one"),
        pytest.param(
            lambda h: h.client.get(h.context(), [GetItem(key, RemoteRef(key)) for key in ("a", "b")]),
            id="all of a batch",
        ),
        pytest.param(lambda h: h.client.validate(h.context()), id="a validation"),
        pytest.param(lambda h: h.client.generate(h.context(ScriptedMaker)), id="a generator"),
    ],
)
async def test_a_call_without_any_answer_fails_with_its_reason_before_the_caller_leaves(
    hanging: Hanging, call: Callable[[Hanging], Awaitable[Any]]
) -> None:
    hanging.script.validate = lambda _: hanging.hang()
    hanging.script.generate = lambda *_: hanging.hang()

    failure = await hanging.ended(call(hanging))

    assert isinstance(failure, ProviderError)
    assert failure.reason is ErrorReason.BACKEND_TIMEOUT
    assert failure.message == "the backend did not answer in time"


async def test_a_login_that_hangs_is_told_in_time_too(hanging: Hanging) -> None:
    hanging.script.open = lambda _: hanging.hang()

    failure = await hanging.ended(hanging.client.get_one(hanging.context(), "fast"))

    assert isinstance(failure, ProviderError)
    assert failure.reason is ErrorReason.BACKEND_TIMEOUT


async def test_author_code_knows_by_when_it_has_to_answer(hanging: Hanging) -> None:
    seen: list[float] = []

    async def get(store: Scripted, _: RemoteRef) -> bytes:
        seen.append(store.call.deadline - hanging.clock.monotonic())
        return b""

    hanging.script.get = get
    await hanging.client.get_one(hanging.context(), "a")

    assert seen == [pytest.approx(9.0)]


@pytest.mark.parametrize(
    ("seconds", "early"),
    [
        pytest.param(300.0, 1.0, id="a second of a long time"),
        pytest.param(5.0, 0.5, id="a tenth"),
        pytest.param(1.0, 0.2, id="enough for an answer to arrive"),
        pytest.param(0.1, 0.05, id="half of what is hardly anything"),
        pytest.param(-1.0, 0.0, id="nothing of nothing"),
    ],
)
def test_an_answer_is_early_by_a_share_of_the_time(seconds: float, early: float) -> None:
    assert earliness(seconds) == pytest.approx(early)
