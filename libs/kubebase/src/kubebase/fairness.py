"""Places shared by many users, so that no single user takes them all.

    Shares      how many places each share may hold: never the last ones
    FairTable   a bounded table; when it is full, it evicts from the share with the most entries
    FairSlots   places to wait for; waiting shares are served in turns

A share is a user that must not hurt the others: a namespace. A share that is alone gets nearly everything. The more it
holds, the less is free, and the less more it may take: some places always remain for a share that arrives later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

GREED: Final = 4
"""A share may hold this many times the number of free places: four fifths of all places if it is alone."""


class Shares:
    """Counts places. It never waits."""

    def __init__(self, places: int, *, greed: float = GREED) -> None:
        self._places = places
        self._greed = greed
        self._held: Counter[Hashable] = Counter()
        self.taken = 0

    def resize(self, places: int) -> None:
        self._places = places

    def held(self, share: Hashable) -> int:
        return self._held[share]

    @property
    def is_full(self) -> bool:
        """Return whether no share at all may take a place."""
        return 0 < self.taken >= self._places

    def may_take(self, share: Hashable, number: int = 1) -> bool:
        """Return whether a share may take that many more places. If no places are taken, it always may."""
        free = self._places - self.taken - (number - 1)
        return self.taken == 0 or (free > 0 and self._held[share] + number - 1 < self._greed * free)

    def take(self, share: Hashable, number: int = 1) -> None:
        self._held[share] += number
        self.taken += number

    def give_back(self, share: Hashable, number: int = 1) -> None:
        self._held[share] -= number
        self.taken -= number
        if not self._held[share]:
            del self._held[share]

    @property
    def largest(self) -> Hashable:
        """Return the share that holds the most places; raise IndexError if no places are held."""
        return self._held.most_common(1)[0][0]


class FairTable(Generic[K, V]):
    """A bounded mapping that evicts the least recently used entry of the largest share."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shares: dict[Hashable, OrderedDict[K, V]] = {}
        self._share_of: dict[K, Hashable] = {}

    def __len__(self) -> int:
        return len(self._share_of)

    def get(self, key: K) -> V | None:
        """Return the value and mark it as used now; None if it is absent."""
        if key not in self._share_of:
            return None
        mine = self._shares[self._share_of[key]]
        mine.move_to_end(key)
        return mine[key]

    def put(self, key: K, value: V, share: Hashable) -> list[V]:
        """Set a value; return the evicted values, never the new one."""
        self.pop(key)
        self._share_of[key] = share
        self._shares.setdefault(share, OrderedDict())[key] = value
        forgotten = []
        while len(self._share_of) > self._limit:
            largest = max(self._shares.values(), key=len)
            oldest = next(each for each in largest if each != key or len(largest) == 1)
            if oldest == key:  # every share has one entry, and this is the newest
                oldest = next(each for each in self._share_of if each != key)
            forgotten.append(self.pop(oldest))
        return [each for each in forgotten if each is not None]

    def pop(self, key: K) -> V | None:
        if key not in self._share_of:
            return None
        share = self._share_of.pop(key)
        mine = self._shares[share]
        value = mine.pop(key)
        if not mine:
            del self._shares[share]
        return value

    def values(self) -> list[V]:
        return [value for mine in self._shares.values() for value in mine.values()]


class FairSlots:
    """A limited number of places to wait for. Use it from one event loop."""

    def __init__(self, slots: int, *, greed: float = GREED) -> None:
        self._slots = slots
        self._shares = Shares(slots, greed=greed)
        self._waiting: OrderedDict[Hashable, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()
        """The callers of each share, with the number of places that each wants."""

    @property
    def taken(self) -> int:
        return self._shares.taken

    def waiting(self, share: Hashable | None = None) -> int:
        """Return how many callers wait, of one share or in total."""
        if share is None:
            return sum(map(len, self._waiting.values()))
        return len(self._waiting.get(share, ()))

    def resize(self, slots: int) -> None:
        """Change the number of places. Taken places stay taken."""
        self._slots = max(slots, 1)
        self._shares.resize(self._slots)
        self._hand_out()

    def take_now(self, share: Hashable, number: int = 1) -> bool:
        """Take places if that needs no wait; return whether it did."""
        if self._waiting or not self._is_free_for(share, number):
            return False
        self._shares.take(share, number)
        return True

    async def acquire(self, share: Hashable, number: int = 1) -> None:
        """Wait for a place, or for several at once. A caller that is cancelled while it waits holds none."""
        if self.take_now(share, number):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(share, deque()).append((turn, number))
        # The other waiting shares may be at their limit while this one is not.
        self._hand_out()
        try:
            await turn
        except BaseException:
            self._leave(share, turn, number)
            raise

    @asynccontextmanager
    async def turn(self, share: Hashable) -> AsyncIterator[None]:
        """Wait for a place and hold it during the body."""
        await self.acquire(share)
        try:
            yield
        finally:
            self.release(share)

    def release(self, share: Hashable, number: int = 1) -> None:
        self._shares.give_back(share, number)
        self._hand_out()

    def _is_free_for(self, share: Hashable, number: int) -> bool:
        return self._shares.taken < self._slots and self._shares.may_take(share, number)

    def _is_next(self, share: Hashable) -> bool:
        """Return whether the first waiting caller of a share can have its places."""
        return self._is_free_for(share, self._waiting[share][0][1])

    def _leave(self, share: Hashable, turn: asyncio.Future[None], number: int) -> None:
        """Stop waiting. Places that were handed over at the same moment go to the next callers."""
        if turn.done() and not turn.cancelled():
            self.release(share, number)
            return
        queue = self._waiting.get(share)
        if queue is not None and (turn, number) in queue:
            queue.remove((turn, number))
            if not queue:
                del self._waiting[share]
        self._hand_out()

    def _hand_out(self) -> None:
        while (share := next(filter(self._is_next, self._waiting), None)) is not None:
            queue = self._waiting[share]
            turn, number = queue.popleft()
            if queue:
                self._waiting.move_to_end(share)
            else:
                del self._waiting[share]
            if not turn.done():
                self._shares.take(share, number)
                turn.set_result(None)
