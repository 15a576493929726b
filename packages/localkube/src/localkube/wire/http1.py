"""HTTP/1.1 on one connection: bytes in, requests to a handler, replies and streams out.

A protocol of our own because a small write spends more time in a general web server than in the API server: this one
costs less than half. It speaks the part of HTTP that API clients use (keep-alive, pipelining, Content-Length and
chunked bodies, 100-continue), and refuses whatever is ambiguous: two lengths, a length and chunks, folded headers.
It knows nothing of Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

import structlog

from kuberun.clock import Clock
from localkube.traces import report_defect
from localkube.wire.framing import BadFramingError, Head, TooLargeError, read_chunked, read_head

log = structlog.get_logger(__name__)

MAX_BUFFERED: Final = 1 << 20
"""Bytes of pipelined requests taken in while one is being answered."""
MAX_GATHERED: Final = 64 << 10
"""Bytes of a stream that are sent at once."""
IDLE_SECONDS: Final = 120.0
"""A connection on which no whole request arrives for so long is closed."""

DISCARD_SECONDS: Final = 2.0
DISCARDED_BYTES: Final = 64 << 20
"""How long and how much of a refused request is read and thrown away before the connection is closed."""


@dataclass(slots=True, repr=False)
class Request:
    """One request. Headers hold credentials and bodies hold secrets, so it does not print them."""

    head: Head
    body: bytes
    peer: dict[str, Any] | None = None
    """The verified client certificate, as `ssl` describes it."""

    @property
    def method(self) -> str:
        return self.head.method

    def __repr__(self) -> str:
        return f"Request({self.head.method} {self.head.path})"


@dataclass(slots=True, repr=False)
class Reply:
    """One reply. Its body may hold secrets, so it does not print it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"


@dataclass(slots=True)
class Stream:
    """A reply without an end known beforehand; each yielded piece is sent at once, as one chunk."""

    pieces: AsyncGenerator[bytes, None]
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


Handler = Callable[[Request], Awaitable[Reply | Stream]]
Refusal = Callable[[int, str], Reply]
"""Turns a refusal on the HTTP level (400, 413, …) into a reply in the API's own form."""


class Http1Server:
    """Accepts connections and owns their tasks."""

    def __init__(
        self,
        handler: Handler,
        refusal: Refusal,
        *,
        clock: Clock,
        max_body: int = 3 << 20,
        max_connections: int = 2048,
    ) -> None:
        self.clock = clock
        self.handler = handler
        self.refusal = refusal
        self.max_body = max_body
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self.closing = False

    def __call__(self) -> Connection:
        """The protocol of a new connection, for `loop.create_server`."""
        return Connection(self)

    async def sweep(self) -> None:
        """Close connections that stay silent, for as long as the server runs; cheaper than a timer for each request."""
        while True:
            await self.clock.sleep(IDLE_SECONDS / 4)
            for connection in list(self._connections):
                connection.close_if_silent(self.clock.monotonic() - IDLE_SECONDS)

    def admit(self, connection: Connection) -> bool:
        if self.closing or len(self._connections) >= self._max_connections:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    async def close(self, patience: float) -> None:
        """Let requests under way finish for `patience` seconds, then drop every connection."""
        self.closing = True
        for connection in list(self._connections):
            connection.close_when_idle()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        for connection in list(self._connections):
            connection.abort()
        if tasks:
            await asyncio.wait(tasks, timeout=patience)


