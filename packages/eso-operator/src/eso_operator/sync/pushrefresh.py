"""Refreshes ExternalSecrets when a provider says that something changed, instead of at the next interval.

    fetch -> follow -> [settle] -> one stream for each connection and identity, from where an earlier process was
    event -> its followers -> [pace] -> told, and in the queue -> the reconcile finds it due and reads the backend
    all who were told have read -> where the stream is goes on record -> the provider need not keep it any more

An event is a hint: it never brings a value, and it decides nothing but when to look. Polling goes on as if none of this
were there. A stream that cannot be held is said on its store, which stays as ready as it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from eso_operator.providers.subscriptions import Changed, Place, StreamKey, StreamState, Subscriptions, stream_name
from eso_operator.sync.checkpoints import Checkpoints
from eso_operator.sync.dependencies import OnObject, on_object
from eso_operator.sync.followers import Followers, Reading, Sight, Wish
from eso_operator.sync.pace import Pace
from eso_operator.sync.reporting import cause_of
from eso_operator.sync.resumetokens import ResumeTokens
from eso_wire.values import ChangeType
from kuberun.clock import Clock
from kuberun.deadline import happens_within
from kuberun.meta import ObjectKey
from kuberun.workqueue import Request, WorkQueue

_log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 1.0
"""Followers come in crowds: what a stream watches changes at most so often."""
SAVE_SECONDS: Final = 60.0
"""Where streams are is written at most so often, however many events there are."""

StoreListener = Callable[[OnObject], None]


class PushRefresh:
    """A service of the manager. Only those who reconcile follow, so a standby opens no streams."""

    def __init__(
        self, subscriptions: Subscriptions, clock: Clock, *, pace: Pace, followers: Followers, tokens: ResumeTokens
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._pace = pace
        self._followers = followers
        self._tokens = tokens
        self._checkpoints = Checkpoints()
        self._queues: list[WorkQueue] = []
        self._troubles: dict[StreamKey, tuple[OnObject, str]] = {}
        self._listeners: list[StoreListener] = []
        self._wishes = asyncio.Event()
        self._asked = asyncio.Event()
        subscriptions.listen(self._heard_of_stream)
        subscriptions.listen_to_rejections(self._renew_by_reading)

    def feed(self, queue: WorkQueue) -> None:
        """The queue of those who follow."""
        self._queues.append(queue)

    def listen(self, listener: StoreListener) -> None:
        """Call it when `trouble` has something else to say about a store."""
        self._listeners.append(listener)

    def follow(self, key: ObjectKey, sights: Sequence[Sight], reading: Reading = Reading.PART) -> None:
        """It goes by these, and wants to be told when they change."""
        self._followers.follow(key, sights, reading)
        for sight in sights:
            self._subscriptions.renew(sight.bound)
        self._wishes.set()

    def leave(self, key: ObjectKey) -> None:
        self._followers.leave(key)
        self._checkpoints.left(key)
        self._wishes.set()

    def stores_of(self, key: ObjectKey) -> frozenset[OnObject]:
        """The stores that it hears changes of."""
        return frozenset(on_object(bound.target.store) for bound in self._followers.targets_of(key))

    def is_covered(self, key: ObjectKey) -> bool:
        """Whether it would hear of every change of what it has read: the streams it needs are there, and work."""
        if not self._followers.hears_of_all(key):
            return False
        return all(map(self._subscriptions.works, self._followers.streams_of([key])))

    def trouble(self, store: OnObject) -> str | None:
        """Why changes of this store are not heard of, although its provider offers that; None if they are."""
        found = sorted(why for concerned, why in self._troubles.values() if concerned == store)
        return found[0] if found else None

    def told_at(self, key: ObjectKey) -> float | None:
        """When (monotonic) it was told of a change that it has not read yet."""
        return self._followers.told_at(key)

    def heard(self, key: ObjectKey, at: float | None) -> None:
        """It has read the change it was told of then."""
        self._followers.heard(key, at)
        if at is not None:
            self._checkpoints.read(key, at)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._subscriptions.run())
                group.create_task(self._fulfil())
                group.create_task(self._listen())
                group.create_task(self._let_through())
                group.create_task(self._keep_places())
        finally:
            places = self._subscriptions.places()
            await self._save(places, self._settled(places))

    # --- streams as their followers want them -------------------------------------------------------------------------

    async def _fulfil(self) -> None:
        while True:
            await self._wishes.wait()
            self._wishes.clear()
            if touched := self._followers.take_touched():
                await self._tokens.load()
                self._watch(touched)
                await self._clock.sleep(SETTLE_SECONDS)

    def _watch(self, touched: set[StreamKey]) -> None:
        wishes = {stream: self._followers.wish(stream) for stream in touched}
        for stream, wish in wishes.items():  # first, so that there is room for others
            if wish is None:
                self._subscriptions.drop(stream)
                self._checkpoints.forget(stream)
                self._settle(stream)
        for stream, wish in wishes.items():
            if wish is not None:
                self._want(stream, wish)

    def _want(self, stream: StreamKey, wish: Wish) -> None:
        """From where an earlier process was. If that cannot be told any more, those who rely on it read once."""
        name, unread = stream_name(wish.bound), self._followers.take_unread(stream)
        if stream in self._subscriptions:
            self._subscriptions.want(wish.bound, wish.items)
            resumes = self._subscriptions.is_at_start(stream)
        else:
            token = self._tokens.take(name)
            self._subscriptions.want(wish.bound, wish.items, resume_token=token)
            resumes = token != ""
        if not resumes and self._tokens.was_heard(name):
            self._ask(unread, stream)

    # --- events -------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            changed = await self._subscriptions.events.get()
            self._ask(self._concerned(changed), changed.key)
            self._subscriptions.handled(changed)

    def _ask(self, keys: Iterable[ObjectKey], stream: StreamKey) -> None:
        now = self._clock.monotonic()
        for key in keys:
            self._pace.ask(key, stream, now)
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

    # --- where streams are --------------------------------------------------------------------------------------------

    async def _keep_places(self) -> None:
        while True:
            await self._subscriptions.advanced.wait()
            await self._clock.sleep(SAVE_SECONDS)
            self._subscriptions.advanced.clear()
            places = self._subscriptions.places()
            settled = self._settled(places)
            if self._subscriptions.moved.is_set():
                self._subscriptions.moved.clear()
                await self._save(places, settled)
            # Last: what a provider forgets should not be asked for again. Where only heartbeats moved a place there is
            # no newer record, and a process that asks from the old one is told to read everything.
            self._subscriptions.acknowledge(settled)
            if any(settled.get(stream) != place.token for stream, place in places.items()):
                self._subscriptions.moved.set()
                self._subscriptions.advanced.set()

    def _settled(self, places: dict[StreamKey, Place]) -> dict[StreamKey, str]:
        """Up to where all who were told have read. Further than that, a crash would lose what they were told."""
        settled: dict[StreamKey, str] = {}
        for _ in range(2):  # an earlier mark first, then where streams are now
            self._mark(places)
            settled |= {
                stream: token for stream in places if (token := self._checkpoints.take_settled(stream)) is not None
            }
        return settled

    async def _save(self, places: dict[StreamKey, Place], settled: dict[StreamKey, str]) -> None:
        names = Counter(place.name for place in places.values())
        # Of two with one name, while credentials change, each may be behind.
        alone = {
            place.name: settled[stream]
            for stream, place in places.items()
            if names[place.name] == 1 and stream in settled
        }
        if alone:
            await self._tokens.save(alone)

    def _mark(self, places: dict[StreamKey, Place]) -> None:
        """Where every stream is, and who has to read before it may be said to be there."""
        if not self._subscriptions.events.empty():
            return
        now = self._clock.monotonic()
        owed: dict[StreamKey, dict[ObjectKey, float]] = {stream: {} for stream in places}
        for key in self._followers.told():
            for stream in self._followers.streams_of([key]) & places.keys():
                owed[stream][key] = self._followers.told_at(key) or now
        for key in self._pace.waiting:
            for stream in self._followers.streams_of([key]) & places.keys():
                owed[stream][key] = now
        for stream in places.keys() - self._checkpoints.marked():
            self._checkpoints.mark(stream, places[stream].token, owed[stream])

    # --- streams that break -------------------------------------------------------------------------------------------

    def _heard_of_stream(self, stream: StreamKey, state: StreamState) -> None:
        """Once when it breaks and once when it works again."""
        wish = self._followers.wish(stream)
        if state.error is None or wish is None:
            self._settle(stream)
            return
        if stream in self._troubles:
            return
        target = wish.bound.target
        self._troubles[stream] = (on_object(target.store), f"{cause_of(state.error)}: {state.error.message}")
        _log.warning(
            "push refresh degraded: changes are found at the refresh interval",
            store=f"{target.store.kind} {target.store.namespace}/{target.store.name}",
            provider=target.endpoint.label,
            reason=state.error.reason.value,
            why=state.error.message,
        )
        self._tell(on_object(target.store))

    def _renew_by_reading(self, stream: StreamKey) -> None:
        """Let one follower read: reading gets new credentials, and hands them to the stream."""
        self._ask(self._followers.all_of(stream)[:1], stream)

    def _settle(self, stream: StreamKey) -> None:
        """It works, or nobody needs it any more."""
        if stream not in self._troubles:
            return
        store, _ = self._troubles.pop(stream)
        _log.info("push refresh works again", store=f"{store.kind} {store.key}")
        self._tell(store)

    def _tell(self, store: OnObject) -> None:
        for listener in self._listeners:
            listener(store)
