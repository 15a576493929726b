"""Watches: every change of a resource, from any revision in the history, in order and without gaps.

A watch starts with a backlog (current objects or recorded changes) and continues with the changes that the store
publishes; both are taken in one step, so there is no gap. Buffers are bounded: a slow reader is disconnected and
reconnects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from kubebase.meta import JsonObject
from localkube.cluster.conversions import Conversions
from localkube.cluster.lists import selector_of
from localkube.cluster.revisions import reject_future, revision_of
from localkube.errors import expired
from localkube.model import ServedKind, WatchEvent, WatchQuery
from localkube.selectors import Selector
from localkube.storage import Change, ObjectStorage

BUFFER = 4096
"""Events a watcher may lag behind before it is disconnected."""
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Watch:
    """An async iterator of WatchEvent. Their objects are shared between watches: read only."""

    def __init__(self, hub: Watches, kind: ServedKind, query: WatchQuery, selector: Selector | None) -> None:
        self._hub = hub
        self.kind = kind
        self.query = query
        self._selector = selector
        self._backlog: Iterator[WatchEvent] | None = None
        self._live: deque[WatchEvent] = deque()
        self._news = asyncio.Event()
        self._started = False
        self._ended = False
        self._after = revision_of(query.resource_version)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._started:
            await self._start()
        while (event := self.ready()) is None:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return event

    def ready(self) -> WatchEvent | None:
        """Take the next event of a running watch, if there is one without waiting."""
        if self._backlog is not None:
            event = next(self._backlog, None)
            if event is not None:
                return event
            self._backlog = None
        return self._live.popleft() if self._live else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop at once; a pending `__anext__` ends the iteration."""
        self._hub.remove(self)
        self._live.clear()
        self._backlog = None
        self._end()

    def finish(self) -> None:
        """End the iteration after the events that are already queued."""
        self._hub.remove(self)
        self._end()

    def bookmark(self) -> None:
        """Queue a bookmark at the current revision, if the client accepts bookmarks and no event is queued."""
        if self.query.allow_bookmarks and self._started and not self._live and self._backlog is None:
            self._push(self._hub.bookmark(self.kind, {}))

    def offer(self, change: Change) -> None:
        """Queue a committed change."""
        if change.revision <= self._after or not self._is_in_namespace(change):
            return
        event = self._event(change, self._shown(change), self._shown_before(change))
        if event is None:
            return
        if len(self._live) >= BUFFER:
            self._live.clear()
            self.finish()
            return
        self._push(event)

    def _push(self, event: WatchEvent) -> None:
        self._live.append(event)
        self._news.set()

    def _end(self) -> None:
        self._ended = True
        self._news.set()

    async def _start(self) -> None:
        """Take the backlog and subscribe in one step."""
        self._started = True
        store = self._hub.store
        await reject_future(store, self._after if self.query.send_initial_events else 0)
        if self._after > store.revision:
            await store.wait_committed()
        if self._ended:
            return
        if self._after and not self.query.send_initial_events:
            # A version that this server has not reached belongs to a former database: later changes are unknown.
            if self._after < store.compacted or self._after > store.revision:
                raise expired(f"too old resource version: {self._after} ({store.compacted + 1})")
            self._backlog = self._replay(store.changes_since(self.kind.storage_key, self._after))
        else:
            without_state = bool(self.query.resource_version_match) and not self.query.send_initial_events
            self._backlog = None if without_state else self._present()
            self._after = store.revision
        self._hub.add(self)

    def _present(self) -> Iterator[WatchEvent]:
        store = self._hub.store
        entries = store.scan(self.kind.storage_key, self._namespace)
        end = self._hub.bookmark(self.kind, {_INITIAL_EVENTS_END: "true"})

        def events() -> Iterator[WatchEvent]:
            for _, record in entries:
                obj = self._hub.conversions.read(self.kind, record)
                if self._selector is None or self._selector.matches(obj):
                    yield WatchEvent("ADDED", obj)
            if self.query.send_initial_events and self.query.allow_bookmarks:
                yield end

        return events()

    def _replay(self, changes: list[Change]) -> Iterator[WatchEvent]:
        for change in changes:
            if self._is_in_namespace(change):
                event = self._event(change, self._read(change), self._read_before(change))
                if event is not None:
                    yield event

    def _shown(self, change: Change) -> JsonObject:
        """Return the object of a live change, shared with the other watches if possible."""
        if self.kind.custom and self._hub.conversions.is_outdated(self.kind, _written(change)):
            return self._read(change)
        return self._hub.conversions.shown(self.kind, change.object)

    def _shown_before(self, change: Change) -> JsonObject | None:
        if self._selector is None or change.previous_object is None:
            return None
        return self._hub.conversions.shown(self.kind, change.previous_object)

    def _read(self, change: Change) -> JsonObject:
        return self._hub.conversions.read(self.kind, change.record, written=_written(change))

    def _read_before(self, change: Change) -> JsonObject | None:
        if self._selector is None or change.previous is None:
            return None
        return self._hub.conversions.read(self.kind, change.previous)

    def _event(self, change: Change, obj: JsonObject, previous: JsonObject | None) -> WatchEvent | None:
        """Return the change as this watch sees it: a selector turns it into an addition, a deletion or nothing."""
        if self._selector is None:
            return WatchEvent(change.type, obj)
        is_in = change.type != "DELETED" and self._selector.matches(obj)
        was_in = previous is not None and self._selector.matches(previous)
        if is_in:
            return WatchEvent("MODIFIED" if was_in else "ADDED", obj)
        if not was_in or previous is None:
            return None
        if change.type == "DELETED":
            return WatchEvent("DELETED", obj)
        last = {**previous, "metadata": {**previous["metadata"], "resourceVersion": str(change.revision)}}
        return WatchEvent("DELETED", last)

    @property
    def _namespace(self) -> str:
        return self.query.namespace if self.kind.resource.namespaced else ""

    def _is_in_namespace(self, change: Change) -> bool:
        return not self._namespace or change.key.namespace == self._namespace


