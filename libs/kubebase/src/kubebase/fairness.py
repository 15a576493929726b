"""Slots shared by many users, so that no single user takes them all.

    FairLimit   how many slots each share may hold: never the last ones
    FairTable   a bounded table; when it is full, it evicts from the share with the most entries
    FairSlots   slots to wait for; waiting shares are served in turn

A share is a user that must not hurt the others: a namespace. A share that is alone gets nearly everything. The more it
holds, the less is free, and the less more it may take: some slots always remain for a share that arrives later.
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
"""A share may hold this many times the number of free slots: four fifths of all slots if it is alone."""


class FairLimit:
    """Counts slots. It never waits."""

    def __init__(self, slots: int, *, greed: float = GREED) -> None:
        self._slots = slots
        self._greed = greed
        self._held: Counter[Hashable] = Counter()
        self.taken = 0

    def resize(self, slots: int) -> None:
        self._slots = slots

    def held(self, share: Hashable) -> int:
        return self._held[share]

    @property
    def is_full(self) -> bool:
        """Return whether no share at all may take a slot."""
        return 0 < self.taken >= self._slots

    def may_take(self, share: Hashable, number: int = 1) -> bool:
        """Return whether a share may take that many more slots. If no slots are taken, it always may."""
        free = self._slots - self.taken - (number - 1)
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
        """Return the share that holds the most slots; raise IndexError if no slots are held."""
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
        evicted = []
        while len(self._share_of) > self._limit:
            largest = max(self._shares.values(), key=len)
            oldest = next(each for each in largest if each != key or len(largest) == 1)
            if oldest == key:  # every share has one entry, and this is the newest
                oldest = next(each for each in self._share_of if each != key)
            evicted.append(self.pop(oldest))
        return [each for each in evicted if each is not None]

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
    """A limited number of slots to wait for. Use it from one event loop."""

    def __init__(self, slots: int, *, greed: float = GREED) -> None:
        self._slots = slots
        self._shares = FairLimit(slots, greed=greed)
        self._waiting: OrderedDict[Hashable, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()
        """The callers of each share, with the number of slots that each requested."""

    @property
    def taken(self) -> int:
        return self._shares.taken

    def waiting(self, share: Hashable | None = None) -> int:
        """Return how many callers wait, of one share or in total."""
        if share is None:
            return sum(map(len, self._waiting.values()))
        return len(self._waiting.get(share, ()))

    def resize(self, slots: int) -> None:
        """Change the number of slots. Taken slots stay taken."""
        self._slots = max(slots, 1)
        self._shares.resize(self._slots)
        self._serve_waiting()

    def take_now(self, share: Hashable, number: int = 1) -> bool:
        """Take slots if that needs no wait; return whether it did."""
        if self._waiting or not self._is_free_for(share, number):
            return False
        self._shares.take(share, number)
        return True

    async def acquire(self, share: Hashable, number: int = 1) -> None:
        """Wait for a slot, or for several at once. A caller that is cancelled while it waits holds none."""
        if self.take_now(share, number):
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(share, deque()).append((slot, number))
        # The other waiting shares may be at their limit while this one is not.
        self._serve_waiting()
        try:
            await slot
        except BaseException:
            self._stop_waiting(share, slot, number)
            raise

    @asynccontextmanager
    async def slot(self, share: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it during the body."""
        await self.acquire(share)
        try:
            yield
        finally:
            self.release(share)

    def release(self, share: Hashable, number: int = 1) -> None:
        self._shares.give_back(share, number)
        self._serve_waiting()

    def _is_free_for(self, share: Hashable, number: int) -> bool:
        return self._shares.taken < self._slots and self._shares.may_take(share, number)

    def _is_next(self, share: Hashable) -> bool:
        """Return whether the first waiting caller of a share can have its slots."""
        return self._is_free_for(share, self._waiting[share][0][1])

    def _stop_waiting(self, share: Hashable, slot: asyncio.Future[None], number: int) -> None:
        """Stop waiting. Slots that were handed over at the same moment go to the next callers."""
        if slot.done() and not slot.cancelled():
            self.release(share, number)
            return
        queue = self._waiting.get(share)
        if queue is not None and (slot, number) in queue:
            queue.remove((slot, number))
            if not queue:
                del self._waiting[share]
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while (share := next(filter(self._is_next, self._waiting), None)) is not None:
            queue = self._waiting[share]
            slot, number = queue.popleft()
            if queue:
                self._waiting.move_to_end(share)
            else:
                del self._waiting[share]
            if not slot.done():
                self._shares.take(share, number)
                slot.set_result(None)
