"""A server with Vault Enterprise's event stream: as much of websockets as `sys/events/subscribe` needs.

OpenBao has no event stream, and Vault Enterprise is not available to tests. Messages have the form that Vault
documents.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from kubebase.testing.listening import listening

# ---------------------------------------------------------------------------------------------------------------------
# A server with scripted responses: for responses that no healthy OpenBao sends, and to inspect requests.


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


# --- A server with Vault Enterprise's event stream -------------------------------------------------------------------


PATH: Final = "/v1/sys/events/subscribe/kv-v2/"
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA


@dataclass(slots=True)
class EventServer(ReplyServer):
    """Upgrades requests for events, and lets `responder` serve the others. `refuse` is the status of upgrades."""

    refuse: int = 0
    sockets: list[asyncio.StreamWriter] = field(default_factory=list)
    connected: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[EventServer]:
        """Start a server that serves only events."""
        server = cls(_plain)
        async with server.running():
            try:
                yield server
            finally:
                server.drop()

    async def send(self, mount: str, key: str, kind: str = "data-write", version: int = 1) -> None:
        """Send one change to all subscribers."""
        path = f"{mount}/{'metadata' if kind.startswith('metadata') else 'data'}/{key}"
        about = {
            "current_version": str(version),
            "data_path": path,
            "modified": "true",
            "operation": kind,
            "path": path,
        }
        event = {"id": "1", "metadata": about}
        plugin = {"mount_class": "secret", "mount_path": f"{mount}/", "plugin": "kv"}
        data = {"event": event, "event_type": f"kv-v2/{kind}", "plugin_info": plugin}
        await self.send_text(json.dumps({"id": "1", "source": "https://vault", "type": "*", "data": data}))

    async def send_text(self, message: str) -> None:
        for writer in self.sockets:
            writer.write(_frame(_TEXT, message.encode()))
            await writer.drain()

    def drop(self) -> None:
        """Cut all streams, as a server that restarts."""
        for writer in self.sockets:
            writer.close()
        self.sockets.clear()

    async def _upgraded(
        self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if (
            not request.target.startswith(PATH)
            or request.headers.get("upgrade", "").lower() != "websocket"
            or self.refuse
        ):
            return False
        accept = hashlib.sha1(request.headers["sec-websocket-key"].encode() + _MAGIC, usedforsecurity=False).digest()
        lines = (
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {base64.b64encode(accept).decode()}",
        )
        writer.write("\r\n".join((*lines, "", "")).encode())
        await writer.drain()
        self.sockets.append(writer)
        self.connected.release()
        await self._serve_frames(reader, writer)
        return True

    async def _serve_frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            opcode, payload = await _received(reader)
            if opcode == _PING:
                writer.write(_frame(_PONG, payload))
            if opcode == _CLOSE:
                writer.write(_frame(_CLOSE, payload))
                return

    def respond(self, request: RecordedRequest) -> StubResponse | None:
        if request.target.startswith(PATH) and self.refuse:
            return StubResponse(self.refuse, b'{"errors":["permission denied"]}')
        return self.responder(request)


def _plain(request: RecordedRequest) -> StubResponse:
    if request.target.startswith(PATH):
        return StubResponse(426, b'{"errors":["upgrade required"]}')
    if "ui/mounts" in request.target:
        return StubResponse(200, b'{"data":{"type":"kv","path":"kv/","options":{"version":"2"}}}')
    return StubResponse(404, b'{"errors":[]}')


def _frame(opcode: int, payload: bytes) -> bytes:
    size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + payload


async def _received(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return one frame of a client; client frames are masked, and short."""
    head = await reader.readexactly(2)
    size = head[1] & 0x7F
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    mask = await reader.readexactly(4)
    masked = await reader.readexactly(size)
    return head[0] & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))
