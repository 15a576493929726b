"""A short-lived cache of values, for questions that were asked before the value was read.

A thousand objects can become due at once and are reconciled a few at a time. A value that the first ones read is fresh
for those that still wait, because they asked before it was read. A value that was read before a question never answers
it. Entries expire within a minute.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError
from eso_wire.values import GetResult, NotModified


@dataclass(frozen=True, slots=True)
class _Entry:
    read_at: float
    result: GetResult
    size: int


class RecentReads:
    """The cache; bounded by entries and bytes, the oldest are evicted. Times are monotonic."""

    def __init__(self, *, seconds: float, items: int, size: int) -> None:
        self._seconds = seconds
        self._items = items
        self._size = size
        self._held = 0
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def answer(self, question: Hashable, asked_at: float, now: float) -> GetResult | None:
        """Return a result that was read after `asked_at`; None if there is none."""
        entry = self._entries.get(question)
        if entry is None or entry.read_at < asked_at or now - entry.read_at > self._seconds:
            return None
        return entry.result

    def keep(self, question: Hashable, result: GetResult, read_at: float) -> None:
        """Cache a result if it is a value or "not found"; other errors are not cached."""
        size = size_of(result)
        if size is None or size > self._size // 4:
            return
        self._drop(question)
        self._entries[question] = _Entry(read_at, result, size)
        self._held += size
        while len(self._entries) > self._items or self._held > self._size:
            self._drop(next(iter(self._entries)))

    def expire(self, now: float) -> None:
        """Remove expired entries."""
        old = [question for question, entry in self._entries.items() if now - entry.read_at > self._seconds]
        for question in old:
            self._drop(question)

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, question: Hashable) -> None:
        if (entry := self._entries.pop(question, None)) is not None:
            self._held -= entry.size


def size_of(result: GetResult) -> int | None:
    match result.outcome:
        case SecretBytes() as value:
            return len(value)
        case ProviderError() as error:
            return len(error.message) if error.is_not_found else None
        case NotModified():
            return None
        case Mapping() as values:
            return sum(len(key) + len(value) for key, value in values.items())
