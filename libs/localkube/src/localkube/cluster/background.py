"""The server's own controllers: one queue of keys, worked off in small groups so that their writes share commits.

A controller queues a key whenever a committed change concerns it, and reads the current state when it runs the job;
queueing is idempotent. A failed job is retried after a delay. Periodic work (compaction, expiry, bookmarks) is
here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec
import structlog

from kubebase.clock import Clock, parse_rfc3339
from localkube.cluster.metadata import EVENTS
from localkube.cluster.watches import Watches
from localkube.errors import StatusError
from localkube.storage import Key, ObjectStorage
from localkube.storage.store import Batch
from localkube.traces import report_defect

_GROUP = 64
_RETRY_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class Job(NamedTuple):
    run: Callable[[Key], Awaitable[None]]
    key: Key


class Background:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[Job, None] = {}
        self._failed: dict[Job, None] = {}
        self._news = asyncio.Event()
        self._busy = False

    def queue(self, run: Callable[[Key], Awaitable[None]], key: Key) -> None:
        self._jobs[Job(run, key)] = None
        self._news.set()

    @property
    def is_idle(self) -> bool:
        return not self._jobs and not self._busy

    async def work(self) -> None:
        """Run jobs forever."""
        while True:
            if not self._jobs:
                self._news.clear()
                await self._news.wait()
            self._busy = True
            group = list(islice(self._jobs, _GROUP))
            for job in group:
                del self._jobs[job]
            await asyncio.gather(*(self._run(job) for job in group))
            self._busy = False

    async def retry(self) -> None:
        """Put failed jobs back, forever."""
        while True:
            await self._clock.sleep(_RETRY_SECONDS)
            failed, self._failed = self._failed, {}
            for job in failed:
                self.queue(*job)

    async def _run(self, job: Job) -> None:
        try:
            await job.run(job.key)
        except StatusError as exc:
            self._failed[job] = None
            if exc.code != 409:  # another client was faster: normal
                _log.warning("background work failed, will try again", object=str(job.key.path), reason=exc.reason)
        except Exception as exc:  # noqa: BLE001 - one broken object must not stop the controllers
            self._failed[job] = None
            report_defect(_log, "background work broke, will try again", exc, object=str(job.key.path))


# --- Periodic work: compact old history, expire recorded events, send bookmarks to quiet watches ----------------------

_INTERVAL = 30.0
EVENT_LIFE = timedelta(hours=1)


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
