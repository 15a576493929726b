"""Mappings with a bound: a write above it evicts the entry that was written or used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Generic, TypeVar

from kubebase.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(MutableMapping[K, V]):
    """Holds at most `limit` entries, the oldest first.

    `on_evict` is called for evicted entries, not for deleted ones.

    Only writes and `use` make an entry recent. A plain read, such as `get`, does not change the order.
    """

    __slots__ = ("_entries", "_limit", "_on_evict")

    def __init__(self, limit: int, on_evict: Callable[[K, V], None] | None = None) -> None:
        self._limit = limit
        self._on_evict = on_evict
        self._entries: OrderedDict[K, V] = OrderedDict()

    def use(self, key: K) -> V | None:
        """Return the entry, if there is one, and make it the last to be evicted."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._limit:
            evicted = self._entries.popitem(last=False)
            if self._on_evict is not None:
                self._on_evict(*evicted)

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __delitem__(self, key: K) -> None:
        del self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class ExpiringDict(Generic[K, V]):
    """Holds at most `limit` entries, each until its time is over. An expired entry is never returned."""

    __slots__ = ("_clock", "_entries")

    def __init__(self, limit: int, clock: Clock) -> None:
        self._clock = clock
        self._entries: BoundedDict[K, tuple[float, V]] = BoundedDict(limit)

    def put(self, key: K, value: V, seconds: float) -> None:
        """Set a value for some seconds, and remove the oldest entries that have expired."""
        self._entries[key] = (self._clock.monotonic() + seconds, value)
        while self._entries and not self._is_live(oldest := next(iter(self._entries))):
            del self._entries[oldest]

    def get(self, key: K) -> V | None:
        return self._entries[key][1] if self._is_live(key) else None

    def discard(self, key: K) -> None:
        self._entries.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return self._is_live(key)

    def __iter__(self) -> Iterator[K]:
        return filter(self._is_live, list(self._entries))

    def _is_live(self, key: K) -> bool:
        return key in self._entries and self._entries[key][0] > self._clock.monotonic()
