"""Which stores are ready, told to whoever holds the operator and wants to know (`wiring.Operator.stores`).

    StoreReconciler -> StoreHealth.report -> HealthFeed, one for each listener

Controllers do not go by this: they hear of changes of a store through `sync.wakes`, and read its condition. A feed
holds at most one change for each store, so a slow listener costs no memory and sees the newest state.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NamedTuple

from kuberun.conditions import ConditionStatus
from kuberun.meta import Condition, ObjectKey


class Readiness(Enum):
    """What is known of a store."""

    READY = "ready"
    NOT_READY = "not ready"
    UNKNOWN = "unknown"


class StoreIdentity(NamedTuple):
    """One store, of any kind; the namespace of a cluster-scoped one is empty."""

    group: str
    kind: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class HealthChange(NamedTuple):
    """`readiness` None means that the store is gone."""

    store: StoreIdentity
    readiness: Readiness | None


class HealthFeed:
    """What one listener has not seen yet, one change for each store."""

    def __init__(self) -> None:
        self._pending: dict[StoreIdentity, Readiness | None] = {}
        self._arrived = asyncio.Event()

    async def take(self) -> list[HealthChange]:
        """Everything unseen; waits until there is something."""
        await self._arrived.wait()
        changes = [HealthChange(store, readiness) for store, readiness in self._pending.items()]
        self._pending.clear()
        self._arrived.clear()
        return changes

    def put(self, change: HealthChange) -> None:
        self._pending[change.store] = change.readiness
        self._arrived.set()


class StoreHealth:
    """The present state of every store that was looked at."""

    def __init__(self) -> None:
        self._known: dict[StoreIdentity, Readiness] = {}
        self._feeds: list[HealthFeed] = []

    def of(self, store: StoreIdentity) -> Readiness | None:
        return self._known.get(store)

    def report(self, store: StoreIdentity, readiness: Readiness) -> None:
        """Say how a store is; listeners hear of changes only."""
        if self._known.get(store) is not readiness:
            self._known[store] = readiness
            self._tell(HealthChange(store, readiness))

    def forget(self, store: StoreIdentity) -> None:
        """The store is gone."""
        if self._known.pop(store, None) is not None:
            self._tell(HealthChange(store, None))

    def subscribe(self) -> HealthFeed:
        """A new listener; it first hears of every store there is."""
        feed = HealthFeed()
        for store, readiness in self._known.items():
            feed.put(HealthChange(store, readiness))
        self._feeds.append(feed)
        return feed

    def unsubscribe(self, feed: HealthFeed) -> None:
        self._feeds.remove(feed)

    def _tell(self, change: HealthChange) -> None:
        for feed in self._feeds:
            feed.put(change)


def readiness_of(condition: Condition | None) -> Readiness:
    """What a Ready condition means to those who want to use the store."""
    if condition is None or condition.status == ConditionStatus.UNKNOWN:
        return Readiness.UNKNOWN
    return Readiness.READY if condition.status == ConditionStatus.TRUE else Readiness.NOT_READY
