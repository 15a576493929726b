"""The index of followers: which ExternalSecrets read which items of which stream. Pure, bounded.

    subscribe(key, watched_keys) -> stream of each key -> topics, each with its followers
                           take_touched / watch_set: the items that a stream must watch
                           followers_of / all_of: the followers that an event concerns
                           take_unread: followers that have not read since this process started

Reads beyond the limits are not followed: they are refreshed at their interval only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from eso_operator.changes.subscriptions import StreamKey, stream_key
from eso_operator.memory import Memory, Record
from eso_operator.stores.resolved import BoundStore
from eso_wire.bounds import MAX_WATCHES
from eso_wire.values import FindQuery, RemoteRef, WatchItem
from kubebase.meta import ObjectKey


class Topic(NamedTuple):
    """Something that can change: a remote key, or all keys that match a search."""

    ref: RemoteRef | None
    name_regexp: str = ""
    tags: tuple[tuple[str, str], ...] = ()


def topic_of(ref: RemoteRef) -> Topic:
    """Return the topic of a remote ref, without its property: backends change whole keys."""
    return Topic(RemoteRef(ref.key, ref.version))


def topic_of_search(query: FindQuery) -> Topic | None:
    """Return the topic of a search; None for a search below a path, because streams cannot filter by path."""
    return None if query.path else Topic(None, query.name_regexp, tuple(sorted(query.tags.items())))


@dataclass(frozen=True, slots=True)
class WatchedKey:
    """The topics read through one store, each with its version; empty if the provider gives none."""

    bound: BoundStore
    versions: Mapping[Topic, str]


class ReadState(Enum):
    """How much of what a follower depends on it has read and can follow."""

    WHOLE = "this process has read everything, and all of it can be watched"
    PART = "this process has read everything, and some of it cannot be watched"
    UNREAD = "a former process has read"


class WatchSet(NamedTuple):
    """The items that a stream must watch."""

    bound: BoundStore
    items: tuple[WatchItem, ...]


class StreamTopic(NamedTuple):
    """One topic of one stream."""

    stream: StreamKey
    topic: Topic


@dataclass(slots=True, eq=False)
class FollowerRecord(Record):
    """What is remembered of one follower, as part of the record of its object."""

    follows: frozenset[StreamTopic] = frozenset()
    watches_all: bool = False
    """True if the object has read everything that it depends on and follows all of it."""
    notified_at: float | None = None
    """When (monotonic) a change was announced to the object, if it has not read since."""


@dataclass(frozen=True, slots=True)
class FollowerLimits:
    """Limits of the index. `streams` must not exceed the limit in `SubscriptionSettings`."""

    followers: int = 200_000
    streams: int = 500
    topics: int = MAX_WATCHES
    """The topics of one stream."""


class Followers:
    """The index of followers by stream and topic. The record of a follower lists its topics."""

    def __init__(self, memory: Memory[FollowerRecord], limits: FollowerLimits = FollowerLimits()) -> None:  # noqa: B008 - a frozen value
        self.memory = memory
        self._limits = limits
        self._streams: dict[StreamKey, _FollowedStream] = {}
        self._unread: dict[StreamKey, set[ObjectKey]] = {}
        self._touched: set[StreamKey] = set()
        self._count = 0
        self._ids = itertools.count(1)
        memory.on_forget(self._stop)

    def subscribe(
        self, key: ObjectKey, watched_keys: Iterable[WatchedKey], read_state: ReadState = ReadState.PART
    ) -> None:
        """Make the object follow exactly these reads."""
        record = self.memory.at(key)
        before = record.follows
        now: set[StreamTopic] = set()
        wanted: set[StreamTopic] = set()
        if before or self._count < self._limits.followers:
            for watched in watched_keys:
                stream = stream_key(watched.bound)
                now |= self._join(key, stream, watched, read_state)
                wanted |= {StreamTopic(stream, topic) for topic in watched.versions}
        for stream_topic in before - now:
            self._leave(key, stream_topic)
        self._track_unread(key, now - before, read_state)
        record.watches_all = bool(now) and now == wanted and read_state is ReadState.WHOLE
        if now != before:
            record.follows = frozenset(now)
        if not now:
            record.notified_at = None
        self._count += bool(now) - bool(before)

    def unsubscribe(self, key: ObjectKey) -> None:
        if (record := self.memory.find(key)) is not None:
            self._stop(key, record)

    def take_touched(self) -> set[StreamKey]:
        """Return the streams whose watch set changed, or that got an unread follower, since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def watch_set(self, stream: StreamKey) -> WatchSet | None:
        """Return the items that a stream must watch; None if it has no followers.

        Each item has the oldest version that a follower has read, so that followers with older versions get an event.
        """
        found = self._streams.get(stream)
        if found is None:
            return None
        return WatchSet(found.bound, tuple(watch.item(topic) for topic, watch in found.watches.items()))

    def followers_of(self, stream: StreamKey, watch_ids: Iterable[str]) -> list[ObjectKey]:
        """Return the followers of any of these watch ids; unknown or former ids are ignored."""
        found = self._streams.get(stream)
        if found is None:
            return []
        topics = (found.topics[each] for each in watch_ids if each in found.topics)
        return sorted({key for topic in topics for key in found.watches[topic].versions})

    def all_of(self, stream: StreamKey) -> list[ObjectKey]:
        found = self._streams.get(stream)
        return [] if found is None else sorted({key for watch in found.watches.values() for key in watch.versions})

    def watches_all(self, key: ObjectKey) -> bool:
        """Return whether the object has read everything it depends on and follows all of it."""
        found = self.memory.find(key)
        return found is not None and found.watches_all

    def streams_of(self, keys: Iterable[ObjectKey]) -> set[StreamKey]:
        return {stream_topic.stream for key in keys for stream_topic in self._follows(key)}

    def stores_of(self, key: ObjectKey) -> list[BoundStore]:
        """Return the stores through which an object follows its keys."""
        return [self._streams[stream].bound for stream in self.streams_of([key])]

    def take_unread(self, stream: StreamKey) -> list[ObjectKey]:
        """Return the objects that joined the stream since the last call without having read."""
        return sorted(self._unread.pop(stream, ()))

    # --- notified and not read yet ------------------------------------------------------------------------------------

    def notify(self, key: ObjectKey, at: float) -> bool:
        """Record that a change was announced to the object. Return False if it no longer follows anything."""
        found = self.memory.find(key)
        if found is None or not found.follows:
            return False
        # Used now, so that it is not evicted before the object has read the change.
        self.memory.at(key).notified_at = at
        return True

    def notified(self) -> list[ObjectKey]:
        """Return all objects that have not read since a change was announced to them."""
        return [key for key, record in self.memory.items() if record.notified_at is not None]

    def notified_at(self, key: ObjectKey) -> float | None:
        """Return when (monotonic) a change was last announced to the object, if it has not read since."""
        found = self.memory.find(key)
        return None if found is None else found.notified_at

    def mark_read(self, key: ObjectKey, at: float | None) -> None:
        """Record that the object has read the change announced at that time; a later one stays unread."""
        found = self.memory.find(key)
        if found is not None and found.notified_at == at:
            found.notified_at = None

    def __len__(self) -> int:
        return self._count

    # --- topics -------------------------------------------------------------------------------------------------------

    def _follows(self, key: ObjectKey) -> frozenset[StreamTopic]:
        found = self.memory.find(key)
        return frozenset() if found is None else found.follows

    def _stop(self, key: ObjectKey, record: FollowerRecord) -> None:
        for stream_topic in record.follows:
            self._leave(key, stream_topic)
        self._track_unread(key, set(), ReadState.PART)
        self._count -= bool(record.follows)
        record.follows, record.watches_all, record.notified_at = frozenset(), False, None

    def _track_unread(self, key: ObjectKey, joined: set[StreamTopic], read_state: ReadState) -> None:
        """Record an unread follower under its new streams; remove a follower that has read from all streams."""
        if read_state is ReadState.UNREAD:
            for stream_topic in joined:
                self._unread.setdefault(stream_topic.stream, set()).add(key)
                self._touched.add(stream_topic.stream)
            return
        for stream in [stream for stream, keys in self._unread.items() if key in keys]:
            self._unread[stream].discard(key)

    def _join(self, key: ObjectKey, name: StreamKey, watched: WatchedKey, read_state: ReadState) -> set[StreamTopic]:
        stream = self._streams.get(name)
        if stream is None:
            if len(self._streams) >= self._limits.streams or not watched.versions:
                return set()
            stream = self._streams[name] = _FollowedStream(name, watched.bound)
        stream.bound = watched.bound
        joined = set()
        for topic, version in watched.versions.items():
            watch = stream.watches.get(topic)
            if watch is None:
                if len(stream.watches) >= self._limits.topics:
                    continue
                watch = stream.add(topic, f"w{next(self._ids)}")
                self._touched.add(name)
            if read_state is not ReadState.UNREAD or key not in watch.versions:
                watch.versions.pop(key, None)
                watch.versions[key] = version
            joined.add(watch.stream_topic)
        return joined

    def _leave(self, key: ObjectKey, stream_topic: StreamTopic) -> None:
        stream = self._streams[stream_topic.stream]
        watch = stream.watches[stream_topic.topic]
        del watch.versions[key]
        if watch.versions:
            return
        self._touched.add(stream_topic.stream)
        stream.remove(stream_topic.topic)
        if not stream.watches:
            del self._streams[stream_topic.stream]
            self._unread.pop(stream_topic.stream, None)


@dataclass(slots=True, eq=False)
class _Watch:
    watch_id: str
    stream_topic: StreamTopic
    """Shared by the records of all followers."""
    versions: dict[ObjectKey, str] = field(default_factory=dict)
    """The version that each follower has read, oldest read first."""

    def item(self, topic: Topic) -> WatchItem:
        known = next(iter(self.versions.values()))
        return WatchItem(self.watch_id, topic.ref, topic.name_regexp, dict(topic.tags), known)


@dataclass(slots=True, eq=False)
class _FollowedStream:
    key: StreamKey
    bound: BoundStore
    watches: dict[Topic, _Watch] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    """By watch id. An id is never reused for another topic, so that a late event cannot reach wrong followers."""

    def add(self, topic: Topic, watch_id: str) -> _Watch:
        self.topics[watch_id] = topic
        watch = self.watches[topic] = _Watch(watch_id, StreamTopic(self.key, topic))
        return watch

    def remove(self, topic: Topic) -> None:
        del self.topics[self.watches.pop(topic).watch_id]
