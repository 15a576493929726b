"""A priority queue whose entries can be moved and removed: a heap that skips outdated entries.

A module of its own, because both the lanes and the timers of the work queue need it.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class LazyHeap(Generic[K]):
    """Each key at most once, ordered by time, then by arrival. Outdated entries never outnumber live ones for long."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._live: dict[K, tuple[float, int]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._live)

    def push(self, key: K, when: float) -> None:
        """Put the key at `when`, replacing its earlier position."""
        self._arrivals += 1
        self._live[key] = (when, self._arrivals)
        heapq.heappush(self._heap, (when, self._arrivals, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(at, arrival, live) for live, (at, arrival) in self._live.items()]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        self._live.pop(key, None)

    def when(self, key: K) -> float | None:
        entry = self._live.get(key)
        return None if entry is None else entry[0]

    def peek(self) -> tuple[float, K] | None:
        while self._heap:
            when, arrival, key = self._heap[0]
            if self._live.get(key) == (when, arrival):
                return when, key
            heapq.heappop(self._heap)
        return None

    def pop(self) -> tuple[float, K]:
        head = self.peek()
        if head is None:
            raise IndexError("pop from an empty heap")
        heapq.heappop(self._heap)
        del self._live[head[1]]
        return head
