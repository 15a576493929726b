"""Refreshes ExternalSecrets when a provider announces a change, before their refresh interval elapses.

    fetch -> follow -> [settle] -> one stream for each connection and identity, resumed where a former process stopped
    event -> its followers -> [pace] -> notified and queued -> the reconcile is due and reads the backend
    all notified followers have read -> the position of the stream is saved -> and acknowledged to the provider

An event is a hint: it carries no value and only decides when to read. Polling at the refresh interval continues. A
condition of the store reports a broken stream; the store stays Ready.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from eso_operator.changes.checkpoints import Checkpoints
from eso_operator.changes.followers import Followers, Wish
from eso_operator.changes.pace import Pace
from eso_operator.changes.resumetokens import NoTokens, ResumeTokens
from eso_operator.changes.sights import Reading, Sight
from eso_operator.changes.subscriptions import Changed, Place, StreamKey, StreamState, Subscriptions, stream_name
from eso_operator.dependencies.dependencies import OnObject, on_object
from eso_operator.providers.errors import cause_of
from eso_wire.values import ChangeType
from kubebase.clock import Clock
from kubebase.deadline import happens_within
from kubebase.meta import ObjectKey
from kuberun.workqueue import ReconcileRequest, WorkQueue

_log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 1.0
"""The shortest time between two updates of what streams watch, because many followers arrive at once."""
SAVE_SECONDS: Final = 60.0
"""The shortest time between two writes of the stream positions."""

_AT_A_TIME: Final = 500
"""A RESYNC may concern 50,000 followers: other tasks run between some hundred of them."""

StoreListener = Callable[[OnObject], None]


class ChangeFeed:
    """Push refresh; a service of the manager. Only reconciles add followers, so a standby opens no streams."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        clock: Clock,
        *,
        pace: Pace,
        followers: Followers,
        tokens: ResumeTokens | NoTokens,
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
        followers.memory.on_forget(lambda key, _: self._forgotten(key))
        subscriptions.listen(self._heard_of_stream)
        subscriptions.listen_to_rejections(self._renew_by_reading)

    def feed(self, queue: WorkQueue) -> None:
        """Add a queue that gets a request for each follower of a change."""
        self._queues.append(queue)

    def listen(self, listener: StoreListener) -> None:
        """Call the listener with a store whenever the result of `trouble` for it changes."""
        self._listeners.append(listener)

    def follow(self, key: ObjectKey, sights: Sequence[Sight], reading: Reading = Reading.PART) -> None:
        """Tell the object when one of these reads changes. Replaces its former reads."""
        self._followers.follow(key, sights, reading)
        for sight in sights:
            self._subscriptions.renew(sight.bound)
        self._wishes.set()

    def leave(self, key: ObjectKey) -> None:
        self._followers.leave(key)
        self._checkpoints.left(key)
        self._wishes.set()

    def _forgotten(self, key: ObjectKey) -> None:
        """Undo what points to a forgotten object, besides the index of followers."""
        self._checkpoints.left(key)
        self._pace.forget(key)
        self._wishes.set()

    def stores_of(self, key: ObjectKey) -> frozenset[OnObject]:
        """Return the stores whose changes the object follows."""
        return frozenset(on_object(bound.resolved.store) for bound in self._followers.stores_of(key))

    def is_covered(self, key: ObjectKey) -> bool:
        """Return whether working streams announce every change of everything that the object has read."""
        if not self._followers.hears_of_all(key):
            return False
        return all(map(self._subscriptions.works, self._followers.streams_of([key])))

    def trouble(self, store: OnObject) -> str | None:
        """Return why the change stream of a store is broken; None if it works or none is needed."""
        found = sorted(why for concerned, why in self._troubles.values() if concerned == store)
        return found[0] if found else None

    def told_at(self, key: ObjectKey) -> float | None:
        """Return when (monotonic) the object was notified of a change that it has not read yet."""
        return self._followers.told_at(key)

    def heard(self, key: ObjectKey, at: float | None) -> None:
        """Record that the object has read the change of that time."""
        self._followers.heard(key, at)
        if at is not None:
            self._checkpoints.read(key, at)

    async def run(self) -> None:
        """Run the streams until cancelled, then save their positions."""
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
        for stream, wish in wishes.items():  # drop streams first, to make room for new ones
            if wish is None:
                self._subscriptions.drop(stream)
                self._checkpoints.forget(stream)
                self._settle(stream)
        for stream, wish in wishes.items():
            if wish is not None:
                self._want(stream, wish)

    def _want(self, stream: StreamKey, wish: Wish) -> None:
        """Open or update a stream. If it cannot resume where a former process stopped, unread followers read once."""
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
            keys = self._concerned(changed)
            for start in range(0, len(keys), _AT_A_TIME):
                self._ask(keys[start : start + _AT_A_TIME], changed.key)
                await self._clock.sleep(0)
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
                        queue.add(ReconcileRequest(key, "its provider says that its backend changed"))
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
            # Acknowledge after saving, because the provider forgets acknowledged events. If only heartbeats moved a
            # position, the saved one is older; a process that resumes from it gets a RESYNC.
            self._subscriptions.acknowledge(settled)
            if any(settled.get(stream) != place.token for stream, place in places.items()):
                self._subscriptions.moved.set()
                self._subscriptions.advanced.set()

    def _settled(self, places: dict[StreamKey, Place]) -> dict[StreamKey, str]:
        """Return the positions up to which all notified followers have read.

        A later one would lose events in a crash.
        """
        settled: dict[StreamKey, str] = {}
        for _ in range(2):  # first the former marks, then the current positions
            self._mark(places)
            settled |= {
                stream: token for stream in places if (token := self._checkpoints.take_settled(stream)) is not None
            }
        return settled

    async def _save(self, places: dict[StreamKey, Place], settled: dict[StreamKey, str]) -> None:
        names = Counter(place.name for place in places.values())
        # While credentials change, two streams can have one name, and either may be behind: save neither.
        alone = {
            place.name: settled[stream]
            for stream, place in places.items()
            if names[place.name] == 1 and stream in settled
        }
        if alone:
            await self._tokens.save(alone)

    def _mark(self, places: dict[StreamKey, Place]) -> None:
        """Mark the position of each unmarked stream, with the followers that must still read before it."""
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
        """Record and log a stream that breaks or works again; notify the listeners once for each."""
        wish = self._followers.wish(stream)
        if state.error is None or wish is None:
            self._settle(stream)
            return
        if stream in self._troubles:
            return
        resolved = wish.bound.resolved
        self._troubles[stream] = (on_object(resolved.store), f"{cause_of(state.error)}: {state.error.message}")
        _log.warning(
            "push refresh degraded: changes are found at the refresh interval",
            store=f"{resolved.store.kind} {resolved.store.namespace}/{resolved.store.name}",
            provider=resolved.endpoint.label,
            reason=state.error.reason.value,
            why=state.error.message,
        )
        self._tell(on_object(resolved.store))

    def _renew_by_reading(self, stream: StreamKey) -> None:
        """Let one follower read: its read renews the credentials and hands them to the stream."""
        self._ask(self._followers.all_of(stream)[:1], stream)

    def _settle(self, stream: StreamKey) -> None:
        """Clear the trouble of a stream that works again or has lost its last follower."""
        if stream not in self._troubles:
            return
        store, _ = self._troubles.pop(stream)
        _log.info("push refresh works again", store=f"{store.kind} {store.key}")
        self._tell(store)

    def _tell(self, store: OnObject) -> None:
        for listener in self._listeners:
            listener(store)
