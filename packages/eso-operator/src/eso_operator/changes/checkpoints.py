"""Checkpoints of streams: positions up to which all concerned followers have read. Pure.

    mark(stream, token, owed)  -> the followers that must still read, each with the time of its event
    read / left                -> removes a follower
    no follower left           -> take_settled(stream) returns the token

New events do not move a mark, so that a stream that is never quiet still settles.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from dataclasses import dataclass

from eso_operator.changes.subscriptions import StreamKey
from kubebase.meta import ObjectKey


@dataclass(frozen=True, slots=True)
class _Mark:
    token: str
    owed: dict[ObjectKey, float]
    """The followers that must still read; each with the time (monotonic) of its event."""


class Checkpoints:
    """The marks of streams, at most one for each stream."""

    def __init__(self) -> None:
        self._marks: dict[StreamKey, _Mark] = {}

    def marked(self) -> KeysView[StreamKey]:
        return self._marks.keys()

    def mark(self, stream: StreamKey, token: str, owed: Mapping[ObjectKey, float]) -> None:
        self._marks[stream] = _Mark(token, dict(owed))

    def read(self, key: ObjectKey, told_at: float) -> None:
        """Record that a follower has read the change of that time."""
        for mark in self._marks.values():
            if key in mark.owed and told_at >= mark.owed[key]:
                del mark.owed[key]

    def left(self, key: ObjectKey) -> None:
        """Remove an object that no longer follows anything."""
        for mark in self._marks.values():
            mark.owed.pop(key, None)

    def take_settled(self, stream: StreamKey) -> str | None:
        """Remove the mark and return its token, if all followers have read; else return None."""
        mark = self._marks.get(stream)
        if mark is None or mark.owed:
            return None
        return self._marks.pop(stream).token

    def forget(self, stream: StreamKey) -> None:
        self._marks.pop(stream, None)
