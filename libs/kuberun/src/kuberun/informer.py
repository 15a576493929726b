"""One resource, watched once and kept in a cache, for any number of consumers.

    Source -> Watcher -> Cache -> Subscription (one per consumer) -> triggers

Each consumer has its own subscription, which holds at most one change per key: a slow consumer does not delay the
others, costs at most one entry per object, and always sees the newest state. No change is ever dropped. A metadata-only
informer is an informer over a metadata-only source (`kubebase.meta.metadata_of`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NoReturn, TypeVar

from kubebase.backoff import Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import happens_within
from kubebase.meta import ObjectKey
from kuberun.cache import Cache, Change, IndexFunction, Origin
from kuberun.packing import Packing
from kuberun.watch import Event, Listed, PagesEnded, ServerRecovery, Source, Watcher, WatchSettings

T = TypeVar("T")

_OLD_AT_A_TIME: Final = 500


class Subscription(Generic[T]):
    """The changes that one consumer has not seen yet, one per key, in the order in which the keys first changed.

    Objects that existed before are delivered in parts, after everything that happened meanwhile: a new object does not
    wait until 50,000 old ones were looked at, and other tasks run between two parts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[ObjectKey, Change[T]] = {}
        self._old: dict[ObjectKey, Change[T]] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending) + len(self._old)

    async def take(self) -> list[Change[T]]:
        """Return unseen changes, the newest among them; wait until there is at least one."""
        if self._old:
            await self._clock.sleep(0)
        await self._arrived.wait()
        return self._drain()

    async def take_within(self, seconds: float) -> list[Change[T]]:
        """Return unseen changes as `take` does; an empty list if none arrive within that time."""
        if self._old:
            return await self.take()
        await happens_within(self._clock, seconds, self._arrived)
        return self._drain()

    def put(self, changes: Iterable[Change[T]]) -> None:
        for change in changes:
            is_old = change.origin is Origin.LISTED and change.key not in self._pending
            merge_into(self._old if is_old or change.key in self._old else self._pending, change)
        if self._pending or self._old:
            self._arrived.set()

    def _drain(self) -> list[Change[T]]:
        changes = list(self._pending.values())
        self._pending.clear()
        changes += [self._old.pop(key) for key in list(itertools.islice(self._old, _OLD_AT_A_TIME))]
        if not self._old:
            self._arrived.clear()
        return changes


class Informer(Generic[T]):
    """Keeps `cache` equal to the server's collection."""

    def __init__(
        self,
        source: Source[T],
        *,
        clock: Clock,
        name: str,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        packing: Packing[T] | None = None,
        settings: WatchSettings | None = None,
        draw: Random = system_random,
        recovery: ServerRecovery | None = None,
    ) -> None:
        self.name = name
        self.cache: Cache[T] = Cache(indexes, packing)
        self._clock = clock
        self._watcher = Watcher(source, clock=clock, name=name, settings=settings, draw=draw, recovery=recovery)
        self._subscriptions: list[Subscription[T]] = []
        self._synced = asyncio.Event()

    @property
    def synced(self) -> bool:
        """Return whether the cache has held the whole collection once. It stays true while a watch is interrupted."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def age(self) -> float:
        """Return the seconds since the server last responded: the maximum age of the cache."""
        return self._watcher.age

    @property
    def unreachable(self) -> bool:
        """Return whether the server did not respond to the last attempt to list or watch."""
        return self._watcher.unreachable

    def subscribe(self) -> Subscription[T]:
        """Add a consumer. It first receives every object in the cache."""
        subscription: Subscription[T] = Subscription(self._clock)
        subscription.put(self.cache.everything(Origin.LISTED))
        self._subscriptions.append(subscription)
        return subscription

    def resync(self) -> None:
        """Deliver every object to every consumer again, without asking the server."""
        for subscription in self._subscriptions:
            subscription.put(self.cache.everything(Origin.RESYNCED))

    async def run(self) -> NoReturn:
        await self._watcher.run(self._deliver)

    def _deliver(self, event: Event[T]) -> None:
        changes = self.cache.apply(event)
        for subscription in self._subscriptions:
            subscription.put(changes)
        if isinstance(event, Listed | PagesEnded):
            self._synced.set()


def merge_into(pending: dict[ObjectKey, Change[T]], change: Change[T]) -> None:
    """Merge a new change into the pending ones, so that one change per key remains."""
    known = pending.get(change.key)
    if known is None:
        pending[change.key] = change
    elif merged := _merged(known, change):
        pending[change.key] = merged
    else:
        del pending[change.key]


def _merged(known: Change[T], newer: Change[T]) -> Change[T] | None:
    """Combine two changes of an object; None if the object was created and deleted unseen."""
    if known.old is None and newer.new is None:
        return None
    origin = known.origin if newer.origin is Origin.RESYNCED or known.old is None else newer.origin
    return Change(known.key, known.old, newer.new, origin)
