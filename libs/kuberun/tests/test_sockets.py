"""No socket outlives its session, whatever was under way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from kubebase.clock import SystemClock
from kuberun.testing.authority import Authority
from kuberun.testing.scriptedserver import ScriptedServer, scripted_server
from kuberun.transport import Sockets, abort_response


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    authority = Authority(SystemClock().now())
    context = authority.server_context(
        tmp_path, authority.issue("kube.test", address="127.0.0.1"), client_authority=False
    )
    async with scripted_server(context) as running:
        yield running


async def test_a_call_that_was_cancelled_over_tls_leaves_no_socket(server: ScriptedServer) -> None:
    server.will(server.hang())
    sockets = Sockets()
    async with aiohttp.ClientSession(connector=sockets.connector(ssl=False)) as session:
        call = asyncio.ensure_future(session.get(server.url))
        await server.first.wait()
        call.cancel()
        await asyncio.wait([call])
    assert sockets.open() == 1, "aiohttp waits by itself now: `Sockets` can go"

    await sockets.closed()

    assert sockets.open() == 0


async def test_a_stream_that_is_broken_off_over_tls_is_closed_at_once(server: ScriptedServer) -> None:
    server.will(server.lines(b"one\n", then_hang=True))
    sockets = Sockets()
    async with aiohttp.ClientSession(connector=sockets.connector(ssl=False)) as session:
        response = await session.get(server.url)
        assert await response.content.readline() == b"one\n"

        abort_response(response)

    assert sockets.open() == 0


async def test_a_peer_that_does_not_say_goodbye_is_not_waited_for_without_end(server: ScriptedServer) -> None:
    server.will(server.hang())
    sockets = Sockets()
    async with aiohttp.ClientSession(connector=sockets.connector(ssl=False)) as session:
        call = asyncio.ensure_future(session.get(server.url))
        await server.first.wait()

        await sockets.closed(within=0.02)

        assert sockets.open() == 1
        call.cancel()
        await asyncio.wait([call])
    await sockets.closed()
