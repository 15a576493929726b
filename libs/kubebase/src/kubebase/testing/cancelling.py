"""Cancels a server at every moment of its start, to find listening sockets that it leaves open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from kubebase.testing.servers import free_ports

_TURNS = 20


async def leaks(serve: Callable[[int], Coroutine[Any, Any, object]]) -> list[int]:
    """Cancel `serve(port)` after 0, 1, 2, … turns of the event loop; return the turns after which the port is taken."""
    found = []
    for turns in range(_TURNS):
        port = free_ports(1)[0]
        serving = asyncio.ensure_future(serve(port))
        for _ in range(turns):
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop, no time
        serving.cancel()
        await asyncio.wait({serving})
        if _is_taken(port):
            found.append(turns)
    return found


def _is_taken(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
            one.listen()
        except OSError:
            return True
    return False
