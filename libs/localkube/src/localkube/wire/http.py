"""HTTP for the API: aiohttp's low-level server below, a handler of plain values above.

    aiohttp: connections, parsing, limits of the head, keep-alive, chunks -> `Request` -> handler -> `Reply` or `Stream`

This module contains the differences from the library: bodies are read whole and bounded before the handler is called,
errors have the API's own form, and the log never shows anything of a request. It is independent of Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy

from localkube.traces import report_defect

log = structlog.get_logger(__name__)

_DISCARD_SECONDS: Final = 2.0
"""Seconds to read and discard the rest of a refused request: a client reads the response only after sending all."""
_MAX_LINE: Final = 16 << 10
"""Bytes of the request line, and of each header: long selectors and tokens fit."""
_MAX_HEADERS: Final = 128
_VERSIONS: Final = (HttpVersion11, HttpVersion10)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_SERVER: Final = ("Server", "localkube")
_CONTROLS: Final = dict.fromkeys((*range(32), 127), " ")


@dataclass(slots=True, repr=False)
class Request:
    """One request. Headers contain credentials and bodies contain secrets, so its repr omits them."""

    method: str
    path: str
    """The path as received, still percent-encoded."""
    query: str
    headers: CIMultiDictProxy[str]
    body: bytes = b""
    peer: dict[str, Any] | None = None
    """The verified client certificate, as `ssl` describes it."""

    def header(self, name: str) -> str:
        """Return the first value under a name, empty if there is none."""
        return _text(self.headers.get(name, ""))

    def values(self, name: str) -> list[str]:
        return [_text(value) for value in self.headers.getall(name, ())]

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"


@dataclass(slots=True, repr=False)
class Reply:
    """One reply. Its body may contain secrets, so its repr omits it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Reply({self.status}, {len(self.body)} bytes)"


@dataclass(slots=True)
class Stream:
    """A reply of unknown length; each yielded piece is sent at once, as one chunk."""

    pieces: AsyncGenerator[bytes, None]
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


