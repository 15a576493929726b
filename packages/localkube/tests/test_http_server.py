"""HTTP on a socket: keep-alive, pipelining, limits, streams and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kuberun.clock import Clock, SystemClock
from kuberun.testing.clock import VirtualClock
from localkube.wire.http1 import IDLE_SECONDS, Http1Server, Reply, Request, Stream

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Backend:
    """A handler whose behaviour the path chooses."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cleaned_up = asyncio.Event()

    async def __call__(self, request: Request) -> Reply | Stream:
        match request.head.path:
            case "/echo":
                return Reply(200, request.body, "text/plain")
            case "/wait":
                self.entered.set()
                await self.release.wait()
                return Reply(200, b"done")
            case "/stream":
                return Stream(self._pieces())
            case "/header":
                return Reply(200, headers=[("X-Text", "a\r\nInjected: b")])
            case _:
                raise RuntimeError("broken handler")

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one\n"
            self.entered.set()
            await self.release.wait()
            yield b"two\n"
        finally:
            self.cleaned_up.set()


@asynccontextmanager
async def serving(
    backend: Backend, max_body: int = 1000, clock: Clock | None = None
) -> AsyncIterator[tuple[Http1Server, int]]:
    server = Http1Server(
        backend, lambda status, text: Reply(status, text.encode()), clock=clock or SystemClock(), max_body=max_body
    )
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        yield server, listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.close(0.1)


async def connect(port: int) -> Connection:
    return await asyncio.open_connection("127.0.0.1", port)


async def read_reply(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = text.strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split(" ")[1]), headers, await reader.readexactly(int(headers.get("content-length", "0")))


@pytest.fixture
async def connection(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Backend, Connection, Http1Server]]:
    del request
    backend = Backend()
    async with serving(backend) as (server, port):
        reader, writer = await connect(port)
        yield backend, (reader, writer), server
        writer.close()


Fixture = tuple[Backend, Connection, Http1Server]


async def test_requests_sent_at_once_are_answered_in_order(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(b"".join(b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(5)))

    assert [(await read_reply(reader))[2] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_chunked_body_is_put_together(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
    writer.write(b"1\r\nc\r\n0\r\n\r\n")

    assert (await read_reply(reader))[2] == b"abc"


async def test_a_client_that_waits_for_leave_to_send_gets_it(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    leave = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"ok")

    assert leave == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await read_reply(reader))[2] == b"ok"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"POST /echo HTTP/1.1\r\nContent-Length: 5000\r\n\r\n", 413),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n", 413),
    ],
    ids=["a body over the limit", "not HTTP", "chunks over the limit"],
)
async def test_refused_requests_close_the_connection(connection: Fixture, request_text: bytes, status: int) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_text)

    answer = await read_reply(reader)
    assert (answer[0], answer[1]["connection"]) == (status, "close")
    assert await reader.read() == b""


async def test_a_stream_arrives_piece_by_piece_and_the_connection_lives_on(connection: Fixture) -> None:
    backend, (reader, writer), _ = connection

    writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    first = await reader.readuntil(b"one\n\r\n")
    backend.release.set()
    rest = await reader.readuntil(b"0\r\n\r\n")
    writer.write(b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")

    assert b"Transfer-Encoding: chunked" in head
    assert first == b"4\r\none\n\r\n"
    assert rest == b"4\r\ntwo\n\r\n0\r\n\r\n"
    assert (await read_reply(reader))[2] == b"x"


async def test_a_stream_is_cleaned_up_when_its_client_goes_away(connection: Fixture) -> None:
    backend, (_, writer), _ = connection
    writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
    await backend.entered.wait()

    writer.close()

    async with asyncio.timeout(5):
        await backend.cleaned_up.wait()


async def test_closing_lets_a_request_under_way_finish(connection: Fixture) -> None:
    backend, (reader, writer), server = connection
    writer.write(b"GET /wait HTTP/1.1\r\n\r\n")
    await backend.entered.wait()

    closing = asyncio.ensure_future(server.close(5))
    await asyncio.sleep(0)
    backend.release.set()
    answer = await read_reply(reader)
    await closing

    assert (answer[0], answer[1]["connection"], answer[2]) == (200, "close", b"done")


async def test_a_header_value_cannot_start_another_header(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(b"GET /header HTTP/1.1\r\n\r\n")

    assert "injected" not in (await read_reply(reader))[1]


async def test_more_connections_than_the_bound_are_refused() -> None:
    server = Http1Server(
        Backend(), lambda status, text: Reply(status, text.encode()), clock=SystemClock(), max_connections=1
    )
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    first_reader, first_writer = await connect(port)
    first_writer.write(b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
    await read_reply(first_reader)

    second_reader, second_writer = await connect(port)

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await second_reader.readexactly(1)
    first_writer.close()
    second_writer.close()
    listener.close()
    await server.close(0.1)


async def test_a_connection_that_stays_silent_is_closed() -> None:
    clock = VirtualClock()
    async with serving(Backend(), clock=clock) as (server, port):
        reader, writer = await connect(port)
        writer.write(b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        await read_reply(reader)
        sweeping = asyncio.ensure_future(server.sweep())

        await clock.advance(IDLE_SECONDS / 2)
        assert not reader.at_eof()
        await clock.advance(IDLE_SECONDS)

        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        sweeping.cancel()
        writer.close()
