"""Values read a moment ago, for questions that had been asked before they were read.

A thousand objects become due at once and are worked on a few at a time. The first ones read a value; to those that
still wait it is as new as any answer could be, because they asked before it was read. Nobody ever gets a value that was
read before the question arose, and what is kept goes by itself within a minute.
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
    """Bounded by number and by bytes, oldest out. Times are monotonic."""

    def __init__(self, *, seconds: float, items: int, size: int) -> None:
        self._seconds = seconds
        self._items = items
        self._size = size
        self._held = 0
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def answer(self, question: Hashable, asked_at: float, now: float) -> GetResult | None:
        """A result that was sought after the question had been asked."""
        entry = self._entries.get(question)
        if entry is None or entry.read_at < asked_at or now - entry.read_at > self._seconds:
            return None
        return entry.result

    def keep(self, question: Hashable, result: GetResult, read_at: float) -> None:
        """Only what the backend said: values, and that there is none."""
        size = size_of(result)
        if size is None or size > self._size // 4:
            return
        self._drop(question)
        self._entries[question] = _Entry(read_at, result, size)
        self._held += size
        while len(self._entries) > self._items or self._held > self._size:
            self._drop(next(iter(self._entries)))

    def expire(self, now: float) -> None:
        """Forget what is too old to be given to anybody."""
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