class Connection(asyncio.Protocol):
    """One client. A single task reads requests in order and answers them, until either side closes."""

    def __init__(self, server: Http1Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._peer: dict[str, Any] | None = None
        self._answering = False
        self._paused = False
        self._waiting_since = 0.0
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._peer = transport.get_extra_info("peercert") or None
        self.task = asyncio.get_running_loop().create_task(self._serve(self._transport))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._answering and len(self._buffer) > MAX_BUFFERED and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._arrived.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._writable.set()
        self._server.forget(self)
        if self.task is not None:
            self.task.cancel()

    def close_if_silent(self, since: float) -> None:
        """Close if the client owes us a request since before that time."""
        if not self._answering and self._waiting_since < since:
            self.abort()

    def close_when_idle(self) -> None:
        if not self._answering:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _serve(self, transport: asyncio.Transport) -> None:
        try:
            keep = True
            while keep and not transport.is_closing() and not self._server.closing:
                keep = await self._exchange(transport)
        except ConnectionError:
            pass  # the client went away: nobody to tell
        except Exception as problem:  # noqa: BLE001 - a defect on one connection must not end the others
            report_defect(log, "connection failed", problem)
        finally:
            transport.close()

    async def _exchange(self, transport: asyncio.Transport) -> bool:
        """Answer one request; whether the connection can carry another."""
        try:
            request = await self._read(transport)
        except (BadFramingError, TooLargeError) as problem:
            status = 413 if isinstance(problem, TooLargeError) else 400
            self._send(transport, self._server.refusal(status, str(problem)), keep_alive=False, with_body=True)
            await self._discard()
            return False
        self._answering = True
        try:
            reply = await self._server.handler(request)
            keep_alive = request.head.keep_alive and not self._server.closing
            match reply:
                case Reply():
                    self._send(transport, reply, keep_alive=keep_alive, with_body=request.method != "HEAD")
                    if not self._writable.is_set():
                        await self._writable.wait()
                case Stream():
                    await self._stream(transport, reply)
        finally:
            self._answering = False
            self._resume(transport)
        return keep_alive

    async def _read(self, transport: asyncio.Transport) -> Request:
        self._waiting_since = self._server.clock.monotonic()
        while (head := read_head(self._buffer)) is None:
            await self._more()
        if head.expects_continue:
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self._body(head)
        return Request(head, body, self._peer)

    async def _body(self, head: Head) -> bytes:
        limit = self._server.max_body
        if head.chunked:
            while (body := read_chunked(self._buffer, limit)) is None:
                await self._more()
            return body
        length = head.length
        if length > limit:
            raise TooLargeError(f"limit is {limit}")
        while len(self._buffer) < length:
            await self._more()
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    async def _discard(self) -> None:
        """Take in what the client still sends of a refused request: it reads the answer only after that."""
        left = DISCARDED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while left > 0:
                    left -= len(self._buffer)
                    self._buffer.clear()
                    await self._more()

    async def _more(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    def _resume(self, transport: asyncio.Transport) -> None:
        if self._paused:
            self._paused = False
            transport.resume_reading()

    def _send(self, transport: asyncio.Transport, reply: Reply, *, keep_alive: bool, with_body: bool) -> None:
        lines = [
            _status_line(reply.status),
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(reply.body)}",
        ]
        lines += [f"{name}: {value}" for name, value in reply.headers]
        if not keep_alive:
            lines.append("Connection: close")
        head = _encoded(lines)
        transport.write(head + reply.body if with_body else head)

    async def _stream(self, transport: asyncio.Transport, stream: Stream) -> None:
        lines = [_status_line(200), f"Content-Type: {stream.content_type}", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in stream.headers]
        transport.write(_encoded(lines))
        gathered = _Gathered(transport)
        try:
            async for piece in stream.pieces:
                gathered.add(piece)
                if not self._writable.is_set():
                    await self._writable.wait()
        finally:
            await stream.pieces.aclose()
        gathered.flush()
        transport.write(b"0\r\n\r\n")


class _Gathered:
    """Chunks that became ready in one turn of the loop, sent together at its end (or when they are many)."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._bytes = bytearray()

    def add(self, piece: bytes) -> None:
        if not self._bytes:
            self._loop.call_soon(self.flush)
        self._bytes += b"%x\r\n%b\r\n" % (len(piece), piece)
        if len(self._bytes) > MAX_GATHERED:
            self.flush()

    def flush(self) -> None:
        if self._bytes:
            self._transport.write(bytes(self._bytes))
            self._bytes.clear()


def _status_line(status: int) -> str:
    return _STATUS_LINES.get(status) or f"HTTP/1.1 {status} Status"


_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}


def _encoded(lines: list[str]) -> bytes:
    """The head of a reply. A value must never start a new header, wherever it came from."""
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        text = "\r\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines)
    return text.encode("latin-1", "replace") + b"\r\n\r\n"
