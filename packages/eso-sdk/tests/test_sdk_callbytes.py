"""The bytes of all calls of a process together are bounded, shared between namespaces, and released with each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from yarl import URL

from eso_sdk.addresses import AddressPolicy
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, HttpSettings
from eso_sdk.processwide import CURRENT_BYTES, MAX_BYTES, SMALL, CallBytes, bytes_of_call
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_sdk.testing.server import read
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ObjectRef
from kubebase.clock import SystemClock

CLOCK = SystemClock()
LARGE = 4_000_000
REF = ObjectRef("v1", "ExternalSecret", "team", "caller", "uid", 1)


@asynccontextmanager
async def backend(size: int) -> AsyncIterator[tuple[HttpClient, URL]]:
    """A backend whose answers have this size, and a client for it."""

    async def response(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * size)

    app = web.Application()
    app.router.add_get("/", response)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = HttpClient(HttpSettings("the backend"), policy=AddressPolicy.parse(["loopback"]), clock=CLOCK)
    try:
        yield client, URL.build(scheme="http", host="127.0.0.1", port=runner.addresses[0][1], path="/")
    finally:
        await client.close()
        await runner.cleanup()


async def fetch(client: HttpClient, url: URL, namespace: str) -> tuple[HttpResponse | ProviderError, CallBytes]:
    """Read an answer in a call of its own, which goes on."""
    held = bytes_of_call(CLOCK, namespace)
    CURRENT_BYTES.set(held)
    try:
        return await client.send(HttpRequest("GET", url)), held
    except ProviderError as error:
        held.end()
        return error, held


async def test_large_answers_of_many_calls_are_bounded_and_leave_room_for_another_namespace() -> None:
    async with backend(LARGE) as (client, url):
        fetched = await asyncio.gather(*(asyncio.create_task(fetch(client, url, "crowd")) for _ in range(40)))
        neighbour, _ = await asyncio.create_task(fetch(client, url, "neighbour"))

    read_on = [response for response, _ in fetched if isinstance(response, HttpResponse)]
    refused = [response for response, _ in fetched if isinstance(response, ProviderError)]
    assert 0 < len(read_on) * LARGE <= MAX_BYTES
    assert {error.reason for error in refused} == {ErrorReason.RATE_LIMITED}
    assert all(error.retry_after > 0 for error in refused)
    assert isinstance(neighbour, HttpResponse)


async def test_a_small_answer_is_read_even_if_the_process_holds_too_much() -> None:
    """It may name something that the call created."""
    full = bytes_of_call(CLOCK, "crowd")
    full.count(MAX_BYTES)

    async with backend(SMALL) as (client, url):
        response, _ = await asyncio.create_task(fetch(client, url, "crowd"))
    full.end()

    assert isinstance(response, HttpResponse)


async def test_a_call_is_refused_before_it_runs_while_the_process_holds_too_much() -> None:
    async with InMemory(SCRIPTED, CLOCK) as provider:
        context = call_context(Scripted, {"script": Script.new(values={"a": b"value"}).name})
        full = bytes_of_call(CLOCK, context.caller.namespace)
        full.count(MAX_BYTES)
        with pytest.raises(ProviderError) as refused:
            await read(provider, context, "a")
        handshake = await provider.handshake()
        full.end()
        after = await read(provider, context, "a")

    assert refused.value.reason is ErrorReason.RATE_LIMITED
    assert handshake.provider_name == SCRIPTED.name
    assert after == [b"value"]


async def test_a_call_releases_its_bytes_when_it_is_over() -> None:
    async with InMemory(SCRIPTED, CLOCK) as provider:
        context = call_context(Scripted, {"script": Script.new(values={"a": b"x" * LARGE}).name})

        for _ in range(2 * MAX_BYTES // LARGE):
            assert await read(provider, context, "a") == [b"x" * LARGE]
        probe = bytes_of_call(CLOCK, "another")
        probe.take(MAX_BYTES)
        probe.end()

    probe.count(1)
    assert probe.bytes == 0
