"""Calls of a client library that may block, each in a thread of its own with a deadline.

A thread that hangs cannot be stopped. It keeps its place among the `PLACES`, so that hanging calls never pile up, and
does not hold up the end of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Any, Final, TypeVar

from eso_sdk.errors import timed_out
from kubebase.clock import Clock
from kubebase.deadline import Deadline

PLACES: Final = 4
SECONDS: Final = 30.0

T = TypeVar("T")


class Threads:
    """The threads of one account, so that a hanging one does not hold up others."""

    def __init__(self, clock: Clock, subject: str, *, places: int = PLACES, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._subject = subject
        self._places = asyncio.Semaphore(places)
        self._seconds = seconds

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the event loop of another thread; raise BACKEND_TIMEOUT after the deadline."""
        try:
            async with Deadline(self._clock, self._seconds):
                await self._places.acquire()
                return await self._started(work)
        except TimeoutError:
            raise timed_out(f"{self._subject} did not answer within {self._seconds:g} s") from None

    def _started(self, work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        async def bounded() -> T:
            async with asyncio.timeout(self._seconds):
                return await work()

        def finish(settle: Callable[[Any], None], outcome: Any) -> None:
            self._places.release()
            if not future.done():  # the caller may have given up
                settle(outcome)

        def body() -> None:
            try:
                outcome: Any = asyncio.run(bounded())
                settle: Callable[[Any], None] = future.set_result
            except BaseException as failed:  # noqa: BLE001 - handed to the caller
                outcome, settle = failed, future.set_exception
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, settle, outcome)

        Thread(target=body, name=self._subject, daemon=True).start()
        return future
