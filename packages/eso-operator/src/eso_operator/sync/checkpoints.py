"""How far a stream can be said to be heard: up to an event that everybody concerned has read after. Pure.

    mark(stream, token, owed)  -> those who still have to read, each since when
    read / left                -> fewer
    nobody left                -> settled(stream) is the token

Events go on meanwhile: a stream that is never quiet is settled all the same, up to a minute ago.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from dataclasses import dataclass

from eso_operator.providers.subscriptions import StreamKey
from kuberun.meta import ObjectKey


@dataclass(frozen=True, slots=True)
class _Mark:
    token: str
    owed: dict[ObjectKey, float]
    """Who has to read what it was told of then (monotonic), or later."""


class Checkpoints:
    """One mark for each stream at a time."""

    def __init__(self) -> None:
        self._marks: dict[StreamKey, _Mark] = {}

    def marked(self) -> KeysView[StreamKey]:
        return self._marks.keys()

    def mark(self, stream: StreamKey, token: str, owed: Mapping[ObjectKey, float]) -> None:
        self._marks[stream] = _Mark(token, dict(owed))

    def read(self, key: ObjectKey, told_at: float) -> None:
        """It has read what it was told of then."""
        for mark in self._marks.values():
            if key in mark.owed and told_at >= mark.owed[key]:
                del mark.owed[key]

    def left(self, key: ObjectKey) -> None:
        """It does not want to know any more."""
        for mark in self._marks.values():
            mark.owed.pop(key, None)

    def take_settled(self, stream: StreamKey) -> str | None:
        """The token of its mark, if nobody owes a read before it; the mark is gone then."""
        mark = self._marks.get(stream)
        if mark is None or mark.owed:
            return None
        return self._marks.pop(stream).token

    def forget(self, stream: StreamKey) -> None:
        self._marks.pop(stream, None)
