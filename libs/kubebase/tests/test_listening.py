"""The TCP server of tests leaves no connection open, whatever its handler does."""

import asyncio
import gc
import socket

import pytest

from kubebase.clock import SystemClock
from kubebase.testing.listening import Serve, listening


async def _waits(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.readexactly(1)
    await asyncio.Event().wait()


async def _reads(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.readexactly(1):
        pass


async def _returns(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.readexactly(1)


@pytest.mark.parametrize(
    "serve",
    [
        pytest.param(_waits, id="a handler that never returns"),
        pytest.param(_reads, id="a handler that reads"),
        pytest.param(_returns, id="a handler that returns"),
    ],
)
async def test_at_the_end_every_connection_is_closed(serve: Serve) -> None:
    begun = asyncio.Event()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        await serve(reader, writer)

    async with listening(served) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x")
        await begun.wait()
    others = asyncio.all_tasks() - {asyncio.current_task()}

    assert not others
    assert await _ended(reader)
    writer.close()


async def test_the_port_is_closed_at_the_end() -> None:
    async with listening(_returns) as port:
        pass

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def _ended(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side has closed or reset the connection."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("rounds", range(4))
async def test_a_connection_that_is_being_accepted_at_the_end_is_closed_too(rounds: int) -> None:
    async with listening(_reads) as port:
        client = socket.create_connection(("127.0.0.1", port))
        for _ in range(rounds):
            await SystemClock().sleep(0)
    client.close()

    gc.collect()  # an open connection would be reported as unclosed
