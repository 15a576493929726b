"""The store: writes are decided one after the other on the event loop, and become visible together after a commit.

    put/remove -> overlay (seen by the next writer) -> flusher: one transaction for all waiting writes
               -> committed view, history, listeners -> the waiting requests continue

A writer reads with `latest`, decides, and calls `put` or `remove` without an await in between; that is the whole
concurrency control. Readers use the committed view and never see writes that might still fail. If a commit fails, every
waiting write fails with it, because later writes were decided on top of earlier ones.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from kubebase.clock import Clock
from kubebase.meta import JsonObject
from localkube.errors import StatusError, insufficient_storage, internal
from localkube.storage.database import Database, Directory, is_full, no_space
from localkube.storage.records import Change, ChangeType, History, Key, Objects, Record, encode, tombstone
from localkube.traces import report_defect

Listener = Callable[[Change], None]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Limits of the history that watches and pages can read."""

    events: int = 50_000
    size: int = 128 * 1024 * 1024
    age: float = 600.0


class Batch:
    """Writes that are committed together, and the requests that wait for it."""

    __slots__ = ("changes", "compact_to", "done", "failure")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.compact_to: int | None = None
        self.done = asyncio.Event()
        self.failure: StatusError | None = None

    def finish(self, failure: StatusError | None) -> None:
        self.failure = failure
        self.done.set()

    async def committed(self) -> None:
        """Return once the batch is on disk and visible; raise a 500 if it could not be written, 507 on a full disk."""
        await self.done.wait()
        if self.failure is not None:
            raise StatusError(self.failure.code, self.failure.reason, self.failure.message)


