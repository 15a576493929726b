"""HTTP on a socket: keep-alive, pipelining, rejected requests, limits, streams, shutdown, and a silent log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import structlog

from localkube.wire.http import HttpLimits, HttpServer, Reply, Request, Stream

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LIMITS = HttpLimits(body_bytes=1000)
CANARY = b"CANARY-7f3a"


class Backend:
    """A handler whose behaviour the path chooses."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cleaned_up = asyncio.Event()

    async def __call__(self, request: Request) -> Reply | Stream:
        match request.path:
            case "/echo":
                return Reply(200, request.body, "text/plain")
            case "/asked":
                text = f"{request.query}|{request.header('X-One')}|{','.join(request.values('X-Two'))}"
                return Reply(200, text.encode())
            case "/wait":
                self.entered.set()
                try:
                    await self.release.wait()
                finally:
                    self.cleaned_up.set()
                return Reply(200, b"done")
            case "/stream":
                return Stream(self._pieces())
            case "/header":
                return Reply(200, headers=[("X-Text", "a\r\nInjected: b")])
            case _:
                raise RuntimeError(f"broken handler {request.body!r}")

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one\n"
            self.entered.set()
            await self.release.wait()
            yield b"two\n"
        finally:
            self.cleaned_up.set()


@asynccontextmanager
async def serving(backend: Backend, limits: HttpLimits = LIMITS) -> AsyncIterator[tuple[HttpServer, int]]:
    server = HttpServer(backend, lambda status, text: Reply(status, text.encode()), limits=limits)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        yield server, listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.close(0.1)


async def connect(port: int) -> Connection:
    return await asyncio.open_connection("127.0.0.1", port)


