"""Periodic work: compact old history, expire recorded events, send bookmarks to quiet watches."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import structlog

from kubebase.clock import Clock, parse_rfc3339
from localkube.cluster.rules import EVENTS
from localkube.cluster.watches import Watches
from localkube.errors import StatusError
from localkube.storage import Key, ObjectStorage
from localkube.storage.store import Batch

_INTERVAL = 30.0
EVENT_LIFE = timedelta(hours=1)

_log = structlog.get_logger(__name__)


class Housekeeping:
    def __init__(self, store: ObjectStorage, watches: Watches, clock: Clock) -> None:
        self._store = store
        self._watches = watches
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_INTERVAL)
            try:
                await self.run_once()
            except StatusError as exc:
                _log.warning("housekeeping failed, will try again", reason=exc.reason)

    async def run_once(self) -> None:
        """Run one round of all periodic work."""
        self._watches.bookmark_all()
        await self._expire_events()
        await self._store.keep_limits()

    async def _expire_events(self) -> None:
        oldest = self._clock.now() - EVENT_LIFE
        last: Batch | None = None
        for path, record in self._store.scan(EVENTS):
            namespace, _, name = path.rpartition("/")
            key = Key(EVENTS, namespace, name)
            if self._store.latest(key) is record and last_observed(record.body) < oldest:
                last = self._store.remove(key)
        if last is not None:
            await last.committed()


class _Series(msgspec.Struct):
    lastObservedTime: str | None = None  # noqa: N815 - the field's name


class _Metadata(msgspec.Struct):
    creationTimestamp: str  # noqa: N815 - the field's name


class _Times(msgspec.Struct):
    """The times of an Event; the rest of it is not decoded."""

    metadata: _Metadata
    lastTimestamp: str | None = None  # noqa: N815 - the field's name
    eventTime: str | None = None  # noqa: N815 - the field's name
    series: _Series | None = None


_times = msgspec.json.Decoder(_Times)


def last_observed(body: bytes) -> datetime:
    """Return the newest time in an Event; counting it again extends its life."""
    event = _times.decode(body)
    texts = (event.lastTimestamp, event.eventTime, event.series.lastObservedTime if event.series else None)
    times = [_time(text) for text in texts if text]
    return max([parse_rfc3339(event.metadata.creationTimestamp), *(time for time in times if time is not None)])


def _time(text: str) -> datetime | None:
    try:
        return parse_rfc3339(text)
    except ValueError:
        return None