class ObjectStorage:
    def __init__(
        self,
        database: Database,
        directory: Directory | None,
        *,
        clock: Clock,
        limits: HistoryLimits,
    ) -> None:
        self._database = database
        self._directory = directory
        self._clock = clock
        self._limits = limits
        self._objects = Objects()
        self._history = History()
        self._overlay: dict[Key, Change] = {}
        self._waiting = Batch()
        self._writing: Batch | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="localkube-commit")
        self._listeners: list[Listener] = []
        self._closed = False
        contents = database.load()
        for key, record in contents.objects.items():
            self._objects.put(key, record)
        for change in contents.changes:
            self._history.add(change)
        newest = contents.changes[-1].revision if contents.changes else 0
        self._compacted = contents.compacted
        self._revision = max(newest, contents.compacted, self._objects.newest_revision(), 1)
        self._assigned = self._revision

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        clock: Clock,
        limits: HistoryLimits = HistoryLimits(),  # noqa: B008 - frozen
        encrypted: frozenset[str] = frozenset({"secrets"}),
    ) -> ObjectStorage:
        """Open a data directory, or an empty store in memory. StorageError says why it cannot be."""
        directory = Directory.open(path) if path is not None else None
        try:
            database = Database.open(path, encrypted)
            try:
                return cls(database, directory, clock=clock, limits=limits)
            except BaseException:
                database.close()
                raise
        except BaseException:
            if directory is not None:
                directory.close()
            raise

    # --- what readers see -------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path | None:
        return self._directory.path if self._directory else None

    @property
    def revision(self) -> int:
        """Return the newest committed revision."""
        return self._revision

    @property
    def compacted(self) -> int:
        """Return the compacted revision: history up to and including it is deleted."""
        return self._compacted

    def get(self, key: Key) -> Record | None:
        return self._objects.get(key)

    def scan(self, resource: str, namespace: str = "") -> list[tuple[str, Record]]:
        """Return (path, record) of every object in key order."""
        return self._objects.scan(resource, namespace)

    def scan_at(self, resource: str, namespace: str, revision: int) -> list[tuple[str, Record]]:
        """Return the objects as of a revision; the caller has checked that it is not compacted."""
        before: dict[str, Record | None] = {}
        for change in self._history.since(resource, revision):
            if not namespace or change.key.namespace == namespace:
                before.setdefault(change.key.path, change.previous)
        state: dict[str, Record | None] = dict(self._objects.scan(resource, namespace))
        if not before:
            return self._objects.scan(resource, namespace)
        state.update(before)
        return [(path, record) for path, record in sorted(state.items()) if record is not None]

    def changes_since(self, resource: str, revision: int) -> list[Change]:
        """Return the committed changes after a revision; the caller has checked that it is not compacted."""
        return self._history.since(resource, revision)

    def resources(self) -> list[str]:
        """Return resources that have objects."""
        return self._objects.resources()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every change from now on, after its commit, in revision order. It must not raise.

        The returned function unregisters the listener.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- what writers do --------------------------------------------------------------------------------------------

    def latest(self, key: Key) -> Record | None:
        """Return the newest version, committed or not: a write must be decided on it."""
        change = self._overlay.get(key)
        if change is None:
            return self._objects.get(key)
        return None if change.type == "DELETED" else change.record

    def latest_scan(self, resource: str, namespace: str = "") -> Iterator[tuple[str, Record]]:
        """Yield every object as the next writer sees it, in any order."""
        pending = {
            key.path: change
            for key, change in self._overlay.items()
            if key.resource == resource and (not namespace or key.namespace == namespace)
        }
        for path, record in self._objects.scan(resource, namespace):
            if path not in pending:
                yield path, record
        for path, change in pending.items():
            if change.type != "DELETED":
                yield path, change.record

    def put(self, key: Key, obj: JsonObject) -> Batch:
        """Queue a new version and set its resourceVersion. Await the batch before you report it."""
        previous = self.latest(key)
        revision = self._next_revision()
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(revision)
        record = Record(revision, metadata["uid"], encode(obj))
        return self._queue("MODIFIED" if previous else "ADDED", key, record, previous)

    def remove(self, key: Key) -> Batch:
        """Queue a deletion of an object that exists."""
        previous = self.latest(key)
        if previous is None:
            raise KeyError(key)
        return self._queue("DELETED", key, tombstone(previous, self._next_revision()), previous)

    async def wait_committed(self) -> None:
        """Wait until what `latest` showed so far is committed."""
        if self._waiting.changes:
            await self._waiting.committed()
        elif self._writing is not None:
            await self._writing.committed()

    async def compact(self, through: int) -> None:
        """Forget history up to and including a committed revision."""
        through = min(through, self._revision)
        if through <= self._compacted:
            return
        batch = self._waiting
        batch.compact_to = max(through, batch.compact_to or 0)
        self._wake()
        await batch.committed()

    async def keep_limits(self) -> None:
        """Compact history beyond the limits of age, count or size."""
        before = self._clock.now().timestamp() - self._limits.age
        through = self._history.excess(events=self._limits.events, size=self._limits.size, before=before)
        if through:
            await self.compact(through)

    async def close(self) -> None:
        """Commit waiting writes and release the files."""
        if self._closed:
            return
        self._closed = True
        while self._flusher is not None and not self._flusher.done():
            await asyncio.wait([self._flusher])
        self._thread.shutdown(wait=True)
        self._database.close()
        if self._directory is not None:
            self._directory.close()

    # --- group commit -----------------------------------------------------------------------------------------------

    def _next_revision(self) -> int:
        if self._closed:
            raise internal("the server is shutting down")
        self._assigned += 1
        return self._assigned

    def _queue(self, kind: ChangeType, key: Key, record: Record, previous: Record | None) -> Batch:
        change = Change(kind, key, record, previous, self._clock.now().timestamp())
        self._overlay[key] = change
        self._waiting.changes.append(change)
        self._wake()
        return self._waiting

    def _wake(self) -> None:
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush(), name="localkube-flusher")

    async def _flush(self) -> None:
        """Commit batches until no write waits.

        A new task starts one loop turn later, so the writes of a turn share one commit.
        """
        while self._waiting.changes or self._waiting.compact_to is not None:
            batch, self._waiting = self._waiting, Batch()
            self._writing = batch
            self._trim(batch)
            failure = await self._write(batch)
            self._writing = None
            if failure is None:
                self._publish(batch)
                batch.finish(None)
            else:
                self._abandon(batch, failure)

    async def _write(self, batch: Batch) -> StatusError | None:
        try:
            self._database.stage(batch.changes, batch.compact_to)
            await asyncio.get_running_loop().run_in_executor(self._thread, self._database.commit)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the waiting requests must hear of it
            failure = f"the change could not be stored: {exc}"
            try:
                self._database.rollback()
            except sqlite3.Error as also:
                return internal(f"{failure}; and the transaction could not be rolled back: {also}")
            if is_full(exc):
                return insufficient_storage(f"{no_space(self.path)}; nothing was changed")
            return internal(failure)
        return None

    def _trim(self, batch: Batch) -> None:
        """Compact the history early when a burst of writes exceeds the limits by a quarter."""
        limits = self._limits
        if len(self._history) > limits.events * 1.25 or self._history.size > limits.size * 1.25:
            through = self._history.excess(events=limits.events, size=limits.size, before=0.0)
            batch.compact_to = max(through, batch.compact_to or 0)

    def _publish(self, batch: Batch) -> None:
        for change in batch.changes:
            if change.type == "DELETED":
                self._objects.remove(change.key)
            else:
                self._objects.put(change.key, change.record)
            if self._overlay.get(change.key) is change:
                del self._overlay[change.key]
            self._history.add(change)
            self._revision = change.revision
        if batch.compact_to is not None:
            self._compacted = max(self._compacted, batch.compact_to)
            self._history.drop(batch.compact_to)
        for change in batch.changes:
            for listener in tuple(self._listeners):
                try:
                    listener(change)
                except Exception as exc:  # noqa: BLE001 - the write is done: whoever waits for it must hear so
                    report_defect(_log, "a listener failed", exc, object=change.key.path, resource=change.key.resource)
            change.forget_objects()

    def _abandon(self, batch: Batch, failure: StatusError) -> None:
        """Fail every write of the batch, and every write decided on top of it."""
        waiting, self._waiting = self._waiting, Batch()
        self._overlay.clear()
        batch.finish(failure)
        waiting.finish(failure)
