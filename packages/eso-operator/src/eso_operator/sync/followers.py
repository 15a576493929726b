"""Who wants to hear when something changes at a backend: an index of what ExternalSecrets read. Pure, bounded.

    follow(key, sights) -> stream of each sight -> topics, each with its followers
                           touched / wish: what a stream is to watch now   followers_of / all_of: whom an event concerns
                           take_unread: who has not read since an earlier process did

What does not fit is left out: it is read again at its interval, as without any of this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from eso_operator.providers.subscriptions import StreamKey, stream_key
from eso_operator.stores.target import BoundTarget
from eso_wire.bounds import MAX_WATCHES
from eso_wire.values import FindQuery, RemoteRef, WatchItem
from kuberun.meta import ObjectKey


class Topic(NamedTuple):
    """Something that can change: a remote key, or everything that fits a search."""

    ref: RemoteRef | None
    name_regexp: str = ""
    tags: tuple[tuple[str, str], ...] = ()


def topic_of(ref: RemoteRef) -> Topic:
    """Backends change whole keys: their properties are one topic."""
    return Topic(RemoteRef(ref.key, ref.version))


def topic_of_search(query: FindQuery) -> Topic | None:
    """None for a search below a path, which cannot be watched: everything outside of it would be heard of too."""
    return None if query.path else Topic(None, query.name_regexp, tuple(sorted(query.tags.items())))


@dataclass(frozen=True, slots=True)
class Sight:
    """What was read through one target, with the version of each; empty where the provider does not say."""

    bound: BoundTarget
    versions: Mapping[Topic, str]


class Reading(Enum):
    """What a follower knows of what it follows."""

    WHOLE = "it has read everything it goes by, and all of that can be watched"
    PART = "it has read, also what cannot be watched"
    UNREAD = "another process has read"


class Wish(NamedTuple):
    """What a stream is to watch."""

    bound: BoundTarget
    items: tuple[WatchItem, ...]


@dataclass(frozen=True, slots=True)
class FollowerLimits:
    """How much there may be of everything. No more streams than `SubscriptionSettings` has."""

    followers: int = 200_000
    streams: int = 500
    topics: int = MAX_WATCHES
    """Of one stream."""


class Followers:
    """Both directions, and who was told of a change and has not read since."""

    def __init__(self, limits: FollowerLimits = FollowerLimits()) -> None:  # noqa: B008 - a frozen value
        self._limits = limits
        self._streams: dict[StreamKey, _Stream] = {}
        self._topics: dict[ObjectKey, frozenset[_Place]] = {}
        self._whole: set[ObjectKey] = set()
        self._unread: dict[StreamKey, set[ObjectKey]] = {}
        self._told: dict[ObjectKey, float] = {}
        self._touched: set[StreamKey] = set()
        self._ids = itertools.count(1)

    def follow(self, key: ObjectKey, sights: Iterable[Sight], reading: Reading = Reading.PART) -> None:
        """It follows these, and nothing else any more."""
        before = self._topics.get(key, frozenset())
        now: set[_Place] = set()
        wanted: set[_Place] = set()
        if before or len(self._topics) < self._limits.followers:
            for sight in sights:
                now |= self._join(key, sight, reading)
                wanted |= {_Place(stream_key(sight.bound), topic) for topic in sight.versions}
        for place in before - now:
            self._leave(key, place)
        self._note(key, now - before, reading)
        if now and now == wanted and reading is Reading.WHOLE:
            self._whole.add(key)
        else:
            self._whole.discard(key)
        if now:
            self._topics[key] = frozenset(now)
        else:
            self._topics.pop(key, None)
            self._told.pop(key, None)

    def leave(self, key: ObjectKey) -> None:
        self.follow(key, ())

    def take_touched(self) -> set[StreamKey]:
        """Streams whose wish is another one than at the last call, or that were joined by somebody who has not read."""
        touched, self._touched = self._touched, set()
        return touched

    def wish(self, stream: StreamKey) -> Wish | None:
        """None when nobody needs the stream.

        The version that was read the longest ago counts: where followers have read different ones, all of them hear.
        """
        found = self._streams.get(stream)
        if found is None:
            return None
        return Wish(found.bound, tuple(watch.item(topic) for topic, watch in found.watches.items()))

    def followers_of(self, stream: StreamKey, watch_ids: Iterable[str]) -> list[ObjectKey]:
        """Of any of these; ids that are unknown, or not any more, concern nobody."""
        found = self._streams.get(stream)
        if found is None:
            return []
        topics = (found.topics[each] for each in watch_ids if each in found.topics)
        return sorted({key for topic in topics for key in found.watches[topic].versions})

    def all_of(self, stream: StreamKey) -> list[ObjectKey]:
        found = self._streams.get(stream)
        return [] if found is None else sorted({key for watch in found.watches.values() for key in watch.versions})

    def hears_of_all(self, key: ObjectKey) -> bool:
        """Whether it has read everything it goes by, and follows all of it."""
        return key in self._whole

    def streams_of(self, keys: Iterable[ObjectKey]) -> set[StreamKey]:
        return {place.stream for key in keys for place in self._topics.get(key, ())}

    def targets_of(self, key: ObjectKey) -> list[BoundTarget]:
        """Through which targets it follows what it follows."""
        return [self._streams[stream].bound for stream in self.streams_of([key])]

    def take_unread(self, stream: StreamKey) -> list[ObjectKey]:
        """Who follows something new of this stream since the last call, without having read it."""
        return sorted(self._unread.pop(stream, ()))

    # --- told and not read yet ----------------------------------------------------------------------------------------

    def tell(self, key: ObjectKey, at: float) -> bool:
        """Something it reads has changed. False if it follows nothing any more."""
        if key not in self._topics:
            return False
        self._told[key] = at
        return True

    def told(self) -> list[ObjectKey]:
        """All who were told and have not read since."""
        return list(self._told)

    def told_at(self, key: ObjectKey) -> float | None:
        """When (monotonic) it was last told, if it has not read since."""
        return self._told.get(key)

    def heard(self, key: ObjectKey, at: float | None) -> None:
        """It has read what it was told of then. Of a change since, it still has to hear."""
        if at is not None and self._told.get(key) == at:
            del self._told[key]

    def __len__(self) -> int:
        return len(self._topics)

    # --- places -------------------------------------------------------------------------------------------------------

    def _note(self, key: ObjectKey, joined: set[_Place], reading: Reading) -> None:
        """Whoever has read has nothing to make up for."""
        if reading is Reading.UNREAD:
            for place in joined:
                self._unread.setdefault(place.stream, set()).add(key)
                self._touched.add(place.stream)
            return
        for stream in [stream for stream, keys in self._unread.items() if key in keys]:
            self._unread[stream].discard(key)

    def _join(self, key: ObjectKey, sight: Sight, reading: Reading) -> set[_Place]:
        name = stream_key(sight.bound)
        stream = self._streams.get(name)
        if stream is None:
            if len(self._streams) >= self._limits.streams or not sight.versions:
                return set()
            stream = self._streams[name] = _Stream(sight.bound)
        stream.bound = sight.bound
        joined = set()
        for topic, version in sight.versions.items():
            watch = stream.watches.get(topic)
            if watch is None:
                if len(stream.watches) >= self._limits.topics:
                    continue
                watch = stream.add(topic, f"w{next(self._ids)}")
                self._touched.add(name)
            if reading is not Reading.UNREAD or key not in watch.versions:
                watch.versions.pop(key, None)
                watch.versions[key] = version
            joined.add(_Place(name, topic))
        return joined

    def _leave(self, key: ObjectKey, place: _Place) -> None:
        stream = self._streams[place.stream]
        watch = stream.watches[place.topic]
        del watch.versions[key]
        if watch.versions:
            return
        self._touched.add(place.stream)
        stream.remove(place.topic)
        if not stream.watches:
            del self._streams[place.stream]
            self._unread.pop(place.stream, None)


class _Place(NamedTuple):
    stream: StreamKey
    topic: Topic


@dataclass(slots=True, eq=False)
class _Watch:
    watch_id: str
    versions: dict[ObjectKey, str] = field(default_factory=dict)
    """What each follower has read, the longest ago first."""

    def item(self, topic: Topic) -> WatchItem:
        known = next(iter(self.versions.values()))
        return WatchItem(self.watch_id, topic.ref, topic.name_regexp, dict(topic.tags), known)


@dataclass(slots=True, eq=False)
class _Stream:
    bound: BoundTarget
    watches: dict[Topic, _Watch] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    """By watch id. An id is never used for another topic: a late event must not concern the wrong ones."""

    def add(self, topic: Topic, watch_id: str) -> _Watch:
        self.topics[watch_id] = topic
        watch = self.watches[topic] = _Watch(watch_id)
        return watch

    def remove(self, topic: Topic) -> None:
        del self.topics[self.watches.pop(topic).watch_id]
