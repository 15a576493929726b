"""The rate limit of push refresh, which bounds the reads that an event storm causes. Pure, time is a parameter.

debounce + jitter    events about one follower within this time count as one
gap                  the shortest time between two refreshes of one follower
per_second           the most refreshes of followers of one stream; the others wait in line
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kubebase.backoff import Random, system_random
from kubebase.meta import ObjectKey
from kuberun.workqueue import LazyHeap

if TYPE_CHECKING:  # the settings load this module, and they are read before anything calls a provider
    from eso_operator.changes.subscriptions import StreamKey

_AT_A_TIME: Final = 1000
"""An announcement may concern 50,000 followers: other tasks run between some of them."""


@dataclass(frozen=True, slots=True)
class PaceSettings:
    """Times in seconds."""

    debounce: float = 0.15
    jitter: float = 0.15
    gap: float = 10.0
    per_second: float = 50.0


class Pace:
    """The followers that wait for their refresh; bounded by the number of followers."""

    def __init__(self, settings: PaceSettings = PaceSettings(), draw: Random = system_random) -> None:  # noqa: B008 - a frozen value
        self._settings = settings
        self._draw = draw
        self._times: LazyHeap[ObjectKey] = LazyHeap()
        self._in_line: dict[ObjectKey, StreamKey | None] = {}
        """The waiting followers; each with the stream that must give it a slot, or None if it has its slot."""
        self._slots: dict[StreamKey, float] = {}
        self._refreshed: OrderedDict[ObjectKey, float] = OrderedDict()

    def request(self, key: ObjectKey, stream: StreamKey, now: float) -> None:
        """Schedule a refresh of the follower. A follower that waits already keeps its time."""
        if key in self._in_line:
            return
        soon = now + self._settings.debounce + self._settings.jitter * self._draw()
        last = self._refreshed.get(key)
        self._in_line[key] = stream
        self._times.push(key, soon if last is None else max(soon, last + self._settings.gap))

    def due(self, now: float) -> list[ObjectKey]:
        """Remove and return followers whose refresh is due. Those beyond a bound are left for the next call."""
        due_now = []
        for _ in range(_AT_A_TIME):
            if (head := self._times.peek()) is None or head[0] > now:
                break
            _, key = self._times.pop()
            stream = self._in_line.pop(key)
            if stream is not None and (slot := self._next_slot(stream, now)) > now:
                self._in_line[key] = None
                self._times.push(key, slot)
                continue
            due_now.append(key)
            self._refreshed[key] = now
            self._refreshed.move_to_end(key)
        self._forget_old(now)
        return due_now

    def forget(self, key: ObjectKey) -> None:
        """Drop a follower that is gone."""
        self._in_line.pop(key, None)
        self._times.discard(key)
        self._refreshed.pop(key, None)

    def next_at(self) -> float | None:
        """Return when the next follower may be due; None if no follower waits."""
        head = self._times.peek()
        return None if head is None else head[0]

    @property
    def waiting(self) -> Collection[ObjectKey]:
        """Return the followers that wait for their refresh."""
        return self._in_line.keys()

    @property
    def remembered(self) -> int:
        """Return the number of entries kept for followers and streams."""
        return len(self._in_line) + len(self._refreshed) + len(self._slots)

    def _next_slot(self, stream: StreamKey, now: float) -> float:
        slot = max(self._slots.get(stream, now), now)
        self._slots[stream] = slot + 1 / self._settings.per_second
        return slot

    def _forget_old(self, now: float) -> None:
        while self._refreshed and next(iter(self._refreshed.values())) + self._settings.gap <= now:
            self._refreshed.popitem(last=False)
        if not self._in_line:
            self._slots.clear()