def request_of(target: bytes, body: bytes = b"", *, headers: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return b"POST %b %b\r\nHost: a\r\n%b%b\r\n%b" % (target, version, headers, length, body)


async def read_reply(reader: asyncio.StreamReader, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, *lines = text.strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    length = int(headers.get("content-length", "0")) if body else 0
    return int(status.split(" ")[1]), headers, await reader.readexactly(length)


@pytest.fixture
async def connection() -> AsyncIterator[tuple[Backend, Connection, HttpServer]]:
    backend = Backend()
    async with serving(backend) as (server, port):
        reader, writer = await connect(port)
        yield backend, (reader, writer), server
        writer.close()


Fixture = tuple[Backend, Connection, HttpServer]


async def test_requests_sent_at_once_are_answered_in_order(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(b"".join(request_of(b"/echo", b"%d" % number) for number in range(5)))

    assert [(await read_reply(reader))[2] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_request_that_arrives_byte_by_byte_is_one_request(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    for byte in request_of(b"/echo", b"abc"):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)

    assert (await read_reply(reader))[2] == b"abc"


async def test_the_handler_sees_query_and_headers_as_they_came(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_of(b"/asked?x=%20", headers=b"x-one: caf\xc3\xa9 \xff\r\nX-Two: a\r\nx-two: b\r\n"))

    assert (await read_reply(reader))[2].decode() == "x=%20|café \N{REPLACEMENT CHARACTER}|a,b"


async def test_a_chunked_body_is_put_together(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_of(b"/echo", headers=b"Transfer-Encoding: chunked\r\n") + b"2\r\nab\r\n")
    await writer.drain()
    writer.write(b"1;ext=1\r\nc\r\n0\r\nTrailer: x\r\n\r\n" + request_of(b"/echo", b"next"))

    assert [(await read_reply(reader))[2] for _ in range(2)] == [b"abc", b"next"]


async def test_a_client_that_waits_for_leave_to_send_gets_it(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_of(b"/echo", headers=b"Content-Length: 2\r\nExpect: 100-continue\r\n"))
    leave = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"ok")

    assert leave == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert (await read_reply(reader))[2] == b"ok"


async def test_a_client_that_waits_for_leave_to_send_too_much_is_refused_before_it_sends(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_of(b"/echo", headers=b"Content-Length: 5000\r\nExpect: 100-continue\r\n"))

    assert (await read_reply(reader))[0] == 413


async def test_a_reply_to_head_has_a_length_and_no_body(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(b"HEAD /asked HTTP/1.1\r\nHost: a\r\n\r\n" + request_of(b"/echo", b"next"))

    assert (await read_reply(reader, body=False))[1]["content-length"] == "2"
    assert (await read_reply(reader))[2] == b"next"


@pytest.mark.parametrize(
    ("request_text", "closed"),
    [
        pytest.param(request_of(b"/echo"), False, id="HTTP/1.1 keeps the connection by default"),
        pytest.param(request_of(b"/echo", headers=b"Connection: close\r\n"), True, id="close is honoured"),
        pytest.param(request_of(b"/echo", version=b"HTTP/1.0"), True, id="HTTP/1.0 closes by default"),
        pytest.param(
            request_of(b"/echo", headers=b"Connection: keep-alive\r\n", version=b"HTTP/1.0"),
            False,
            id="HTTP/1.0 may ask to stay",
        ),
    ],
)
async def test_keep_alive(connection: Fixture, request_text: bytes, *, closed: bool) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_text)
    await read_reply(reader)
    with suppress(ConnectionError):
        writer.write(request_of(b"/echo", b"again"))

    with suppress(ConnectionError):
        assert (await reader.read(1) == b"") is closed


CHUNKED = request_of(b"/echo", headers=b"Transfer-Encoding: chunked\r\n")


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        pytest.param(request_of(b"/echo", headers=b"Content-Length: 5000\r\n"), 413, id="a body over the limit"),
        pytest.param(CHUNKED + b"400\r\n%b\r\n" % (b"x" * 1024), 413, id="chunks over the limit"),
        pytest.param(CHUNKED + b"400\r\n%b\r\n0\r\n\r\n" % (b"x" * 1024), 413, id="whole chunks over the limit"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="not HTTP"),
        pytest.param(b"GET /\r\n\r\n", 400, id="no version"),
        pytest.param(b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 400, id="another version"),
        pytest.param(request_of(b"http://other/"), 400, id="a target that is not a path"),
        pytest.param(b"CONNECT other:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a target that is an authority"),
        pytest.param(b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="a method that is no token"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(request_of(b"/", headers=b"no colon\r\n"), 400, id="a header without a colon"),
        pytest.param(request_of(b"/", headers=b"Name : x\r\n"), 400, id="a space before the colon"),
        pytest.param(request_of(b"/", headers=b"A: b\r\n folded\r\n"), 400, id="a folded header"),
        pytest.param(request_of(b"/", headers=b"A: b\nC: d\r\n"), 400, id="a bare line feed"),
        pytest.param(request_of(b"/", headers=b"Content-Length: 1\r\nContent-Length: 2\r\n"), 400, id="two lengths"),
        pytest.param(request_of(b"/", headers=b"Content-Length: +1\r\n"), 400, id="a signed length"),
        pytest.param(
            request_of(b"/", headers=b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            400,
            id="a length and chunks",
        ),
        pytest.param(request_of(b"/", headers=b"Transfer-Encoding: gzip\r\n"), 400, id="an unknown transfer coding"),
        pytest.param(request_of(b"/", headers=b"A: b\r\n" * 200), 400, id="too many headers"),
        pytest.param(request_of(b"/", headers=b"A: %b\r\n" % (b"b" * 70_000)), 400, id="a header that is too long"),
        pytest.param(b"GET /" + b"a" * 70_000, 400, id="a request line that does not end"),
        pytest.param(CHUNKED + b"zz\r\n", 400, id="a chunk without a length"),
    ],
)
async def test_refused_requests_close_the_connection(connection: Fixture, request_text: bytes, status: int) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_text)

    answer = await read_reply(reader)
    assert (answer[0], answer[1]["connection"]) == (status, "close")
    assert await reader.read() == b""


@pytest.mark.parametrize("rest", [b"", b"zz\r\n"], ids=["nothing more", "no chunk"])
async def test_a_body_that_does_not_arrive_is_refused(rest: bytes) -> None:
    async with serving(Backend(), HttpLimits(body_seconds=0.05)) as (_, port):
        reader, writer = await connect(port)

        writer.write(CHUNKED + b"1\r\nx\r\n")
        await writer.drain()
        writer.write(rest)

        async with asyncio.timeout(10):
            answer = await read_reply(reader)
        assert (answer[0], answer[1]["connection"]) == (400, "close")
        writer.close()


async def test_a_client_still_sending_a_body_over_the_limit_reads_the_refusal(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_of(b"/echo", b"x" * (8 << 20)))
    await writer.drain()

    assert (await read_reply(reader))[0] == 413


async def test_a_stream_arrives_piece_by_piece_and_the_connection_lives_on(connection: Fixture) -> None:
    backend, (reader, writer), _ = connection

    writer.write(request_of(b"/stream"))
    head = await reader.readuntil(b"\r\n\r\n")
    first = await reader.readuntil(b"one\n\r\n")
    backend.release.set()
    rest = await reader.readuntil(b"0\r\n\r\n")
    writer.write(request_of(b"/echo", b"x"))

    assert b"Transfer-Encoding: chunked" in head
    assert first == b"4\r\none\n\r\n"
    assert rest == b"4\r\ntwo\n\r\n0\r\n\r\n"
    assert (await read_reply(reader))[2] == b"x"


async def test_a_stream_to_an_old_client_ends_with_the_connection(connection: Fixture) -> None:
    backend, (reader, writer), _ = connection
    backend.release.set()

    writer.write(request_of(b"/stream", headers=b"Connection: keep-alive\r\n", version=b"HTTP/1.0"))

    assert (await reader.read()).endswith(b"\r\n\r\none\ntwo\n")


@pytest.mark.parametrize("path", [b"/stream", b"/wait"])
async def test_the_work_for_a_client_is_cleaned_up_when_it_goes_away(connection: Fixture, path: bytes) -> None:
    backend, (_, writer), _ = connection
    writer.write(request_of(path))
    await backend.entered.wait()

    writer.close()

    async with asyncio.timeout(30):
        await backend.cleaned_up.wait()


async def test_a_client_that_goes_away_while_it_sends_is_nothing_to_log(connection: Fixture) -> None:
    _, (_, writer), server = connection

    with structlog.testing.capture_logs() as logs:
        writer.write(request_of(b"/echo", headers=b"Content-Length: 9\r\n") + b"half")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await server.close(1)

    assert logs == []


async def test_closing_lets_a_request_under_way_finish(connection: Fixture) -> None:
    backend, (reader, writer), server = connection
    writer.write(request_of(b"/wait"))
    await backend.entered.wait()

    closing = asyncio.ensure_future(server.close(5))
    await asyncio.sleep(0)
    backend.release.set()
    answer = await read_reply(reader)
    await closing

    assert (answer[0], answer[1]["connection"], answer[2]) == (200, "close", b"done")


async def test_closing_does_not_wait_for_the_rest_of_a_body(connection: Fixture) -> None:
    _, (reader, writer), server = connection
    writer.write(request_of(b"/echo", headers=b"Content-Length: 9\r\nExpect: 100-continue\r\n") + b"half")
    await reader.readuntil(b"\r\n\r\n")

    async with asyncio.timeout(30):
        await server.close(60)

    assert (await read_reply(reader))[0] == 400


async def test_who_connects_after_closing_is_turned_away(connection: Fixture) -> None:
    _, (_, writer), server = connection
    await server.close(1)

    reader, late = await connect(writer.get_extra_info("peername")[1])

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    late.close()


async def test_closing_ends_a_request_that_does_not_finish(connection: Fixture) -> None:
    backend, (reader, writer), server = connection
    writer.write(request_of(b"/wait"))
    await backend.entered.wait()

    await server.close(0.01)

    assert await reader.read() == b""
    assert backend.cleaned_up.is_set()


async def test_a_header_value_cannot_start_another_header(connection: Fixture) -> None:
    _, (reader, writer), _ = connection

    writer.write(request_of(b"/header"))

    answer = await read_reply(reader)
    assert answer[0] == 200
    assert "injected" not in answer[1]


async def test_more_connections_than_the_bound_are_refused() -> None:
    async with serving(Backend(), HttpLimits(connections=1)) as (_, port):
        first_reader, first_writer = await connect(port)
        first_writer.write(request_of(b"/echo", b"x"))
        await read_reply(first_reader)

        second_reader, second_writer = await connect(port)

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await second_reader.readexactly(1)
        first_writer.close()
        second_writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET / HTTP/1.1\r\nHost:", id="half a head"),
        pytest.param(request_of(b"/echo"), id="one request and then nothing"),
    ],
)
async def test_a_connection_that_stays_silent_is_closed(sent: bytes) -> None:
    async with serving(Backend(), HttpLimits(idle_seconds=0.05)) as (_, port):
        reader, writer = await connect(port)

        writer.write(sent)

        async with asyncio.timeout(10):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200") is sent.endswith(b"\r\n\r\n")
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(request_of(b"/broken", CANARY), 500, id="a handler that fails"),
        pytest.param(request_of(b"/", headers=b"Bad\x01Header: %b\r\n" % CANARY), 400, id="a malformed header"),
        pytest.param(request_of(b"/", headers=b"A: %b\r\n" % (CANARY * 9000)), 400, id="a header that is too long"),
        pytest.param(b"%b / HTTP/1.1\r\n\r\n" % CANARY, 400, id="a malformed request line"),
        pytest.param(CHUNKED + b"%b\r\n" % CANARY, 400, id="a malformed chunk"),
    ],
)
async def test_the_log_shows_nothing_of_a_request(
    connection: Fixture, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], sent: bytes, status: int
) -> None:
    _, (reader, writer), _ = connection

    with structlog.testing.capture_logs() as logs, caplog.at_level("DEBUG"):
        writer.write(sent)
        answer = await read_reply(reader)

    assert answer[0] == status
    shown = f"{logs}{caplog.text}{capfd.readouterr()}"
    assert CANARY.decode() not in shown
