"""Work on large content in a thread.

The digest of a Secret of 1 MiB takes a tenth of a second. On the event loop it would delay every other namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

LARGE: Final = 64 << 10
T = TypeVar("T")


class Aside:
    """A single worker thread: more threads would only compete with the event loop for the interpreter."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-content")

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Run the work in the thread, or directly if the content is small."""
        if size < LARGE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
