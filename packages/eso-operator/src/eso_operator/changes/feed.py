"""Refreshes ExternalSecrets when a provider announces a change, before their refresh interval elapses.

    fetch -> subscribe -> [debounce] -> a stream for each connection and identity, resumed after the last saved position
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

from eso_operator.changes.followers import Followers, ReadState, WatchedKey, WatchSet
from eso_operator.changes.pace import Pace
from eso_operator.changes.resumetokens import Checkpoints, NoTokens, ResumeTokens
from eso_operator.changes.subscriptions import (
    Changed,
    StreamKey,
    StreamPosition,
    StreamState,
    Subscriptions,
    stream_name,
)
from eso_operator.dependencies import OnObject, on_object
from eso_operator.providers.errors import cause_of
from eso_wire.values import ChangeType
from kubebase.clock import Clock
from kubebase.deadline import happens_within
from kubebase.meta import ObjectKey
from kuberun.workqueue import ReconcileRequest, WorkQueue

_log = structlog.get_logger(__name__)

DEBOUNCE_SECONDS: Final = 1.0
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
        self._changed = asyncio.Event()
        self._requested = asyncio.Event()
        followers.memory.on_forget(lambda key, _: self._forget(key))
        subscriptions.listen(self._stream_state_changed)
        subscriptions.listen_to_rejections(self._renew_by_reading)

    def feed(self, queue: WorkQueue) -> None:
        """Add a queue that gets a request for each follower of a change."""
        self._queues.append(queue)

    def listen(self, listener: StoreListener) -> None:
        """Call the listener with a store whenever the result of `trouble` for it changes."""
        self._listeners.append(listener)

    def subscribe(
        self,
        key: ObjectKey,
        watched_keys: Sequence[WatchedKey],
        read_state: ReadState = ReadState.PART,
    ) -> None:
        """Notify the object when one of these reads changes. Replaces its former reads."""
        self._followers.subscribe(key, watched_keys, read_state)
        for watched in watched_keys:
            self._subscriptions.renew(watched.bound)
        self._changed.set()

    def unsubscribe(self, key: ObjectKey) -> None:
        self._followers.unsubscribe(key)
        self._checkpoints.left(key)
        self._changed.set()

    def _forget(self, key: ObjectKey) -> None:
        """Undo what points to a forgotten object, besides the index of followers."""
        self._checkpoints.left(key)
        self._pace.forget(key)
        self._changed.set()

    def stores_of(self, key: ObjectKey) -> frozenset[OnObject]:
        """Return the stores whose changes the object follows."""
        return frozenset(on_object(bound.resolved.store) for bound in self._followers.stores_of(key))

    def is_covered(self, key: ObjectKey) -> bool:
        """Return whether working streams announce every change of everything that the object has read."""
        if not self._followers.watches_all(key):
            return False
        return all(map(self._subscriptions.works, self._followers.streams_of([key])))

    def trouble(self, store: OnObject) -> str | None:
        """Return why the change stream of a store is broken; None if it works or none is needed."""
        found = sorted(why for concerned, why in self._troubles.values() if concerned == store)
        return found[0] if found else None

    def notified_at(self, key: ObjectKey) -> float | None:
        """Return when (monotonic) the object was notified of a change that it has not read yet."""
        return self._followers.notified_at(key)

    def mark_read(self, key: ObjectKey, at: float | None) -> None:
        """Record that the object has read the change of that time."""
        self._followers.mark_read(key, at)
        if at is not None:
            self._checkpoints.read(key, at)

    async def run(self) -> None:
        """Run the streams until cancelled, then save their positions."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._subscriptions.run())
                group.create_task(self._watch_touched())
                group.create_task(self._listen())
                group.create_task(self._release_due())
                group.create_task(self._save_positions())
        finally:
            positions = self._subscriptions.positions()
            await self._save(positions, self._read_positions(positions))

    # --- streams as their followers want them -------------------------------------------------------------------------

    async def _watch_touched(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if touched := self._followers.take_touched():
                await self._tokens.load()
                self._watch(touched)
                await self._clock.sleep(DEBOUNCE_SECONDS)

    def _watch(self, touched: set[StreamKey]) -> None:
        watch_sets = {stream: self._followers.watch_set(stream) for stream in touched}
        for stream, watch_set in watch_sets.items():  # drop streams first, to make room for new ones
            if watch_set is None:
                self._subscriptions.drop(stream)
                self._checkpoints.forget(stream)
                self._clear_trouble(stream)
        for stream, watch_set in watch_sets.items():
            if watch_set is not None:
                self._watch_stream(stream, watch_set)

    def _watch_stream(self, stream: StreamKey, watch_set: WatchSet) -> None:
        """Open or update a stream. If it cannot resume where a former process stopped, unread followers read once."""
        name, unread = stream_name(watch_set.bound), self._followers.take_unread(stream)
        if stream in self._subscriptions:
            self._subscriptions.want(watch_set.bound, watch_set.items)
            resumes = self._subscriptions.is_at_start(stream)
        else:
            token = self._tokens.take(name)
            self._subscriptions.want(watch_set.bound, watch_set.items, resume_token=token)
            resumes = token != ""
        if not resumes and self._tokens.was_open(name):
            self._request_reads(unread, stream)

    # --- events -------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            changed = await self._subscriptions.events.get()
            keys = self._followers_of(changed)
            for start in range(0, len(keys), _AT_A_TIME):
                self._request_reads(keys[start : start + _AT_A_TIME], changed.key)
                await self._clock.sleep(0)
            self._subscriptions.handled(changed)

    def _request_reads(self, keys: Iterable[ObjectKey], stream: StreamKey) -> None:
        now = self._clock.monotonic()
        for key in keys:
            self._pace.request(key, stream, now)
        self._requested.set()

    def _followers_of(self, changed: Changed) -> list[ObjectKey]:
        match changed.event.type:
            case ChangeType.UPDATED | ChangeType.DELETED:
                return self._followers.followers_of(changed.key, changed.event.watch_ids)
            case ChangeType.RESYNC:
                return self._followers.all_of(changed.key)
            case ChangeType.CONDITION:
                return []  # stores are validated at their own interval

    async def _release_due(self) -> None:
        while True:
            self._requested.clear()
            now = self._clock.monotonic()
            for key in self._pace.due(now):
                if self._followers.notify(key, now):
                    for queue in self._queues:
                        queue.add(ReconcileRequest(key, "its provider announced a change"))
            then = self._pace.next_at()
            if then is None:
                await self._requested.wait()
            else:
                await happens_within(self._clock, then - now, self._requested)

    # --- where streams are --------------------------------------------------------------------------------------------

    async def _save_positions(self) -> None:
        while True:
            await self._subscriptions.advanced.wait()
            await self._clock.sleep(SAVE_SECONDS)
            self._subscriptions.advanced.clear()
            positions = self._subscriptions.positions()
            read_up_to = self._read_positions(positions)
            if self._subscriptions.moved.is_set():
                self._subscriptions.moved.clear()
                await self._save(positions, read_up_to)
            # Acknowledge after saving, because the provider forgets acknowledged events. If only heartbeats moved a
            # position, the saved one is older; a process that resumes from it gets a RESYNC.
            self._subscriptions.acknowledge(read_up_to)
            if any(read_up_to.get(stream) != position.token for stream, position in positions.items()):
                self._subscriptions.moved.set()
                self._subscriptions.advanced.set()

    def _read_positions(self, positions: dict[StreamKey, StreamPosition]) -> dict[StreamKey, str]:
        """Return the positions up to which all notified followers have read.

        A later one would lose events in a crash.
        """
        read_up_to: dict[StreamKey, str] = {}
        for _ in range(2):  # first the former marks, then the current positions
            self._mark(positions)
            read_up_to |= {
                stream: token for stream in positions if (token := self._checkpoints.take_completed(stream)) is not None
            }
        return read_up_to

    async def _save(self, positions: dict[StreamKey, StreamPosition], read_up_to: dict[StreamKey, str]) -> None:
        names = Counter(position.name for position in positions.values())
        # While credentials change, two streams can have one name, and either may be behind: save neither.
        alone = {
            position.name: read_up_to[stream]
            for stream, position in positions.items()
            if names[position.name] == 1 and stream in read_up_to
        }
        if alone:
            await self._tokens.save(alone)

    def _mark(self, positions: dict[StreamKey, StreamPosition]) -> None:
        """Mark the position of each unmarked stream, with the followers that must still read before it."""
        if not self._subscriptions.events.empty():
            return
        now = self._clock.monotonic()
        owed: dict[StreamKey, dict[ObjectKey, float]] = {stream: {} for stream in positions}
        for key in self._followers.notified():
            for stream in self._followers.streams_of([key]) & positions.keys():
                owed[stream][key] = self._followers.notified_at(key) or now
        for key in self._pace.waiting:
            for stream in self._followers.streams_of([key]) & positions.keys():
                owed[stream][key] = now
        for stream in positions.keys() - self._checkpoints.marked():
            self._checkpoints.mark(stream, positions[stream].token, owed[stream])

    # --- streams that break -------------------------------------------------------------------------------------------

    def _stream_state_changed(self, stream: StreamKey, state: StreamState) -> None:
        """Record and log a stream that breaks or works again; notify the listeners once for each."""
        watch_set = self._followers.watch_set(stream)
        if state.error is None or watch_set is None:
            self._clear_trouble(stream)
            return
        if stream in self._troubles:
            return
        resolved = watch_set.bound.resolved
        self._troubles[stream] = (on_object(resolved.store), f"{cause_of(state.error)}: {state.error.message}")
        _log.warning(
            "push refresh degraded: changes are found at the refresh interval",
            store=f"{resolved.store.kind} {resolved.store.namespace}/{resolved.store.name}",
            provider=resolved.endpoint.label,
            reason=state.error.reason.value,
            why=state.error.message,
        )
        self._notify_listeners(on_object(resolved.store))

    def _renew_by_reading(self, stream: StreamKey) -> None:
        """Let one follower read: its read renews the credentials and hands them to the stream."""
        self._request_reads(self._followers.all_of(stream)[:1], stream)

    def _clear_trouble(self, stream: StreamKey) -> None:
        """Clear the trouble of a stream that works again or has lost its last follower."""
        if stream not in self._troubles:
            return
        store, _ = self._troubles.pop(stream)
        _log.info("push refresh works again", store=f"{store.kind} {store.key}")
        self._notify_listeners(store)

    def _notify_listeners(self, store: OnObject) -> None:
        for listener in self._listeners:
            listener(store)
