"""A TCP server of a test that leaves no connection behind.

`asyncio.Server.close` stops only the listening: the connections stay open until their clients close them. On a busy
machine a test then ends before they do.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from kubebase.clock import SystemClock

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, which is closed when it returns."""

LIMIT = 64 * 1024
_ROUNDS = 10


@asynccontextmanager
async def listening(serve: Serve, *, limit: int = LIMIT, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve connections to a port of this machine, and yield the port. At the end all connections are closed."""
    connections: dict[asyncio.Task[object], asyncio.StreamWriter] = {}

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a test kit
        connections[task] = writer
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
            del connections[task]

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=limit, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await _few_rounds()  # asyncio loses a connection if its server is closed while it is being accepted
        server.close()
        for task, writer in list(connections.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*connections)
        await _few_rounds()  # an aborted connection closes its socket


async def _few_rounds() -> None:
    """Let the loop run what is ready now, and what that makes ready."""
    for _ in range(_ROUNDS):
        await SystemClock().sleep(0)
