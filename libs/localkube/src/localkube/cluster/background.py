"""The server's own controllers: one queue of keys, worked off in small groups so that their writes share commits.

A controller queues a key whenever a committed change concerns it, and reads the current state when it runs the job;
queueing is idempotent. A failed job is retried after a delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import NamedTuple

import structlog

from kubebase.clock import Clock
from localkube.errors import StatusError
from localkube.storage import Key
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
