"""Opens resources that a cancellation must not leak.

asyncio opens a listening socket one turn of the event loop before it returns the server. A caller that is cancelled in
that turn has no server to close, so the socket would stay open as long as the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def opened(opening: Coroutine[Any, Any, T], close: Callable[[T], object]) -> T:
    """Return the resource that `opening` opens.

    If the caller is cancelled meanwhile, wait until the resource is open, close it, and raise the cancellation.
    """
    task = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: _close(done, close))  # also if a second cancellation ends the wait below
        await asyncio.wait({task})
        raise


def _close(done: asyncio.Task[T], close: Callable[[T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        close(done.result())
