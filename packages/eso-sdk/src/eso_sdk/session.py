"""Opened stores and generators, kept as long as they are used.

    use(key, make) -> the session for that key, opened at most once; closed when forgotten and no call uses it,
                      or at once if it did not open

Logging in to a backend costs more than a read, so a session outlives its call. What bounds that: a number of sessions
(of the namespace that has most, the one used longest ago goes first), a time without use, and the key, which changes
with any credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from eso_sdk.backend import Backend
from eso_sdk.redaction import seat
from kuberun.clock import Clock
from kuberun.deadline import Deadline
from kuberun.fairness import FairTable

MAX_SESSIONS: Final = 256
IDLE_SECONDS: Final = 600.0
OPEN_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 10.0

_log = structlog.get_logger("eso_sdk.session")


@dataclass(frozen=True, slots=True)
class Session:
    """An opened backend, whose eyes it has, and how many calls it takes at a time."""

    key: bytes
    backend: Backend[Any]
    gate: asyncio.Semaphore


class _Entry:
    __slots__ = ("forgotten", "key", "last_used", "opened", "opening", "session", "users")

    def __init__(self, key: bytes, session: Session, opened: asyncio.Future[Exception | None]) -> None:
        self.key = key
        self.session = session
        self.opened = opened
        """Done when `open` returned: with its exception, or None."""
        self.opening: asyncio.Task[None] | None = None
        self.users = 0
        self.last_used = 0.0
        self.forgotten = False


class Sessions:
    """The sessions of one process."""

    def __init__(
        self,
        clock: Clock,
        *,
        limit: int = MAX_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
        on_change: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._clock = clock
        self._idle = idle_seconds
        self._on_change = on_change
        self._entries: FairTable[bytes, _Entry] = FairTable(limit)
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def use(self, key: bytes, make: Callable[[], Session], owner: str = "") -> AsyncIterator[Session]:
        """The session for `key`, made and opened if there is none. Whoever comes while it opens waits for that.

        `owner` is the namespace on whose account it is kept: many sessions of one do not displace those of others.
        """
        self.forget_idle()
        entry = self._entries.get(key) or self._start(key, make(), owner)
        entry.users += 1
        try:
            # The future is shared: a caller that gives up must not take it away from the others.
            if failure := await asyncio.shield(entry.opened):
                raise failure
            yield entry.session
        finally:
            entry.users -= 1
            entry.last_used = self._clock.monotonic()
            self._close_if_over(entry)

    def forget(self, key: bytes) -> None:
        """Evict a session whose login the backend rejects. The next call with this key logs in again."""
        if entry := self._entries.pop(key):
            self._drop(entry)

    def forget_idle(self) -> None:
        """Forget what nobody used for a while."""
        now = self._clock.monotonic()
        for entry in [entry for entry in self._entries.values() if not entry.users and entry.opened.done()]:
            if now - entry.last_used >= self._idle:
                self.forget(entry.key)

    async def sweep(self) -> None:
        """Forget idle sessions also when no call comes. Runs until cancelled."""
        while True:
            await self._clock.sleep(self._idle / 2)
            self.forget_idle()

    async def close(self) -> None:
        """Forget all and wait until they are closed. What still opens is given up."""
        for entry in self._entries.values():
            self.forget(entry.key)
            if entry.opening is not None and not entry.opened.done():
                entry.opening.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, key: bytes, session: Session, owner: str) -> _Entry:
        entry = _Entry(key, session, asyncio.get_running_loop().create_future())
        entry.last_used = self._clock.monotonic()
        for oldest in self._entries.put(key, entry, owner):
            self._drop(oldest)
        self._on_change(len(self._entries))
        entry.opening = self._own(self._open(entry))
        return entry

    async def _open(self, entry: _Entry) -> None:
        """In a task of its own, since the call that asked first may be cancelled while others wait."""
        try:
            async with Deadline(self._clock, OPEN_SECONDS):
                await entry.session.backend.open()
        except Exception as exc:  # noqa: BLE001 - handed to every caller that waits
            entry.opened.set_result(exc)
            self._give_up(entry)
        except BaseException:
            entry.opened.cancel()
            self._give_up(entry)
            raise
        else:
            entry.opened.set_result(None)
            self._close_if_over(entry)

    def _give_up(self, entry: _Entry) -> None:
        """Forget what did not open, and close it: it may hold what it took before it failed."""
        if self._entries.get(entry.key) is entry:
            self._entries.pop(entry.key)
            self._on_change(len(self._entries))
        self._own(self._close(entry.session.backend))

    def _drop(self, entry: _Entry) -> None:
        entry.forgotten = True
        self._on_change(len(self._entries))
        self._close_if_over(entry)

    def _close_if_over(self, entry: _Entry) -> None:
        """Close what was opened, is forgotten, and used by no call."""
        opened = entry.opened.done() and not entry.opened.cancelled() and entry.opened.result() is None
        if entry.forgotten and not entry.users and opened:
            entry.forgotten = False
            self._own(self._close(entry.session.backend))

    async def _close(self, backend: Backend[Any]) -> None:
        try:
            async with Deadline(self._clock, CLOSE_SECONDS):
                await backend.close()
        except Exception as exc:  # noqa: BLE001 - nobody waits for it; the session is gone either way
            _log.warning("session not closed cleanly", error=seat(exc))

    def _own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
