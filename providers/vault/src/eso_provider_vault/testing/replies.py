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
class Seen:
    """One request that arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Said:
    """One answer."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


Answers = Callable[[Seen], Said | None]
"""None means that the server never responds."""


@dataclass(slots=True)
class ReplyServer:
    """Responds as `answers` says, and records the requests."""

    answers: Answers
    url: str = ""
    seen: list[Seen] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def started(cls, answers: Answers, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[ReplyServer]:
        server = cls(answers)
        async with server.running(tls):
            yield server

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        async with listening(self._serve, limit=MAX_HEAD, tls=tls) as port:
            self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
            yield

    def answer(self, seen: Seen) -> Said | None:
        return self.answers(seen)

    async def _upgraded(self, _seen: Seen, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> bool:
        """Serve another protocol than HTTP on this connection; return False if it stays with HTTP."""
        return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen = await self._request(reader)
            if await self._upgraded(seen, reader, writer):
                break
            said = self.answer(seen)
            if said is None:
                await reader.read()
                break
            writer.write(_encoded(said))
            await writer.drain()

    async def _request(self, reader: asyncio.StreamReader) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.seen.append(Seen(method, target, headers, body))
        return self.seen[-1]


def _encoded(said: Said) -> bytes:
    phrase = HTTPStatus(said.status).phrase if said.status in {code.value for code in HTTPStatus} else "Odd"
    headers = {"Content-Type": "application/json", "Content-Length": str(len(said.body))} | said.headers
    lines = [f"HTTP/1.1 {said.status} {phrase}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + said.body
