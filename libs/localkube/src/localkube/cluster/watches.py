"""Lists and watches: every change of a resource, from any revision in the history, in order and without gaps.

A watch starts with a backlog (current objects or recorded changes) and continues with the changes that the store
publishes; both are taken in one step, so there is no gap. Buffers are bounded: a slow reader is disconnected and
reconnects.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import msgspec

from kubebase.meta import JsonObject
from localkube.cluster.catalog import Conversions
from localkube.errors import Cause, StatusError, bad_request, expired, invalid, server_timeout
from localkube.model import ListQuery, ListResult, ServedKind, WatchEvent, WatchQuery
from localkube.selectors import Selector, parse_field_selector, parse_label_selector
from localkube.storage import Change, ObjectStorage, Record

# --- Resource versions that clients send along with reads -------------------------------------------------------------


def revision_of(text: str, *, where: str = "resourceVersion") -> int:
    """Return the revision of a request, 0 for none."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        message = f'{where}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(message) if where != "resourceVersion" else StatusError(500, "", message)
    return int(text)


async def reject_future(store: ObjectStorage, requested: int) -> None:
    """Report a revision that this server has not reached: it may come, or be of another server."""
    if requested > store.revision:
        await store.wait_committed()
    if requested > store.revision:
        raise too_large(requested, store.revision, retry_after=1)


def too_large(requested: int, current: int, *, retry_after: int) -> StatusError:
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    error = server_timeout(message, retry_after)
    error.details["causes"] = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    if not retry_after:
        del error.details["retryAfterSeconds"]
    return error


# --- Lists: a consistent snapshot, in key order, in pages -------------------------------------------------------------
# A continue token names the snapshot's revision and the start of the next page. Once that revision is compacted, the
# token is rejected with 410 and a replacement token that continues from the same place in the current state.


_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - a format's name
_NOW = -1
"""Revision in the token of an inconsistent continuation."""
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ContinueToken(msgspec.Struct, frozen=True):
    """The content of a continue token."""

    v: str
    rv: int
    start: str

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (binascii.Error, ValueError, msgspec.MsgspecError) as exc:
            raise bad_request(
                "invalid continue token: continue key is not valid: it is not one of this server's"
            ) from exc
        if token.v != _TOKEN_VERSION or token.rv == 0 or not token.start:
            raise bad_request("invalid continue token: continue key is not valid: it is not one of this server's")
        return token


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a snapshot that a request asks for."""

    revision: int
    start: str
    limit: int


Entries = list[tuple[str, Record]]


class Lister:
    def __init__(self, store: ObjectStorage, conversions: Conversions) -> None:
        self._store = store
        self._conversions = conversions

    async def list(self, kind: ServedKind, query: ListQuery) -> ListResult:
        if not kind.resource.namespaced and query.namespace:
            query = replace(query, namespace="")
        selector = selector_of(kind, query.label_selector, query.field_selector)
        page = await self._page(query)
        if page.revision == self._store.revision:
            entries = self._store.scan(kind.storage_key, query.namespace)
        else:
            entries = self._store.scan_at(kind.storage_key, query.namespace, page.revision)
        start = bisect_left(entries, page.start, key=lambda entry: entry[0]) if page.start else 0
        return self._collect(kind, entries[start:], page, selector)

    async def _page(self, query: ListQuery) -> Page:
        _check_match(query)
        # From the cache, as the real server handles "0": whole lists, whatever the limit.
        limit = 0 if query.resource_version == "0" else query.limit
        if query.continue_token:
            return self._continued(query, limit)
        requested = revision_of(query.resource_version, where="invalid resource version: resourceVersion")
        is_exact = query.resource_version_match == "Exact" or (limit and requested and not query.resource_version_match)
        if not is_exact:
            await reject_future(self._store, requested)
            return Page(self._store.revision, "", limit)
        await self._store.wait_committed()
        if requested > self._store.revision:
            raise too_large(requested, self._store.revision, retry_after=0)
        if requested < self._store.compacted:
            raise expired("The resourceVersion for the provided list is too old.")
        return Page(requested, "", limit)

    def _continued(self, query: ListQuery, limit: int) -> Page:
        if query.resource_version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = ContinueToken.decode(query.continue_token)
        if token.rv == _NOW:
            return Page(self._store.revision, token.start, limit)
        if token.rv < self._store.compacted or token.rv > self._store.revision:
            error = expired(_TOO_OLD)
            error.metadata = {"continue": ContinueToken(_TOKEN_VERSION, _NOW, token.start).encode()}
            raise error
        return Page(token.rv, token.start, limit)

    def _collect(self, kind: ServedKind, entries: Entries, page: Page, selector: Selector | None) -> ListResult:
        items: list[JsonObject] = []
        read = self._conversions.read
        version = str(page.revision)
        for index, (path, record) in enumerate(entries):
            if page.limit and len(items) == page.limit:
                token = ContinueToken(_TOKEN_VERSION, page.revision, path).encode()
                remaining = len(entries) - index if selector is None else None
                return ListResult(items, version, token, remaining)
            obj = read(kind, record)
            if selector is None or selector.matches(obj):
                items.append(obj)
        return ListResult(items, version)


def selector_of(kind: ServedKind, labels: str, fields: str) -> Selector | None:
    """Return the selector of a request, or None if it selects everything."""
    parts = []
    if labels:
        parts.append(parse_label_selector(labels))
    if fields:
        parts.append(parse_field_selector(fields, kind))
    if len(parts) == 2:
        return parts[0] & parts[1]
    return parts[0] if parts else None


def _check_match(query: ListQuery) -> None:
    rule = query.resource_version_match
    if not rule:
        return
    if query.continue_token:
        raise _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
    if not query.resource_version:
        raise _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if rule not in {"Exact", "NotOlderThan"}:
        message = f'Unsupported value: "{rule}": supported values: "Exact", "NotOlderThan", ""'
        raise _invalid_list(Cause("resourceVersionMatch", message, "FieldValueNotSupported"))
    if rule == "Exact" and query.resource_version == "0":
        raise _forbidden_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def _forbidden_match(why: str) -> StatusError:
    return _invalid_list(Cause("resourceVersionMatch", f"Forbidden: {why}", "FieldValueForbidden"))


def _invalid_list(cause: Cause) -> StatusError:
    return invalid("ListOptions", "", [cause], group="meta.k8s.io")


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
