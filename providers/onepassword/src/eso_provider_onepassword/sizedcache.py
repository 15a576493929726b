"""A cache that is bounded by the number and the bytes of its entries; the entry used longest ago is evicted first."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kubebase.bounded import BoundedDict

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedCache(Generic[K, V]):
    """Holds values until they are replaced, dropped or evicted."""

    def __init__(self, entries: int, size: int) -> None:
        self._size = size
        self._held = 0
        self._entries: BoundedDict[K, tuple[int, V]] = BoundedDict(entries, on_evict=self._evicted)

    def get(self, key: K) -> V | None:
        found = self._entries.use(key)
        return None if found is None else found[1]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value, unless it takes more than a quarter of the space."""
        self.drop(key)
        if size > self._size // 4:
            return
        self._held += size
        self._entries[key] = (size, value)
        while self._held > self._size:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        if (found := self._entries.pop(key, None)) is not None:
            self._held -= found[0]

    def drop_if(self, obsolete: Callable[[K, V], bool]) -> None:
        """Drop the entries for which the function returns True."""
        for key, (_, value) in list(self._entries.items()):
            if obsolete(key, value):
                self.drop(key)

    def _evicted(self, _key: K, entry: tuple[int, V]) -> None:
        self._held -= entry[0]
