"""A malicious provider: whatever it sends, the operator neither crashes, hangs nor believes it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eso_api.values import SecretBytes
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import TLS, bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway, WiredGateway, loopback
from eso_wire import codec
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CleanupRequest,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    GenerateRequest,
    GetResult,
    PushBatch,
    PushItem,
    RemoteRef,
)

ONCE = CallPolicy(gated=False, max_retries=0)


def answer(*item_ids: str) -> bytes:
    results = [GetResult(item_id, SecretBytes(b"value")) for item_id in item_ids]
    return codec.to_get_response(results).SerializeToString()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(answer(), id="nothing"),
        pytest.param(answer("a"), id="one item is missing"),
        pytest.param(answer("a", "a"), id="one item twice"),
        pytest.param(answer("a", "b", "b"), id="all, and one twice"),
        pytest.param(answer("a", "c"), id="an item that was not asked for"),
        pytest.param(answer("a", "b", "c"), id="all, and one that was not asked for"),
        pytest.param(b"\xff\xff\xff", id="no message at all"),
        pytest.param(b"\x0a\x02\x0a", id="a message that breaks off"),
    ],
)
async def test_an_answer_that_does_not_match_the_question_is_refused(loop: LoopbackGateway, sent: bytes) -> None:
    loop.provider.nonsense = lambda _method, _answer: sent

    with pytest.raises(ProviderError, match="provider scripted sent an invalid response") as caught:
        await loop.gateway.get(bound_store(policy=ONCE), wanted("a", "b"))

    assert caught.value.reason is ErrorReason.INTERNAL


async def test_answers_may_come_in_any_order(loop: LoopbackGateway) -> None:
    loop.provider.nonsense = lambda _method, _answer: answer("b", "a")

    results = await loop.gateway.get(bound_store(policy=ONCE), wanted("a", "b"))

    assert [result.item_id for result in results] == ["a", "b"]


async def test_an_item_that_failed_without_a_word_is_explained_by_its_reason(loop: LoopbackGateway) -> None:
    mute = codec.to_get_response([GetResult("a", ProviderError(ErrorReason.SECRET_NOT_FOUND, ""))])
    loop.provider.nonsense = lambda _method, _answer: mute.SerializeToString()

    (result,) = await loop.gateway.get(bound_store(policy=ONCE), wanted("a"))

    assert isinstance(result.outcome, ProviderError)
    assert result.outcome.is_not_found
    assert result.outcome.message == "the backend has no such key; the provider says no more"


async def every_call(loop: LoopbackGateway) -> None:
    """Each ends with an answer or a ProviderError."""
    gateway, bound = loop.gateway, bound_store(policy=ONCE)
    for call in (
        lambda: gateway.handshake(endpoint(), TLS),
        lambda: gateway.get(bound, wanted("a", "b")),
        lambda: gateway.find(bound, FindQuery()),
        lambda: gateway.check(bound, wanted("a")),
        lambda: gateway.push(bound, PushBatch((PushItem("x", RemoteRef("x"), SecretBytes(b"v")),))),
        lambda: gateway.delete(bound, DeleteBatch((DeleteItem("x", RemoteRef("x")),))),
        lambda: gateway.validate(bound),
        lambda: gateway.generate(bound, GenerateRequest()),
        lambda: gateway.cleanup(bound, CleanupRequest(SecretBytes(b"{}"))),
    ):
        with contextlib.suppress(ProviderError):
            await call()


def damaged(sent: bytes, flips: list[tuple[int, int]]) -> bytes:
    spoilt = bytearray(sent)
    for position, value in flips:
        if spoilt:
            spoilt[position % len(spoilt)] = value
    return bytes(spoilt)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_understood(sent: bytes) -> None:
    async def run() -> None:
        loop = loopback()
        loop.provider.nonsense = lambda _method, _answer: sent
        calls = asyncio.create_task(every_call(loop))
        await loop.clock.run_until_idle()
        await calls
        await loop.gateway.close()

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8))
def test_damaged_answers_are_refused_or_understood(flips: list[tuple[int, int]]) -> None:
    async def run() -> None:
        loop = loopback()
        loop.provider.nonsense = lambda _method, sent: damaged(sent, flips)
        calls = asyncio.create_task(every_call(loop))
        await loop.clock.run_until_idle()
        await calls
        await loop.gateway.close()

    asyncio.run(run())


async def test_random_bytes_over_real_sockets_end_in_an_error_and_leave_the_channel_usable(
    wired: WiredGateway,
) -> None:
    chance = random.Random(7)  # noqa: S311 - a reproducible fuzz, not cryptography
    bound = bound_store(endpoint(wired.host.target), policy=ONCE)
    wired.provider.nonsense = lambda _method, _answer: chance.randbytes(chance.randrange(2000))
    calls: tuple[Callable[[], object], ...] = (
        lambda: wired.gateway.get(bound, wanted("a")),
        lambda: wired.gateway.find(bound, FindQuery()),
    )

    async with asyncio.timeout(30):
        for number in range(60):
            with pytest.raises(ProviderError):
                await calls[number % 2]()  # type: ignore[misc]  # both are coroutines
        wired.provider.nonsense = None
        results = await wired.gateway.get(bound, wanted("a"))

    assert results[0].outcome == SecretBytes(b"value-of-a")


async def test_a_stream_of_large_pages_ends_at_the_bound_of_bytes(loop: LoopbackGateway) -> None:
    loop.provider.data = {f"key-{number}": bytes(1024 * 1024) for number in range(80)}
    loop.provider.page_size = 8

    with pytest.raises(ProviderError, match="narrow the search") as caught:
        await loop.gateway.find(bound_store(policy=ONCE), FindQuery())

    assert caught.value.reason is ErrorReason.PAYLOAD_TOO_LARGE


async def test_a_request_that_is_too_large_is_not_sent(loop: LoopbackGateway) -> None:
    batch = PushBatch((PushItem("x", RemoteRef("x"), SecretBytes(bytes(17 * 1024 * 1024))),))

    with pytest.raises(ProviderError) as caught:
        await loop.gateway.push(bound_store(policy=ONCE), batch)

    assert caught.value.reason is ErrorReason.PAYLOAD_TOO_LARGE
    assert loop.provider.calls.total() == 0


async def test_a_request_that_cannot_be_encoded_is_refused_without_its_content(loop: LoopbackGateway) -> None:
    with pytest.raises(ProviderError, match="cannot be sent") as caught:
        await loop.gateway.get(bound_store(policy=ONCE), wanted("half a character: \ud800"))

    assert caught.value.__cause__ is None
    assert "half" not in str(caught.value)
