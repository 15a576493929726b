"""An HTTP server on loopback with scripted responses, faults included, for tests of the transport and client.

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

from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.transport import AiohttpTransport, TransportLimits

ScriptedResponse = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
    """Sends the responses in the order given; the last one is repeated."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    responses: deque[ScriptedResponse] = field(default_factory=deque)
    first: asyncio.Event = field(default_factory=asyncio.Event)  # set when the first request has arrived
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def will(self, *responses: ScriptedResponse) -> None:
        self.responses.extend(responses)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.received.append(Received(request.method, request.raw_path, dict(request.headers), body))
        self.first.set()
        if not self.responses:
            return web.json_response({"kind": "Status", "message": "nothing scripted", "code": 501}, status=501)
        respond = self.responses.popleft() if len(self.responses) > 1 else self.responses[0]
        return await respond(request)

    def hang(self) -> ScriptedResponse:
        """Wait with the response until the server ends."""

        async def respond(_: web.Request) -> web.StreamResponse:
            await self.released.wait()
            return web.Response()

        return respond

    def lines(self, *lines: bytes, then_hang: bool = False) -> ScriptedResponse:
        """Stream the lines, then close the stream properly or leave it open and silent."""

        async def respond(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for line in lines:
                await response.write(line)
            if then_hang:
                await self.released.wait()
            await response.write_eof()
            return response

        return respond


def json(body: Any, *, code: int = 200, headers: Mapping[str, str] | None = None) -> ScriptedResponse:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(
            body=msgspec.json.encode(body), status=code, headers=headers, content_type="application/json"
        )

    return respond


def failure(
    code: int, reason: str = "", message: str = "no", headers: Mapping[str, str] | None = None
) -> ScriptedResponse:
    """Respond with a Status as an API server sends it."""
    return json(
        {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code},
        code=code,
        headers=headers,
    )


def text(body: bytes, *, code: int = 200, headers: Mapping[str, str] | None = None) -> ScriptedResponse:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=code, headers=headers)

    return respond


def gzipped(body: Any) -> ScriptedResponse:
    """Respond compressed, if the request allows it."""

    async def respond(request: web.Request) -> web.StreamResponse:
        data = msgspec.json.encode(body)
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=data)
        return web.Response(body=gzip.compress(data), headers={"Content-Encoding": "gzip"})

    return respond


def cut(after: bytes) -> ScriptedResponse:
    """Begin a response and break the connection in the middle of it."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(after)
        _break(request)
        return response

    return respond


def closed() -> ScriptedResponse:
    """Close the connection without a response."""

    async def respond(request: web.Request) -> web.StreamResponse:
        _break(request)
        return web.Response()

    return respond


def not_http(data: bytes = b"\x15\x03\x01 what?\r\n\r\n") -> ScriptedResponse:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.write(data)
        _break(request)
        return web.Response()

    return respond


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
