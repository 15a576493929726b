"""A server with scripted responses: for responses that no healthy OpenBao sends, and to inspect requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from kubebase.testing.listening import listening

MAX_HEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request that arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StubResponse:
    """One response."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


Responder = Callable[[RecordedRequest], StubResponse | None]
"""None means that the server never responds."""


@dataclass(slots=True)
class ReplyServer:
    """Responds with `responder`, and records the requests."""

    responder: Responder
    url: str = ""
    requests: list[RecordedRequest] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def started(cls, responder: Responder, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ReplyServer]:
        server = cls(responder)
        async with server.running(tls):
            yield server

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        async with listening(self._serve, limit=MAX_HEAD, tls=tls) as port:
            self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
            yield

    def respond(self, request: RecordedRequest) -> StubResponse | None:
        return self.responder(request)

    async def _upgraded(
        self, _seen: RecordedRequest, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
    ) -> bool:
        """Serve another protocol than HTTP on this connection; return False if it stays with HTTP."""
        return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await self._request(reader)
            if await self._upgraded(request, reader, writer):
                break
            response = self.respond(request)
            if response is None:
                await reader.read()
                break
            writer.write(_encoded(response))
            await writer.drain()

    async def _request(self, reader: asyncio.StreamReader) -> RecordedRequest:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(RecordedRequest(method, target, headers, body))
        return self.requests[-1]


def _encoded(response: StubResponse) -> bytes:
    phrase = HTTPStatus(response.status).phrase if response.status in {code.value for code in HTTPStatus} else "Odd"
    headers = {"Content-Type": "application/json", "Content-Length": str(len(response.body))} | response.headers
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + response.body
