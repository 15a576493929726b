"""Resources whose opening is cancelled."""

import asyncio

import pytest

from kubebase.opening import opened
from kubebase.testing.cancelling import leaks


async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del reader
    writer.close()


async def serve_plainly(port: int) -> None:
    server = await asyncio.start_server(ignore, "127.0.0.1", port)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


async def serve(port: int) -> None:
    server = await opened(asyncio.start_server(ignore, "127.0.0.1", port), asyncio.Server.close)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


async def test_a_server_that_is_cancelled_at_any_moment_leaves_no_socket() -> None:
    assert await leaks(serve) == []


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_of_asyncio_leaves_one_if_it_is_cancelled_just_before_it_is_returned() -> None:
    """If this fails, asyncio was mended, and `opened` is needless."""
    assert len(await leaks(serve_plainly)) == 1


async def test_a_failure_to_open_is_raised() -> None:
    async def fail() -> None:
        raise OSError("port in use")

    with pytest.raises(OSError, match="port in use"):
        await opened(fail(), lambda _: None)


async def test_a_second_cancellation_does_not_leave_the_resource_open() -> None:
    go_on, closed = asyncio.Event(), list[str]()

    async def slow() -> str:
        await go_on.wait()
        return "resource"

    opening = asyncio.ensure_future(opened(slow(), closed.append))
    for _ in range(2):
        await asyncio.sleep(0)
        opening.cancel()
    await asyncio.wait({opening})
    go_on.set()
    for _ in range(3):
        await asyncio.sleep(0)

    assert (opening.cancelled(), closed) == (True, ["resource"])
