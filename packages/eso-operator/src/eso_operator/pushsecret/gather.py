"""Collects what one reconcile goes by: the object, its sources and stores as they are known, the time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from eso_api.pushsecret import PushSecret
from eso_operator.pushsecret.memory import LastPush, Memory
from eso_operator.pushsecret.snapshot import Snapshot
from eso_operator.pushsecret.sources import SourceReader
from eso_operator.pushsecret.stores import StoreChooser
from eso_operator.sync.floor import SHORTEST_INTERVAL, floor_note, paced
from kuberun.cache import Store
from kuberun.meta import Malformed, ObjectKey

VersionOf = Callable[[str, ObjectKey], str]
"""The resourceVersion of a Secret or ConfigMap, by kind and key; empty when there is none."""


class Gatherer:
    """One for the process."""

    def __init__(
        self,
        objects: Store[PushSecret],
        memory: Memory,
        *,
        sources: SourceReader,
        chooser: StoreChooser,
        version_of: VersionOf,
        shortest_interval: float = SHORTEST_INTERVAL,
    ) -> None:
        self._objects = objects
        self._memory = memory
        self._sources = sources
        self._chooser = chooser
        self._version_of = version_of
        self._shortest = shortest_interval

    def find(self, key: ObjectKey) -> PushSecret | None:
        """The object, if it is there and can be read. What cannot is told by `sync.misfits`."""
        found = self._objects.get(key)
        return None if isinstance(found, Malformed) else found

    async def gather(self, push: PushSecret, now: datetime) -> Snapshot:
        last = self._memory.last(push)
        note, push = floor_note(push.spec.refresh_interval, self._shortest), self.paced(push)
        return Snapshot(
            push=push,
            now=now,
            remembered=last,
            sources=self._sources.seen(push),
            stores=await self._chooser.choose(push),
            new_templates=last is not None and self._has_new_templates(last),
            unrecorded=bool(self._memory.unrecorded(push)),
            interval_note=note,
            freed=self._memory.rivals.freed(push.key),
        )

    def paced(self, push: PushSecret) -> PushSecret:
        """The object with the interval that counts."""
        return paced(push, self._shortest)

    def _has_new_templates(self, last: LastPush) -> bool:
        """One that is gone, or not seen yet, is no news: the next push will say so."""
        return any(self._version_of(used.kind, used.key) not in ("", used.version) for used in last.templates)
