"""Places that several share, so that none of them can have them all.

    async with turns.turn("team-a"):
        ...

However much one share asks for, one place is left for the others, and who waits goes round robin over the shares.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """So many places; first come, first served within a share, and the shares in turn."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._most = max(places - 1, 1)
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, share: str) -> AsyncIterator[None]:
        """Wait for a place, and have it for the body."""
        await self._take(share)
        try:
            yield
        finally:
            self._give(share)

    async def _take(self, share: str) -> None:
        if self._free and self._held[share] < self._most:
            self._hold(share)
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(share, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._give(share)
            raise

    def _give(self, share: str) -> None:
        self._free += 1
        self._held[share] -= 1
        if not self._held[share]:
            del self._held[share]
        self._hand_on()

    def _hand_on(self) -> None:
        """To the share that waits longest for its turn and does not have its share yet."""
        for share in list(self._waiting):
            if not self._free:
                return
            waiting = self._waiting[share]
            while waiting and waiting[0].done():
                waiting.popleft()
            if not waiting or self._held[share] < self._most:
                del self._waiting[share]
            if waiting and self._held[share] < self._most:
                self._hold(share)
                waiting.popleft().set_result(None)
                if waiting:
                    self._waiting[share] = waiting  # behind all others

    def _hold(self, share: str) -> None:
        self._free -= 1
        self._held[share] += 1
