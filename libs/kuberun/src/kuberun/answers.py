"""News that an API server answers again after an outage, shared by its watches."""

from __future__ import annotations

import asyncio

from kubebase.clock import Clock
from kubebase.deadline import happens_within


class Answers:
    """Tells the watches of one server that it answers again.

    During an outage each watch backs off on its own, by up to half a minute. When the server is back, the first watch
    that reaches it ends the back-off of all others. If the server answers only that it is starting, that ends the
    back-off of those that got no answer; the others know it already.
    """

    def __init__(self) -> None:
        self._starting = asyncio.Event()
        self._again = asyncio.Event()

    def starting(self) -> None:
        """End the waits of all watches that got no answer."""
        self._starting.set()
        self._starting = asyncio.Event()

    def again(self) -> None:
        """End the waits of all watches that wait now."""
        self.starting()
        self._again.set()
        self._again = asyncio.Event()

    async def wait(self, clock: Clock, seconds: float, *, at_least: float, silent: bool) -> bool:
        """Wait for news within so many seconds, and `at_least` for some; return whether they came.

        `silent`: there was no answer.
        """
        news = self._starting if silent else self._again
        await clock.sleep(at_least)
        return await happens_within(clock, seconds - at_least, news)
