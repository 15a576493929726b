"""Streams of changes, kept alive: one for each connection and identity, re-opened with back-off where they broke off.

    want(bound, items) -> stream --change--> events queue --> whoever reads values again
                             |  other items are wanted: the provider is told on the open stream
                             |  acknowledge(places): the same for what it need not keep any more
                             |  silent for three heartbeats: degraded, and opened anew
                             |  channel drains, provider ends it, error: opened anew with the last resume token
                             +- nothing to resume from, or refused: RESYNC, so that nothing is missed

Events only say that something changed; values are read the usual way. The queue is bounded: while it is full no stream
is read, and gRPC makes the provider wait. One that breaks off and is back is no news: listeners hear of streams that
were not heard for `patience`, and of them again when they have stood for `proven_after`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import msgspec

from eso_operator.providers.gateway import Subscription
from eso_operator.providers.metrics import RuntimeMetrics
from eso_operator.providers.settings import SubscriptionSettings
from eso_operator.stores.target import BoundTarget, Connection
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Heartbeat,
    SubscribeAck,
    SubscribeUpdate,
    WatchItem,
)
from kuberun.backoff import Random, system_random
from kuberun.clock import Clock
from kuberun.deadline import Deadline, happens_within


class StreamKey(NamedTuple):
    """One stream: the connection and whose eyes."""

    connection: str
    identity: str


def stream_key(bound: BoundTarget) -> StreamKey:
    return StreamKey(Connection(bound.target.endpoint, bound.target.tls).key, bound.identity)


def stream_name(bound: BoundTarget) -> str:
    """What the stream is called on record: the same in every process, and made of nothing secret.

    A configuration that changed may mean another backend, where a place in the stream means something else.
    """
    target = bound.target
    store, config = target.store, target.config
    decides: list[Any] = [
        target.connection.key,
        [store.api_version, store.kind, store.namespace, store.name, store.uid],
        [*config.kind, config.ref.namespace, config.ref.name, config.ref.uid, config.ref.generation],
        target.auth_namespace,
        *([target.caller_namespace] if target.caller_namespace else []),
    ]
    return hashlib.blake2b(msgspec.json.encode(decides), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Changed:
    """Something to read again: `event.watch_ids` are those of `want`."""

    key: StreamKey
    event: ChangeEvent


class Place(NamedTuple):
    """How far a stream was heard; the token is empty where the provider gives none."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class StreamState:
    """For the condition of a store. `error` says why it is degraded; None while it works."""

    error: ProviderError | None


class Subscribes(Protocol):
    """The part of the gateway that is used here."""

    def subscribe(
        self, bound: BoundTarget, items: Sequence[WatchItem], *, resume_token: str = ""
    ) -> AbstractAsyncContextManager[Subscription]: ...


StateListener = Callable[[StreamKey, StreamState], None]


