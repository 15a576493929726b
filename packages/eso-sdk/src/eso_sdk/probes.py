"""`/metrics`, `/healthz` and `/readyz` over plain HTTP, for kubelets and Prometheus; no values, no input.

A minimal server: GET only, one request per connection, limited in size, time and number. A process with several
providers lists the state of each at `/readyz`, and answers for one of them at `/readyz/NAME`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.opening import opened

_REQUEST_SECONDS: Final = 5.0
_MAX_LINE: Final = 8192
_MAX_HEADERS: Final = 100
_MAX_CONNECTIONS: Final = 64
READY: Final = "serving"
"""The state of a provider that takes calls."""
_OK: Final = "200 OK"
_UNAVAILABLE: Final = "503 Service Unavailable"
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Probes:
    """The probes of a process; metrics only if there is an exposition."""

    clock: Clock
    ready: Callable[[], bool]
    exposition: Callable[[], bytes] | None = None
    states: Callable[[], Mapping[str, str]] = dict
    """The state of each provider, if the process has several."""
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
                    writer.write(self._respond(await _request_line(reader)))
                    await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # a client that sends no HTTP, or sends too slowly, gets no response
        finally:
            self._open -= 1
            writer.close()

    def _respond(self, request_line: bytes) -> bytes:
        match request_line.split(b" ")[:2]:
            case [b"GET", b"/metrics"] if self.exposition is not None:
                return _response(_OK, self.exposition())
            case [b"GET", b"/healthz"]:
                return _response(_OK, b"ok\n")
            case [b"GET", b"/readyz"]:
                each = "".join(f"{name} {state}\n" for name, state in self.states().items()).encode()
                return _response(_OK, b"ok\n" + each) if self.ready() else _response(_UNAVAILABLE, b"no\n" + each)
            case [b"GET", path] if (state := self._state_at(path)) is not None:
                return _response(_OK if state == READY else _UNAVAILABLE, f"{state}\n".encode())
            case [b"GET", _]:
                return _response("404 Not Found", b"this address does not serve that path\n")
            case _:
                return _response("405 Method Not Allowed", b"")

    def _state_at(self, path: bytes) -> str | None:
        """Return the state of the provider that `/readyz/NAME` names; None for every other path."""
        before, _, name = path.decode("ascii", "replace").rpartition("/")
        return self.states().get(name) if before == "/readyz" else None


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