Handler = Callable[[Request], Awaitable[Reply | Stream]]
Refusal = Callable[[int, str], Reply]
"""Turns a refusal on the HTTP level (400, 413, …) into a reply in the API's own form."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    body_bytes: int = 3 << 20
    connections: int = 2048
    idle_seconds: float = 120.0
    """Seconds in which a whole request head must arrive, else the connection is closed."""
    body_seconds: float = 60.0
    """Seconds in which a body must arrive."""


class HttpServer:
    """Creates the protocol of each new connection, for `loop.create_server`, and ends them all."""

    def __init__(self, handler: Handler, refusal: Refusal, *, limits: HttpLimits | None = None) -> None:
        self._handler = handler
        self._refusal = refusal
        self._limits = limits or HttpLimits()
        self._closing = False
        self._arriving: set[asyncio.Timeout] = set()
        # The request of a client that disconnects is cancelled: the reply has no reader, and watches must end.
        self._server = web.Server(self._respond, handler_cancellation=True)

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self._server, self._refusal, self._admits, idle_seconds=self._limits.idle_seconds)

    async def close(self, seconds: float) -> None:
        """Let requests under way finish for that many `seconds`, then drop every connection."""
        self._closing = True
        for arrival in self._arriving:
            if not arrival.expired():  # the rest of a body is not waited for
                arrival.reschedule(asyncio.get_running_loop().time())
        self._server.pre_shutdown()
        await self._server.shutdown(seconds)

    def _admits(self) -> bool:
        """Return whether a new connection may stay."""
        return not self._closing and len(self._server.connections) <= self._limits.connections

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            reply = await self._handler(await self._read(request))
        except _RefusedError as problem:
            return _closing_response(self._refusal(problem.status, problem.message))
        match reply:
            case Reply():
                response = _response(reply)
                if self._closing:
                    response.force_close()
                return response
            case Stream():
                return await _sent(reply, request)

    async def _read(self, request: web.BaseRequest) -> Request:
        target = _text(request.raw_path)
        if request.version not in _VERSIONS:
            raise _RefusedError(400, "only HTTP/1.1 is spoken here")
        if not target.startswith("/"):
            raise _RefusedError(400, "the request target must be a path")
        body = await self._body(request) if request.body_exists else b""
        path, _, query = target.partition("?")
        transport = request.transport
        peer = transport.get_extra_info("peercert") if transport is not None else None
        return Request(request.method, path, query, request.headers, body, peer or None)

    async def _body(self, request: web.BaseRequest) -> bytes:
        limit = self._limits.body_bytes
        _check_size(request.content_length or 0, limit)
        if request.content.is_eof():
            body = request.content.read_nowait()
            _check_size(len(body), limit)
            return body
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(_CONTINUE)
        try:
            async with asyncio.timeout(self._limits.body_seconds) as arrival:
                self._arriving.add(arrival)
                return await _whole_body(request, limit)
        except TimeoutError:
            raise _RefusedError(400, "the body did not arrive in time") from None
        except web.RequestPayloadError:
            raise _RefusedError(400, "malformed body") from None
        finally:
            self._arriving.discard(arrival)


class _RefusedError(Exception):
    """The request is refused on the HTTP level."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class _Connection(web.RequestHandler):
    """A connection of aiohttp's that refuses in the API's form. What the library would log quotes requests."""

    __slots__ = ("_admits", "_refusal")

    def __init__(
        self, server: web.Server, refusal: Refusal, admits: Callable[[], bool], *, idle_seconds: float
    ) -> None:
        options: dict[str, Any] = {
            "access_log": None,
            "auto_decompress": False,
            "keepalive_timeout": idle_seconds,
            "lingering_time": _DISCARD_SECONDS,
            "max_line_size": _MAX_LINE,
            "max_field_size": _MAX_LINE,
            "max_headers": _MAX_HEADERS,
        }
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._refusal = refusal
        self._admits = admits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.transport is not None and not self._admits():
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the reply to a request that could not be parsed, or to a defect above."""
        if exc is not None and not isinstance(exc, HttpProcessingError):
            report_defect(log, "request failed", exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a reply is under way; only the end of the connection can tell of a failure")
        # After the colon the library quotes the input.
        return _closing_response(self._refusal(status, (message or "").partition(":")[0]))

    def log_exception(self, *_: Any, **details: Any) -> None:
        problem = details.get("exc_info")
        if isinstance(problem, BaseException):
            report_defect(log, "connection failed", problem)


async def _whole_body(request: web.BaseRequest, limit: int) -> bytes:
    body = bytearray()
    while piece := await request.content.readany():
        body += piece
        _check_size(len(body), limit)
    return bytes(body)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise _RefusedError(413, f"limit is {limit}")


async def _sent(stream: Stream, request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers=_headers(stream))
    if request.version < HttpVersion11:
        response.force_close()  # without chunks, only the end of the connection ends the reply
    try:
        await response.prepare(request)
        async for piece in stream.pieces:
            await response.write(piece)
    except ConnectionError:
        pass  # the client disconnected
    finally:
        await stream.pieces.aclose()
    return response


def _closing_response(reply: Reply) -> web.Response:
    response = _response(reply)
    response.headers["Connection"] = "close"
    response.force_close()
    return response


def _response(reply: Reply) -> web.Response:
    return web.Response(status=reply.status, body=reply.body, headers=_headers(reply))


def _headers(reply: Reply | Stream) -> list[tuple[str, str]]:
    """Build the headers; control characters of values are replaced, so that none starts a new header."""
    headers = [("Content-Type", reply.content_type), _SERVER, *reply.headers]
    return [(name, value if value.isprintable() else value.translate(_CONTROLS)) for name, value in headers]


def _text(received: str) -> str:
    """Replace bytes that are not UTF-8: they arrive as lone surrogates, which cannot be written out again."""
    if received.isascii():
        return received
    return received.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
