"""An HTTP server on loopback with scripted answers, faults included, for tests of the transport and client.

It is a real server on a real socket without Kubernetes semantics; localkube and kube-apiserver have those.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from aiohttp import web

from kuberun.connection import Connection, Credential
from kuberun.credentials import FixedCredentials
from kuberun.transport import AiohttpTransport, TransportLimits

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Received:
    """One received request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(slots=True)
class ScriptedServer:
    """Answers in the order given; the last answer is repeated."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: deque[Answer] = field(default_factory=deque)
    first: asyncio.Event = field(default_factory=asyncio.Event)  # set when the first request has arrived
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def will(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.received.append(Received(request.method, request.raw_path, dict(request.headers), body))
        self.first.set()
        if not self.answers:
            return web.json_response({"kind": "Status", "message": "nothing scripted", "code": 501}, status=501)
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    def hang(self) -> Answer:
        """Wait with the answer until the server ends."""

        async def answer(_: web.Request) -> web.StreamResponse:
            await self.released.wait()
            return web.Response()

        return answer

    def lines(self, *lines: bytes, then_hang: bool = False) -> Answer:
        """Stream the lines, then close the stream properly or leave it open and silent."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for line in lines:
                await response.write(line)
            if then_hang:
                await self.released.wait()
            await response.write_eof()
            return response

        return answer


def json(body: Any, *, code: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(
            body=msgspec.json.encode(body), status=code, headers=headers, content_type="application/json"
        )

    return answer


def failure(code: int, reason: str = "", message: str = "no", headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with a Status as an API server sends it."""
    return json(
        {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code},
        code=code,
        headers=headers,
    )


def text(body: bytes, *, code: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=code, headers=headers)

    return answer


def gzipped(body: Any) -> Answer:
    """Answer compressed, if the request allows it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        data = msgspec.json.encode(body)
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=data)
        return web.Response(body=gzip.compress(data), headers={"Content-Encoding": "gzip"})

    return answer


def cut(after: bytes) -> Answer:
    """Begin an answer and break the connection in the middle of it."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(after)
        _break(request)
        return response

    return answer


def closed() -> Answer:
    """Close the connection without an answer."""

    async def answer(request: web.Request) -> web.StreamResponse:
        _break(request)
        return web.Response()

    return answer


def not_http(data: bytes = b"\x15\x03\x01 what?\r\n\r\n") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.write(data)
        _break(request)
        return web.Response()

    return answer


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


@asynccontextmanager
async def scripted_server(tls: ssl.SSLContext | None = None) -> AsyncGenerator[ScriptedServer, None]:
    server = ScriptedServer()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield server
    finally:
        server.released.set()
        await runner.cleanup()


@asynccontextmanager
async def transport_to(
    url: str, limits: TransportLimits | None = None, **settings: Any
) -> AsyncGenerator[AiohttpTransport, None]:
    """Open a transport to a server; keyword arguments are other fields of the `Connection`."""
    anonymous = Connection(url, FixedCredentials(Credential()), origin="test")
    transport = AiohttpTransport(replace(anonymous, **settings), limits or TransportLimits())
    try:
        yield transport
    finally:
        await transport.close()
