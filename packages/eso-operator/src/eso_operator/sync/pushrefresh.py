"""Refreshes ExternalSecrets when a provider says that something changed, instead of at the next interval.

    fetch -> follow -> [settle] -> one stream for each connection and identity
    event -> its followers -> [pace] -> told, and in the queue -> the reconcile finds it due and reads the backend

An event is a hint: it never brings a value, and it decides nothing but when to look. Polling goes on as if none of this
were there; a stream that fails is said in the log and the metrics, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from eso_operator.providers.subscriptions import Changed, StreamKey, StreamState, Subscriptions
from eso_operator.sync.followers import Followers, Sight
from eso_operator.sync.pace import Pace
from eso_wire.values import ChangeType
from kuberun.clock import Clock
from kuberun.deadline import happens_within
from kuberun.meta import ObjectKey
from kuberun.workqueue import Request, WorkQueue

_log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 1.0
"""Followers come in crowds: what a stream watches changes at most so often."""


class PushRefresh:
    """A service of the manager. Only those who reconcile follow, so a standby opens no streams."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock, *, pace: Pace, followers: Followers) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._pace = pace
        self._followers = followers
        self._queues: list[WorkQueue] = []
        self._degraded: set[StreamKey] = set()
        self._wishes = asyncio.Event()
        self._asked = asyncio.Event()
        subscriptions.listen(self._heard_of_stream)

    def feed(self, queue: WorkQueue) -> None:
        """The queue of those who follow."""
        self._queues.append(queue)

    def follow(self, key: ObjectKey, sights: Sequence[Sight]) -> None:
        """It has read these, and wants to be told when they change."""
        self._followers.follow(key, sights)
        for sight in sights:
            self._subscriptions.renew(sight.bound)
        self._wishes.set()

    def leave(self, key: ObjectKey) -> None:
        self._followers.leave(key)
        self._wishes.set()

    def told_at(self, key: ObjectKey) -> float | None:
        """When (monotonic) it was told of a change that it has not read yet."""
        return self._followers.told_at(key)

    def heard(self, key: ObjectKey, at: float | None) -> None:
        """It has read the change it was told of then."""
        self._followers.heard(key, at)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._subscriptions.run())
            group.create_task(self._fulfil())
            group.create_task(self._listen())
            group.create_task(self._let_through())

    async def _fulfil(self) -> None:
        """Streams as their followers want them."""
        while True:
            await self._wishes.wait()
            self._wishes.clear()
            if touched := self._followers.take_touched():
                self._watch(touched)
                await self._clock.sleep(SETTLE_SECONDS)

    def _watch(self, touched: set[StreamKey]) -> None:
        wishes = {stream: self._followers.wish(stream) for stream in touched}
        for stream, wish in wishes.items():  # first, so that there is room for others
            if wish is None:
                self._subscriptions.drop(stream)
                self._degraded.discard(stream)
        for wish in wishes.values():
            if wish is not None:
                self._subscriptions.want(wish.bound, wish.items)

    async def _listen(self) -> None:
        while True:
            changed = await self._subscriptions.events.get()
            now = self._clock.monotonic()
            for key in self._concerned(changed):
                self._pace.ask(key, changed.key, now)
            self._asked.set()

    def _concerned(self, changed: Changed) -> list[ObjectKey]:
        match changed.event.type:
            case ChangeType.UPDATED | ChangeType.DELETED:
                return self._followers.followers_of(changed.key, changed.event.watch_ids)
            case ChangeType.RESYNC:
                return self._followers.all_of(changed.key)
            case ChangeType.CONDITION:
                return []  # stores are validated at their own interval

    async def _let_through(self) -> None:
        while True:
            self._asked.clear()
            now = self._clock.monotonic()
            for key in self._pace.due(now):
                if self._followers.tell(key, now):
                    for queue in self._queues:
                        queue.add(Request(key, "its provider says that its backend changed"))
            then = self._pace.next_at()
            if then is None:
                await self._asked.wait()
            else:
                await happens_within(self._clock, then - now, self._asked)

    def _heard_of_stream(self, stream: StreamKey, state: StreamState) -> None:
        """Once when it breaks and once when it works again."""
        wish = self._followers.wish(stream)
        if wish is None or (state.error is not None) is (stream in self._degraded):
            return
        store = wish.bound.target.store
        named = _log.bind(
            store=f"{store.kind} {store.namespace}/{store.name}", provider=wish.bound.target.endpoint.label
        )
        if state.error is None:
            self._degraded.discard(stream)
            named.info("push refresh works again")
        else:
            self._degraded.add(stream)
            named.warning(
                "push refresh degraded: changes are found at the refresh interval",
                reason=state.error.reason.value,
                why=state.error.message,
            )
