"""A TCP proxy between a client and its server that misbehaves on demand: cuts, half-open connections, blackouts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


class Proxy:
    """Forwards bytes until a test makes it misbehave."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._target = port
        self._chance = chance
        self._connections: list[_Connection] = []
        self._accepting: set[asyncio.Task[object]] = set()
        self._refusing = False
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._refusing = True  # a connection that is being opened now must not outlive the test either
            server.close()
            self.cut(everything=True)
            await asyncio.gather(*self._accepting, server.wait_closed(), return_exceptions=True)

    def cut(self, *, everything: bool = False) -> None:
        """Reset some of the connections (or all)."""
        for connection in list(self._connections):
            if everything or self._chance.random() < 0.5:
                connection.cut()

    def freeze(self) -> None:
        """Leave some connections half open: no data passes, and neither side notices."""
        for connection in self._connections:
            if self._chance.random() < 0.5:
                connection.flowing.clear()

    @asynccontextmanager
    async def blackout(self) -> AsyncIterator[None]:
        self._refusing = True
        self.cut(everything=True)
        try:
            yield
        finally:
            self._refusing = False

    def _refuses(self) -> bool:
        return self._refusing

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a test kit
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        if self._refuses():
            writer.transport.abort()
            return
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, upstream[1])
        if self._refuses():
            connection.cut()
            return
        self._connections.append(connection)
        try:
            await connection.forward(reader, upstream[0])
        finally:
            self._connections.remove(connection)
            connection.cut()


@dataclass(eq=False)
class _Connection:
    down: asyncio.StreamWriter
    up: asyncio.StreamWriter
    flowing: asyncio.Event = field(default_factory=asyncio.Event)

    async def forward(self, client: asyncio.StreamReader, server: asyncio.StreamReader) -> None:
        self.flowing.set()
        both = {
            asyncio.ensure_future(self._pump(client, self.up)),
            asyncio.ensure_future(self._pump(server, self.down)),
        }
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                await self.flowing.wait()
                sink.write(data)
                await sink.drain()

    def cut(self) -> None:
        self.flowing.set()
        self.down.transport.abort()
        self.up.transport.abort()
