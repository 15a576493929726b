"""News that an API server answers again after an outage, shared by its watches."""

from __future__ import annotations

import asyncio

from kubebase.clock import Clock
from kubebase.deadline import happens_within


class Answers:
    """Tells the watches of one server that it answers again.

    During an outage each watch backs off on its own, by up to half a minute. When the server is back, the first watch
    that reaches it ends the back-off of all others.
    """

    def __init__(self) -> None:
        self._again = asyncio.Event()

    def again(self) -> None:
        """End the waits of all watches that wait now."""
        self._again.set()
        self._again = asyncio.Event()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Wait until the server answers again, or for that many seconds."""
        await happens_within(clock, seconds, self._again)