def _written(change: Change) -> int:
    """Return the revision at which the content of a change was written; a deletion shows the content before it."""
    return change.previous.revision if change.type == "DELETED" and change.previous else change.revision


class Watches:
    """All running watches, by resource."""

    def __init__(self, store: ObjectStorage, conversions: Conversions) -> None:
        self.store = store
        self.conversions = conversions
        self._by_resource: dict[str, dict[Watch, None]] = {}
        store.listen(self._publish)

    def open(self, kind: ServedKind, query: WatchQuery) -> Watch:
        selector = selector_of(kind, query.label_selector, query.field_selector)
        return Watch(self, kind, query, selector)

    def add(self, watch: Watch) -> None:
        self._by_resource.setdefault(watch.kind.storage_key, {})[watch] = None

    def remove(self, watch: Watch) -> None:
        self._by_resource.get(watch.kind.storage_key, {}).pop(watch, None)

    def bookmark(self, kind: ServedKind, annotations: dict[str, str]) -> WatchEvent:
        metadata: JsonObject = {"resourceVersion": str(self.store.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = kind.resource
        return WatchEvent("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})

    def bookmark_all(self) -> None:
        for watches in self._by_resource.values():
            for watch in list(watches):
                watch.bookmark()

    def end(self, resource: str) -> None:
        """End the watches of a resource whose schema changed or that is no longer served; clients start again."""
        for watch in list(self._by_resource.get(resource, {})):
            watch.finish()

    def end_all(self) -> None:
        for resource in list(self._by_resource):
            self.end(resource)

    def _publish(self, change: Change) -> None:
        watches = self._by_resource.get(change.key.resource)
        if watches:
            for watch in list(watches):
                watch.offer(change)