@dataclass(slots=True, eq=False)
class _Stream:
    key: StreamKey
    bound: BoundTarget
    items: dict[str, WatchItem]
    """By watch id, which always means the same. Known versions are for the provider to hear once."""
    heard_at: float
    """When (monotonic) something was last heard, or hoped for."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    resume_token: str = ""
    kept_token: str = ""
    """Where an earlier process was."""
    opened: bool = False
    standing: bool = False
    missed: bool = False
    """Changes that nobody will hear of: everything has to be read again."""
    since: float = 0.0
    """When (monotonic) it was opened."""
    failures: int = 0
    error: ProviderError | None = None
    broken_since: float = 0.0
    acknowledged: str = ""
    to_acknowledge: str = ""
    """The newest place that the provider has not been told of."""

    def was_sent(self, sent: dict[str, WatchItem]) -> None:
        """What changes from now on comes as an event, or after a RESYNC."""
        self.items |= {each: replace(sent[each], known_version="") for each in self.items.keys() & sent.keys()}


class Subscriptions:
    """`run` owns the streams; `want` and `drop` may be called at any time."""

    def __init__(
        self,
        gateway: Subscribes,
        clock: Clock,
        *,
        settings: SubscriptionSettings,
        metrics: RuntimeMetrics,
        draw: Random = system_random,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._draw = draw
        self._streams: dict[StreamKey, _Stream] = {}
        self._new: asyncio.Queue[_Stream] = asyncio.Queue()
        self._listeners: list[StateListener] = []
        self._on_rejected: list[Callable[[StreamKey], None]] = []
        self.events: asyncio.Queue[Changed] = asyncio.Queue(settings.max_events)
        self.moved = asyncio.Event()
        """Set when `places` says something worth keeping: a new stream, or an event. Heartbeats alone are not."""
        self.advanced = asyncio.Event()
        """Set when `places` says something else, heartbeats included."""

    def listen(self, listener: StateListener) -> None:
        """Call it when a stream is degraded, as often as it fails then, or works again."""
        self._listeners.append(listener)

    def listen_to_rejections(self, listener: Callable[[StreamKey], None]) -> None:
        """Call it when the backend rejects the credentials of a stream: tokens expire. `renew` brings other ones."""
        self._on_rejected.append(listener)

    def want(self, bound: BoundTarget, items: Sequence[WatchItem], *, resume_token: str = "") -> StreamKey:
        """Be told about these, and only these, of this identity. The token is one kept from an earlier process."""
        key, wanted = stream_key(bound), {item.watch_id: item for item in items}
        stream = self._streams.get(key)
        if stream is not None:
            stream.bound = bound
            if stream.items.keys() != wanted.keys():
                stream.items = {each: stream.items.get(each, item) for each, item in wanted.items()}
                stream.changed.set()
            return key
        if len(self._streams) >= self._settings.max_streams:
            raise ProviderError(
                ErrorReason.BACKEND_UNAVAILABLE, f"{len(self._streams)} subscriptions are open; no more are opened"
            )
        stream = self._streams[key] = _Stream(
            key, bound, wanted, self._clock.monotonic(), resume_token=resume_token, kept_token=resume_token
        )
        self._new.put_nowait(stream)
        self._count()
        return key

    def renew(self, bound: BoundTarget) -> None:
        """Open the stream of this identity, if there is one, with these credentials from now on: tokens end."""
        if stream := self._streams.get(stream_key(bound)):
            stream.bound = bound

    def drop(self, key: StreamKey) -> None:
        """Nobody wants these any more."""
        if stream := self._streams.pop(key, None):
            stream.dropped.set()
            stream.changed.set()
            self._count()

    def places(self) -> dict[StreamKey, Place]:
        """Where every stream is that was ever opened; to be kept across restarts of the operator."""
        return {
            key: Place(stream_name(stream.bound), stream.resume_token)
            for key, stream in self._streams.items()
            if stream.opened
        }

    def acknowledge(self, tokens: Mapping[StreamKey, str]) -> None:
        """All that happened up to these places is done with. Of several for one stream the provider hears the last."""
        for key, token in tokens.items():
            stream = self._streams.get(key)
            if stream is not None and token and token != stream.acknowledged:
                stream.acknowledged = stream.to_acknowledge = token
                stream.changed.set()

    def handled(self, changed: Changed) -> None:
        """It was acted on. Clocks differ: what seems to come from the future was on time."""
        stream, happened = self._streams.get(changed.key), changed.event.observed_at
        if stream is not None and happened is not None:
            late = (self._clock.now() - happened).total_seconds()
            self._metrics.lag(stream.bound.target.endpoint.label, max(0.0, late))

    def works(self, key: StreamKey) -> bool:
        """Whether changes are heard at this moment, or will be: it is open, and was not broken lately."""
        stream = self._streams.get(key)
        return stream is not None and stream.standing and stream.error is None

    def is_at_start(self, key: StreamKey) -> bool:
        """Whether it is still where an earlier process was: what is watched from now on hears of everything since."""
        stream = self._streams.get(key)
        return stream is not None and stream.kept_token != "" and stream.resume_token == stream.kept_token

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                stream = await self._new.get()
                group.create_task(self._keep(stream))

    async def _keep(self, stream: _Stream) -> None:
        while not stream.dropped.is_set():
            try:
                await self._follow(stream)
                stream.failures = 0
            except ProviderError as error:
                self._failed(stream, error)
                await self._pause(stream, error)

    async def _follow(self, stream: _Stream) -> None:
        """One stream from its opening to its end. Returns when it is to be opened anew without delay."""
        sent, resumes = dict(stream.items), bool(stream.resume_token)
        async with self._gateway.subscribe(
            stream.bound, tuple(sent.values()), resume_token=stream.resume_token
        ) as subscription:
            if stream.missed or (stream.opened and not resumes):
                await self._emit(stream, ChangeEvent(ChangeType.RESYNC))
                stream.missed = False
            if not stream.opened:
                self.moved.set()
                self.advanced.set()
            stream.opened = stream.standing = True
            stream.since = stream.heard_at = self._clock.monotonic()
            stream.was_sent(sent)
            try:
                await self._until_interrupted(stream, subscription, sent)
            finally:
                stream.standing = False

    async def _until_interrupted(self, stream: _Stream, subscription: Subscription, sent: dict[str, WatchItem]) -> None:
        """Reads until nobody wants it any more, the channel drains, or the stream breaks."""
        async with asyncio.TaskGroup() as group:
            talks = [
                group.create_task(self._read(stream, subscription)),
                group.create_task(self._talk(stream, subscription, sent)),
            ]
            draining = group.create_task(subscription.draining.wait())
            done, _ = await asyncio.wait([*talks, draining], return_when=asyncio.FIRST_COMPLETED)
            for task in (*talks, draining):
                task.cancel()
        for talk in talks:
            if talk in done and (failure := talk.result()) is not None:
                raise failure

    async def _talk(
        self, stream: _Stream, subscription: Subscription, sent: dict[str, WatchItem]
    ) -> ProviderError | None:
        """All that the provider is told: one message at a time. Ends when no items are wanted. Errors as in `_read`."""
        try:
            while not stream.dropped.is_set():
                stream.changed.clear()
                sent = await self._amend(stream, subscription, sent)
                if token := stream.to_acknowledge:
                    await subscription.changes.send(SubscribeAck(token))
                    if stream.to_acknowledge == token:
                        stream.to_acknowledge = ""
                await stream.changed.wait()
        except ProviderError as error:
            return error
        return None

    async def _amend(
        self, stream: _Stream, subscription: Subscription, sent: dict[str, WatchItem]
    ) -> dict[str, WatchItem]:
        """Say which other items are wanted; what was sent by now."""
        wanted = dict(stream.items)
        more = tuple(item for each, item in wanted.items() if each not in sent)
        less = tuple(each for each in sent if each not in wanted)
        if more or less:
            await subscription.changes.send(SubscribeUpdate(more, less))
            stream.was_sent(wanted)
        return wanted

    async def _read(self, stream: _Stream, subscription: Subscription) -> ProviderError | None:
        """An error is returned, not raised: in a task group it would come out wrapped."""
        try:
            while True:
                event = await self._next(subscription)
                stream.heard_at = self._clock.monotonic()
                if stream.error is not None and stream.heard_at - stream.since >= self._settings.proven_after:
                    self._recovered(stream)
                if isinstance(event, ChangeEvent):
                    await self._emit(stream, event)
                if event.resume_token:
                    self._move(stream, event)
        except ProviderError as error:
            return error

    async def _next(self, subscription: Subscription) -> ChangeEvent | Heartbeat:
        silence = self._settings.heartbeat * self._settings.missed_heartbeats
        try:
            async with Deadline(self._clock, silence):
                event = await subscription.changes.receive()
        except TimeoutError:
            raise ProviderError(ErrorReason.BACKEND_TIMEOUT, f"no heartbeat for {silence:g} s") from None
        if event is None:
            raise ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "the provider ended the stream of changes")
        return event

    def _move(self, stream: _Stream, event: ChangeEvent | Heartbeat) -> None:
        worth_keeping = isinstance(event, ChangeEvent) or not stream.resume_token
        if worth_keeping:
            self.moved.set()
        if worth_keeping or event.resume_token != stream.resume_token:
            self.advanced.set()
        stream.resume_token = event.resume_token

    async def _emit(self, stream: _Stream, event: ChangeEvent) -> None:
        await self.events.put(Changed(stream.key, event))

    async def _pause(self, stream: _Stream, error: ProviderError) -> None:
        """One who cannot do it at all may be able to when it is replaced."""
        delay = self._settings.reconnect.delay(stream.failures, self._draw)
        if error.reason is ErrorReason.UNSUPPORTED_OPERATION:
            delay = self._settings.unsupported_pause
        await happens_within(self._clock, delay, stream.dropped)

    def _failed(self, stream: _Stream, error: ProviderError) -> None:
        if error.reason is ErrorReason.INVALID_REQUEST and stream.resume_token:
            stream.resume_token, stream.missed = "", True  # it may be the token that is refused
        if error.reason is ErrorReason.CREDENTIALS_REJECTED:
            for listener in self._on_rejected:
                listener(stream.key)
        if stream.error is None:
            stream.broken_since = stream.heard_at
        stream.failures += 1
        stream.error = error
        self._count()
        lasting = self._clock.monotonic() - stream.broken_since >= self._settings.patience
        if lasting or error.reason is ErrorReason.UNSUPPORTED_OPERATION:
            self._tell(stream)

    def _recovered(self, stream: _Stream) -> None:
        stream.failures, stream.error = 0, None
        self._count()
        self._tell(stream)

    def _tell(self, stream: _Stream) -> None:
        for listener in self._listeners:
            listener(stream.key, StreamState(stream.error))

    def _count(self) -> None:
        degraded = sum(1 for each in self._streams.values() if each.error is not None)
        self._metrics.subscriptions(len(self._streams), degraded)
