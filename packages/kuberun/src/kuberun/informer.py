"""One resource, watched once and kept in a store, for any number of consumers.

    Source -> Watcher -> Store -> Subscription (one per consumer) -> triggers

Each consumer has a subscription of its own, which holds at most one change per key: a slow consumer delays nobody,
costs at most one entry per object, and always finds the newest state. Nothing is ever dropped.
A metadata-only informer is an informer over a metadata-only source (`kuberun.meta.metadata_of`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Generic, NoReturn, TypeVar

from kuberun.backoff import Random, system_random
from kuberun.cache import Change, IndexFunction, Origin, Store
from kuberun.clock import Clock
from kuberun.deadline import happens_within
from kuberun.meta import ObjectKey
from kuberun.watch import Event, Listed, Source, Watcher, WatchSettings

T = TypeVar("T")


class Subscription(Generic[T]):
    """What one consumer has not seen yet, one change per key, in the order the keys changed first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[ObjectKey, Change[T]] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    async def take(self) -> list[Change[T]]:
        """Everything unseen; waits until there is something."""
        await self._arrived.wait()
        return self._drain()

    async def take_within(self, seconds: float) -> list[Change[T]]:
        """Everything unseen; nothing, if nothing comes in that time."""
        await happens_within(self._clock, seconds, self._arrived)
        return self._drain()

    def put(self, changes: Iterable[Change[T]]) -> None:
        merge_into(self._pending, changes)
        if self._pending:
            self._arrived.set()

    def _drain(self) -> list[Change[T]]:
        changes = list(self._pending.values())
        self._pending.clear()
        self._arrived.clear()
        return changes


class Informer(Generic[T]):
    """Keeps `store` equal to what the server has, as soon as the network allows."""

    def __init__(
        self,
        source: Source[T],
        *,
        clock: Clock,
        name: str,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        settings: WatchSettings | None = None,
        draw: Random = system_random,
    ) -> None:
        self.name = name
        self.store: Store[T] = Store(indexes)
        self._clock = clock
        self._watcher = Watcher(source, clock=clock, name=name, settings=settings, draw=draw)
        self._subscriptions: list[Subscription[T]] = []
        self._synced = asyncio.Event()

    @property
    def synced(self) -> bool:
        """Whether the store has held the whole collection once. It stays true while a broken watch is repaired."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def age(self) -> float:
        """Seconds since the server's last sign of life: how old the store may be."""
        return self._watcher.age

    def subscribe(self) -> Subscription[T]:
        """A new consumer; it first gets every object there is."""
        subscription: Subscription[T] = Subscription(self._clock)
        subscription.put(self.store.everything(Origin.LISTED))
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription[T]) -> None:
        self._subscriptions.remove(subscription)

    def resync(self) -> None:
        """Deliver every object to every consumer once more, without asking the server."""
        for subscription in self._subscriptions:
            subscription.put(self.store.everything(Origin.RESYNCED))

    async def run(self) -> NoReturn:
        await self._watcher.run(self._deliver)

    def _deliver(self, event: Event[T]) -> None:
        changes = self.store.apply(event)
        for subscription in self._subscriptions:
            subscription.put(changes)
        if isinstance(event, Listed):
            self._synced.set()


def merge_into(pending: dict[ObjectKey, Change[T]], changes: Iterable[Change[T]]) -> None:
    """Add changes to those that somebody has not dealt with yet, so that one is left for each key."""
    for change in changes:
        known = pending.get(change.key)
        if known is None:
            pending[change.key] = change
        elif merged := _merged(known, change):
            pending[change.key] = merged
        else:
            del pending[change.key]


def _merged(known: Change[T], newer: Change[T]) -> Change[T] | None:
    """Two changes seen as one; None when the object came and went unseen."""
    if known.old is None and newer.new is None:
        return None
    origin = known.origin if newer.origin is Origin.RESYNCED or known.old is None else newer.origin
    return Change(known.key, known.old, newer.new, origin)
