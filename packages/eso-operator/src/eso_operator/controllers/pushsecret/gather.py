"""Collects the inputs of one reconcile: the object, its sources and stores from the caches, the time."""

from __future__ import annotations

from datetime import datetime

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.floor import SHORTEST_INTERVAL, floor_note, paced
from eso_operator.controllers.pushsecret.memory import LastPush, Pushes
from eso_operator.controllers.pushsecret.snapshot import PushSnapshot
from eso_operator.controllers.pushsecret.sources import SourceReader
from eso_operator.controllers.pushsecret.stores import StoreChooser
from eso_operator.sources.templates import VersionOf
from kubebase.meta import Malformed, ObjectKey
from kuberun.cache import Cache


class Gatherer:
    """Gathers snapshots. The process has one."""

    def __init__(
        self,
        objects: Cache[PushSecret],
        pushes: Pushes,
        *,
        sources: SourceReader,
        chooser: StoreChooser,
        version_of: VersionOf,
        shortest_interval: float = SHORTEST_INTERVAL,
    ) -> None:
        self._objects = objects
        self._pushes = pushes
        self._sources = sources
        self._chooser = chooser
        self._version_of = version_of
        self._shortest = shortest_interval

    def find(self, key: ObjectKey) -> PushSecret | None:
        """Return the object if it exists and decodes. `controllers.malformed` reports objects that do not decode."""
        found = self._objects.get(key)
        return None if isinstance(found, Malformed) else found

    async def gather(self, push: PushSecret, now: datetime) -> PushSnapshot:
        last = self._pushes.last(push)
        note, push = floor_note(push.spec.refresh_interval, self._shortest), self.paced(push)
        return PushSnapshot(
            push=push,
            now=now,
            remembered=last,
            sources=self._sources.seen(push),
            stores=await self._chooser.choose(push),
            new_templates=last is not None and self._has_new_templates(last),
            unrecorded=bool(self._pushes.unrecorded(push)),
            interval_note=note,
            freed=self._pushes.rivals.freed(push.key),
        )

    def paced(self, push: PushSecret) -> PushSecret:
        """Return the object with its effective interval."""
        return paced(push, self._shortest)

    def _has_new_templates(self, last: LastPush) -> bool:
        """Return whether a template changed. A missing template does not count: the next push reports it."""
        return any(self._version_of(used.kind, used.key) not in ("", used.version) for used in last.templates)
