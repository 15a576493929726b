"""`/metrics`, `/healthz` and `/readyz` over plain HTTP, for kubelets and Prometheus; no values, no input.

A minimal server: GET only, one request per connection, limited in size, time and number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.opening import opened

_REQUEST_SECONDS: Final = 5.0
_MAX_LINE: Final = 8192
_MAX_HEADERS: Final = 100
_MAX_CONNECTIONS: Final = 64
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Probes:
    """The probes of a process; metrics only if there is an exposition."""

    clock: Clock
    ready: Callable[[], bool]
    exposition: Callable[[], bytes] | None = None
    _server: asyncio.Server | None = field(default=None, init=False)
    _open: int = field(default=0, init=False)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return host and port."""
        starting = asyncio.start_server(self._serve, host, port, limit=_MAX_LINE)
        self._server = await opened(starting, asyncio.Server.close)
        name, number, *_ = self._server.sockets[0].getsockname()
        return name, number

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MAX_CONNECTIONS:
                async with Deadline(self.clock, _REQUEST_SECONDS):
                    writer.write(self._answer(await _request_line(reader)))
                    await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # a client that sends no HTTP, or sends too slowly, gets no answer
        finally:
            self._open -= 1
            writer.close()

    def _answer(self, request_line: bytes) -> bytes:
        match request_line.split(b" ")[:2]:
            case [b"GET", b"/metrics"] if self.exposition is not None:
                return _response("200 OK", self.exposition())
            case [b"GET", b"/healthz"]:
                return _response("200 OK", b"ok\n")
            case [b"GET", b"/readyz"]:
                return _response("200 OK", b"ok\n") if self.ready() else _response("503 Service Unavailable", b"no\n")
            case [b"GET", _]:
                return _response("404 Not Found", b"this address does not serve that path\n")
            case _:
                return _response("405 Method Not Allowed", b"")


async def _request_line(reader: asyncio.StreamReader) -> bytes:
    """Read the first line and discard the headers."""
    first = await reader.readuntil(b"\n")
    for _ in range(_MAX_HEADERS):
        if (await reader.readuntil(b"\n")).strip() == b"":
            return first
    raise ValueError("too many headers")


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
