"""The change stream of one store. Its tokens are `FEED POSITION`: the feed of a process, and a position in its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from eso_provider_gcp.api import Api
from eso_provider_gcp.changes.feed import Feed
from eso_provider_gcp.changes.subscription import Change, Subscription
from eso_provider_gcp.identities import Identity
from eso_sdk.matching import Matcher
from eso_wire.values import ChangeEvent, ChangeType, FindQuery, Heartbeat, WatchItem


class Watcher:
    """Reports the changes that a subscription announces."""

    def __init__(self, api: Api, identity: Identity, subscription: str) -> None:
        self._api = api
        name = subscription if "/" in subscription else f"projects/{api.project}/subscriptions/{subscription}"
        feeds = api.runtime.feeds
        key = (identity.key, name)
        feed = feeds.get(key)
        if feed is None:
            feeds[key] = feed = Feed(Subscription(name, identity, api.clock), api.clock)
        self._feed: Feed = feed
        self._feed.users += 1

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield changes of the watched keys, without end."""
        feed, topics = self._feed, _Topics(items, self._api.location)
        feed.subscription.observe = self._api.observe
        with feed.listening(self, topics.concerned):
            position = self._position(resume_token) if resume_token else feed.recent()
            if position is None:
                # Another process has read this subscription: what it reported is not known here.
                position = feed.position
                yield ChangeEvent(ChangeType.RESYNC, topics.all_ids, resume_token=self._token(position))
            yield Heartbeat(self._api.clock.now(), self._token(position))
            while True:
                moved = feed.moved
                entries = feed.since(position)
                if entries is None:
                    position = feed.position
                    yield ChangeEvent(ChangeType.RESYNC, topics.all_ids, resume_token=self._token(position))
                for entry in entries or ():
                    position = entry.position
                    if ids := topics.watching(entry.change):
                        yield ChangeEvent(
                            entry.change.type,
                            ids,
                            entry.change.version,
                            self._api.clock.now(),
                            resume_token=self._token(position),
                        )
                feed.check()
                if position == feed.position:
                    await moved.wait()

    async def acknowledged(self, resume_token: str) -> None:
        if (position := self._position(resume_token)) is not None:
            await self._feed.acknowledge(self, position)

    async def close(self) -> None:
        """Leave the feed; the last store closes it."""
        self._feed.leave(self)
        self._feed.users -= 1
        if not self._feed.users:
            feeds = self._api.runtime.feeds
            for key in [key for key, feed in feeds.items() if feed is self._feed]:
                del feeds[key]
            await self._feed.close()

    def _token(self, position: int) -> str:
        return f"{self._feed.name} {position}"

    def _position(self, token: str) -> int | None:
        """Return the position that a token of this feed names; None if it is of another one, or forgotten."""
        name, _, position = token.partition(" ")
        if name != self._feed.name or not position.isdecimal() or self._feed.since(int(position)) is None:
            return None
        return int(position)


class _Topics:
    """The watched keys and queries of one stream."""

    def __init__(self, items: Sequence[WatchItem], location: str) -> None:
        self.all_ids = tuple(item.watch_id for item in items)
        self._location = location
        self._by_key: dict[str, list[str]] = {}
        self._queries: list[tuple[str, Matcher]] = []
        for item in items:
            if item.ref is not None:
                self._by_key.setdefault(item.ref.key, []).append(item.watch_id)
            else:
                # A message has no labels, so a query by labels is notified of every secret.
                self._queries.append((item.watch_id, Matcher(FindQuery(name_regexp=item.name_regexp))))

    def concerned(self, change: Change) -> bool:
        return bool(self.watching(change))

    def watching(self, change: Change) -> tuple[str, ...]:
        if change.location != self._location:
            return ()
        found = [watch_id for watch_id, matcher in self._queries if matcher.matches(change.key)]
        return (*self._by_key.get(change.key, ()), *found)
