"""Collects what one reconcile goes by: the object, its sources and stores as they are known, the time."""

from __future__ import annotations

from datetime import datetime

import structlog

from eso_api.pushsecret import PushSecret
from eso_operator.pushsecret.memory import Memory
from eso_operator.pushsecret.snapshot import Snapshot
from eso_operator.pushsecret.sources import SourceReader
from eso_operator.pushsecret.stores import StoreChooser
from kuberun.cache import Store
from kuberun.meta import Malformed, ObjectKey

_log = structlog.get_logger(__name__)


class Gatherer:
    """One for the process."""

    def __init__(
        self, objects: Store[PushSecret], memory: Memory, *, sources: SourceReader, chooser: StoreChooser
    ) -> None:
        self._objects = objects
        self._memory = memory
        self._sources = sources
        self._chooser = chooser

    def find(self, key: ObjectKey) -> PushSecret | None:
        """The object, if it is there and can be read."""
        found = self._objects.get(key)
        if isinstance(found, Malformed):
            _log.warning("push secret does not fit its type", push_secret=str(key), problem=found.error)
            return None
        return found

    async def gather(self, push: PushSecret, now: datetime) -> Snapshot:
        return Snapshot(
            push=push,
            now=now,
            remembered=self._memory.last(push),
            sources=self._sources.seen(push),
            stores=await self._chooser.choose(push),
        )
