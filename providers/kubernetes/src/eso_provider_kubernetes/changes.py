"""Changes at the backend, from one metadata watch: no value is transferred or kept.

    list (when watches are new) -> events for what changed since it was read
    watch from the resume token -> UPDATED, DELETED; a bookmark moves the token
    410                         -> list, RESYNC, watch from there

The resume token is a resourceVersion. It is not secret, and means nothing to another cluster: one that this server has
not reached yet is answered with RESYNC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from eso_provider_kubernetes.clusterstore import AnyClusterStore, Request
from eso_sdk.errors import unavailable
from eso_sdk.matching import Matcher
from eso_wire.values import ChangeEvent, ChangeType, FindQuery, Heartbeat, WatchItem
from kubebase.backoff import ExponentialBackoff, system_random
from kubebase.meta import Object, ObjectKey, ObjectMeta, Resource, key_of, meta_of, metadata_of
from kuberun.errors import ApiError, Gone, ServerError, Throttled, Unreachable
from kuberun.requests import Selection
from kuberun.watch import Bookmarked, Changed, Refused, Removed, Signal, Unreadable, read_frame

# --- The mapping of changed objects to watches of a subscription. Pure -----------------------------------------------


class Watches:
    """The watches of one call to `subscribe`."""

    def __init__(self, items: Sequence[WatchItem]) -> None:
        self._by_key: dict[str, list[str]] = {}
        self._known = {item.watch_id: item.known_version for item in items if item.known_version}
        self._by_name: list[tuple[str, Matcher]] = []
        self._by_labels: list[tuple[str, Mapping[str, str], set[str]]] = []
        for item in items:
            if item.ref is not None:
                self._by_key.setdefault(item.ref.key, []).append(item.watch_id)
            elif item.tags:
                self._by_labels.append((item.watch_id, item.tags, set()))
            else:
                self._by_name.append((item.watch_id, Matcher(FindQuery(name_regexp=item.name_regexp))))

    def remember(self, present: Mapping[str, Mapping[str, str]]) -> None:
        """Note which objects carry the labels: one that loses them changes the result of a search too."""
        for _, wanted, members in self._by_labels:
            members.update(key for key, labels in present.items() if _carries(labels, wanted))

    def overtaken(
        self, fresh: Sequence[WatchItem], versions: Mapping[str, str], *, report_unknown: bool
    ) -> dict[ChangeType, list[str]]:
        """Return new watches whose reader does not have the current version, by the type of change.

        A reader without a version may have read before the watch began. It must read once more, unless a resume token
        covers the time since then.
        """
        found: dict[ChangeType, list[str]] = {ChangeType.UPDATED: [], ChangeType.DELETED: []}
        for item in fresh:
            if item.ref is None or not item.known_version:
                found[ChangeType.UPDATED] += [item.watch_id] if report_unknown else []
                continue
            version = versions.get(item.ref.key)
            if version is None:
                found[ChangeType.DELETED].append(item.watch_id)
            elif version != item.known_version:
                found[ChangeType.UPDATED].append(item.watch_id)
                self._known[item.watch_id] = version
        return found

    def concerned(self, key: str, labels: Mapping[str, str], version: str) -> tuple[str, ...]:
        """Return the ids of the watches to notify. A reader that already has this version is not notified."""
        ids = [watch_id for watch_id in self._by_key.get(key, ()) if self._known.get(watch_id) != version]
        ids += [watch_id for watch_id, matcher in self._by_name if matcher.matches(key)]
        for watch_id, wanted, members in self._by_labels:
            carries = _carries(labels, wanted)
            if carries or key in members:
                ids.append(watch_id)
            (members.add if carries else members.discard)(key)
        return tuple(ids)


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


# --- Changes at the backend, from one metadata watch -----------------------------------------------------------------


_STREAM_SECONDS: Final = 300
_PAGE: Final = 500
_FAILURES: Final = 5
"""The number of broken watches in a row after which the stream fails; the operator reopens it with a longer back-off.
"""
_PAUSE: Final = ExponentialBackoff(first=0.2, cap=10.0, jitter=0.5)
_TRANSIENT: Final = (Unreachable, ServerError, Throttled)
_GONE: Final = 410


class Changes:
    """The changes of one resource, in one namespace or, if empty, in all."""

    def __init__(
        self, store: AnyClusterStore, resource: Resource, namespace: str, *, key_of: Callable[[ObjectKey], str]
    ) -> None:
        self._store = store
        self._source = store.client.source(metadata_of(resource), Selection(namespace))
        self._listing = Request("list", resource, namespace)
        self._watching = Request("watch", resource, namespace)
        self._key_of = key_of
        self._followed: frozenset[str] = frozenset()
        """Watch ids of the last call: their changes are reported up to the resume token."""

    async def follow(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield changes without end."""
        watches = Watches(items)
        position = _position(resume_token)
        # A stream that begins without a token must not go on from an earlier stream of the same store.
        followed = self._followed if position else frozenset()
        fresh = [item for item in items if item.watch_id not in followed]
        resumed = position > 0 and not followed
        if fresh or not position:
            latest, present = await self._list()
            watches.remember({key: meta.labels for key, meta in present.items()})
            versions = {key: meta.resource_version for key, meta in present.items()}
            events = self._overtaken(watches.overtaken(fresh, versions, report_unknown=not resumed))
            if position > latest:
                events.append(self._event(ChangeType.RESYNC, ()))
            position = position if 0 < position <= latest else latest
            for event in _with_token(events, position):
                yield event
        self._followed = frozenset(item.watch_id for item in items)
        yield self._heartbeat(position)
        while True:
            try:
                async for told in self._watch(position, watches):
                    position = _position(told.resume_token) or position
                    yield told
            except Gone:
                position, present = await self._list()
                watches.remember({key: meta.labels for key, meta in present.items()})
                yield self._event(ChangeType.RESYNC, (), str(position))

    async def _watch(self, position: int, watches: Watches) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Run one watch after the other, until the history has expired or the server fails too often."""
        failures = 0
        while True:
            await self._store.clock.sleep(_PAUSE.delay(failures, system_random))
            failures += 1
            try:
                async for signal in self._frames(position):
                    failures = 0
                    for event in self._events(signal, watches):
                        yield event
                    position = _reached(signal) or position
            except _TRANSIENT as error:
                if failures > _FAILURES:
                    raise self._store.failure(error, self._watching) from None
            except Gone:
                raise
            except ApiError as error:
                raise self._store.failure(error, self._watching) from None

    async def _frames(self, position: int) -> AsyncIterator[Signal[Object]]:
        stream = self._source.watch(resource_version=str(position), timeout_seconds=_STREAM_SECONDS)
        async with AsyncExitStack() as stack:
            with self._store.observe(f"Watch{self._watching.resource.kind}s"):
                frames = await stack.enter_async_context(stream)
            async for frame in frames:
                yield read_frame(frame, self._source.decode)

    def _events(self, signal: Signal[Object], watches: Watches) -> Iterator[ChangeEvent | Heartbeat]:
        match signal:
            case Changed(object=obj) | Removed(object=obj):
                meta = meta_of(obj)
                removed = isinstance(signal, Removed)
                key = self._key_of(key_of(obj))
                if ids := watches.concerned(key, {} if removed else meta.labels, meta.resource_version):
                    kind = ChangeType.DELETED if removed else ChangeType.UPDATED
                    yield self._event(kind, ids, meta.resource_version)
            case Bookmarked(resource_version=version):
                yield self._heartbeat(_position(version))
            case Refused(code=code) if code == _GONE:
                raise Gone(_GONE, "Expired", "the resource version is too old")
            case Refused(code=code):
                raise ServerError(code, signal.reason, f"the watch was ended with {code}")
            case Unreadable():
                raise unavailable("the API server sent a watch event that cannot be read; the stream is opened again")
            case _:
                return

    def _overtaken(self, found: Mapping[ChangeType, Sequence[str]]) -> list[ChangeEvent]:
        return [self._event(kind, tuple(ids)) for kind, ids in found.items() if ids]

    async def _list(self) -> tuple[int, dict[str, ObjectMeta]]:
        """Return the current position and the metadata of all objects."""
        present: dict[str, ObjectMeta] = {}
        token, version = "", ""
        while True:
            with self._store.asking(f"List{self._listing.resource.kind}s", self._listing):
                page = await self._source.list_page(limit=_PAGE, continue_token=token, resource_version="")
            present |= {self._key_of(key_of(item)): meta_of(item) for item in page.items}
            token, version = page.continue_token, page.resource_version
            if not token:
                return _position(version), present

    def _event(self, kind: ChangeType, ids: tuple[str, ...], version: str = "") -> ChangeEvent:
        resync = kind is ChangeType.RESYNC
        return ChangeEvent(kind, ids, "" if resync else version, self._store.clock.now(), resume_token=version)

    def _heartbeat(self, position: int) -> Heartbeat:
        return Heartbeat(self._store.clock.now(), str(position) if position else "")


def _position(token: str) -> int:
    """Return a resourceVersion as a number; 0 if it is not numeric."""
    return int(token) if token.isascii() and token.isdigit() and len(token) <= 20 else 0


def _with_token(events: Sequence[ChangeEvent], position: int) -> list[ChangeEvent]:
    """Give the last event the token: a stream that breaks before it must resume from the same place."""
    return [*events[:-1], *(replace(event, resume_token=str(position)) for event in events[-1:])]


def _reached(signal: Signal[Object]) -> int:
    match signal:
        case Changed(object=obj) | Removed(object=obj):
            return _position(meta_of(obj).resource_version)
        case Bookmarked(resource_version=version):
            return _position(version)
        case _:
            return 0
