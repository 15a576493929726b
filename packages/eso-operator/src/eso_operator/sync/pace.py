"""How fast news from backends become reads: an event storm costs no more than this. Pure, time is a parameter.

debounce + jitter    many events about one follower within a moment are one
gap                  one follower is not let through more often than that, whatever is said
per_second           nor more than so many followers of one stream; the others wait in line
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from eso_operator.providers.subscriptions import StreamKey
from kuberun.backoff import Random, system_random
from kuberun.lazyheap import LazyHeap
from kuberun.meta import ObjectKey


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """Times in seconds."""

    debounce: float = 0.15
    jitter: float = 0.15
    gap: float = 10.0
    per_second: float = 50.0


class Pace:
    """Followers that wait to be let through; no more than there are."""

    def __init__(self, settings: PaceSettings = PaceSettings(), draw: Random = system_random) -> None:  # noqa: B008 - a frozen value
        self._settings = settings
        self._draw = draw
        self._times: LazyHeap[ObjectKey] = LazyHeap()
        self._in_line: dict[ObjectKey, StreamKey | None] = {}
        """For whom the next place of which stream is still to be found; None for those who have theirs."""
        self._places: dict[StreamKey, float] = {}
        self._let: OrderedDict[ObjectKey, float] = OrderedDict()

    def ask(self, key: ObjectKey, stream: StreamKey, now: float) -> None:
        """Let it through before long. Whoever waits already goes on waiting for the same moment."""
        if key in self._in_line:
            return
        soon = now + self._settings.debounce + self._settings.jitter * self._draw()
        last = self._let.get(key)
        self._in_line[key] = stream
        self._times.push(key, soon if last is None else max(soon, last + self._settings.gap))

    def due(self, now: float) -> list[ObjectKey]:
        """Those whose turn it is."""
        let = []
        while (head := self._times.peek()) is not None and head[0] <= now:
            _, key = self._times.pop()
            stream = self._in_line.pop(key)
            if stream is not None and (place := self._next_place(stream, now)) > now:
                self._in_line[key] = None
                self._times.push(key, place)
                continue
            let.append(key)
            self._let[key] = now
            self._let.move_to_end(key)
        self._forget_the_old(now)
        return let

    def next_at(self) -> float | None:
        """When `due` will have something to say; None if nobody waits."""
        head = self._times.peek()
        return None if head is None else head[0]

    @property
    def waiting(self) -> Collection[ObjectKey]:
        """Who was not let through yet."""
        return self._in_line.keys()

    @property
    def remembered(self) -> int:
        """Followers and streams that something is still known of."""
        return len(self._in_line) + len(self._let) + len(self._places)

    def _next_place(self, stream: StreamKey, now: float) -> float:
        place = max(self._places.get(stream, now), now)
        self._places[stream] = place + 1 / self._settings.per_second
        return place

    def _forget_the_old(self, now: float) -> None:
        while self._let and next(iter(self._let.values())) + self._settings.gap <= now:
            self._let.popitem(last=False)
        if not self._in_line:
            self._places.clear()
