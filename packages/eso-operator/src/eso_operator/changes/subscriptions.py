"""Change streams, one for each connection and identity, reopened with back-off after a failure.

    want(bound, items) -> stream --change--> events queue --> the change feed
                             |  other items are wanted: an update is sent on the open stream
                             |  acknowledge(positions): an acknowledgement is sent on the open stream
                             |  silent for three heartbeats: degraded and reopened
                             |  channel drains, provider ends it, error: reopened with the last resume token
                             +- no token, or the provider refuses it: RESYNC, so that no change is missed

Events carry no values. The queue is bounded: while it is full no stream is read, and gRPC flow control makes the
provider wait. A short interruption is not reported: listeners are notified of a stream that was silent for
`degraded_after`, and again after it has been open for `proven_after`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from eso_operator.providers.gateway import Gateway, Subscription
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import SubscriptionSettings
from eso_operator.stores.resolved import BoundStore, Connection
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Heartbeat,
    SubscribeAck,
    SubscribeUpdate,
    WatchItem,
)
from kubebase.backoff import Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import Deadline, happens_within


class StreamKey(NamedTuple):
    """The identity of a stream: the connection, and the identity of the store that it reads as."""

    connection: str
    identity: str


def stream_key(bound: BoundStore) -> StreamKey:
    return StreamKey(Connection(bound.resolved.endpoint, bound.resolved.tls).key, bound.identity)


def stream_name(bound: BoundStore) -> str:
    """Return the name under which the resume token is saved: the same in every process, without secrets.

    The name changes with the configuration, because a token of one backend means nothing at another.
    """
    resolved = bound.resolved
    store, config = resolved.store, resolved.config
    decides: list[Any] = [
        resolved.connection.key,
        [store.api_version, store.kind, store.namespace, store.name, store.uid],
        [*config.kind, config.ref.namespace, config.ref.name, config.ref.uid, config.ref.generation],
        resolved.auth_namespace,
        *([resolved.caller_namespace] if resolved.caller_namespace else []),
    ]
    return hashlib.blake2b(msgspec.json.encode(decides), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Changed:
    """An event of a stream. `event.watch_ids` are the ids given to `want`."""

    key: StreamKey
    event: ChangeEvent


class StreamPosition(NamedTuple):
    """The position of a stream by name; the token is empty if the provider gives none."""

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream for the condition of its store.

    `error` is None while the stream works, and if the backend has no change feed.
    """

    error: ProviderError | None


StateListener = Callable[[StreamKey, StreamState], None]


@dataclass(slots=True, eq=False)
class _Stream:
    key: StreamKey
    bound: BoundStore
    items: dict[str, WatchItem]
    """By watch id; an id never changes its meaning. Known versions are sent to the provider once."""
    received_at: float
    """When (monotonic) the last message arrived, or the stream was opened or created."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    resume_token: str = ""
    saved_token: str = ""
    """The token of a former process."""
    opened: bool = False
    established: bool = False
    missed: bool = False
    """Events were lost: all followers must read again."""
    since: float = 0.0
    """When (monotonic) the stream was opened."""
    failures: int = 0
    error: ProviderError | None = None
    proven: bool = False
    """The stream was open for `proven_after` at least once."""
    broken_since: float = 0.0
    acknowledged: str = ""
    to_acknowledge: str = ""
    """The newest position that was not acknowledged to the provider."""

    @property
    def is_degraded(self) -> bool:
        """Return whether the stream is broken. A backend that never had a change feed has nothing that could break."""
        return self.error is not None and (self.proven or self.error.reason is not ErrorReason.UNSUPPORTED_OPERATION)

    def was_sent(self, sent: dict[str, WatchItem]) -> None:
        """Clear the known versions of items that were sent: later changes arrive as events or as a RESYNC."""
        self.items |= {each: replace(sent[each], known_version="") for each in self.items.keys() & sent.keys()}


class Subscriptions:
    """The streams of the process. `run` owns them; `want` and `drop` may be called at any time."""

    def __init__(
        self,
        gateway: Gateway,
        clock: Clock,
        *,
        settings: SubscriptionSettings,
        metrics: ProviderMetrics,
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
        """Set when `positions` changes in a way worth saving: by a new stream or an event, not by heartbeats."""
        self.advanced = asyncio.Event()
        """Set when `positions` changes in any way, heartbeats included."""

    def listen(self, listener: StateListener) -> None:
        """Call the listener at each failure of a degraded stream, and when the stream works again."""
        self._listeners.append(listener)

    def listen_to_rejections(self, listener: Callable[[StreamKey], None]) -> None:
        """Call the listener when the backend rejects the credentials of a stream. `renew` replaces them."""
        self._on_rejected.append(listener)

    def want(self, bound: BoundStore, items: Sequence[WatchItem], *, resume_token: str = "") -> StreamKey:
        """Watch exactly these items under this identity. `resume_token` is the token of a former process."""
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
            key, bound, wanted, self._clock.monotonic(), resume_token=resume_token, saved_token=resume_token
        )
        self._new.put_nowait(stream)
        self._count()
        return key

    def renew(self, bound: BoundStore) -> None:
        """Use these credentials when the stream of this identity, if there is one, is next opened."""
        if stream := self._streams.get(stream_key(bound)):
            stream.bound = bound

    def drop(self, key: StreamKey) -> None:
        """Close a stream that is no longer needed."""
        if stream := self._streams.pop(key, None):
            stream.dropped.set()
            stream.changed.set()
            self._count()

    def positions(self) -> dict[StreamKey, StreamPosition]:
        """Return the position of every stream that was ever opened, to be saved across restarts."""
        return {
            key: StreamPosition(stream_name(stream.bound), stream.resume_token)
            for key, stream in self._streams.items()
            if stream.opened
        }

    def acknowledge(self, tokens: Mapping[StreamKey, str]) -> None:
        """Tell providers that all events up to these positions are processed. A newer one replaces an unsent one."""
        for key, token in tokens.items():
            stream = self._streams.get(key)
            if stream is not None and token and token != stream.acknowledged:
                stream.acknowledged = stream.to_acknowledge = token
                stream.changed.set()

    def handled(self, changed: Changed) -> None:
        """Record the lag of an event that was processed. Clocks differ: a negative lag counts as 0."""
        stream, happened = self._streams.get(changed.key), changed.event.observed_at
        if stream is not None and happened is not None:
            late = (self._clock.now() - happened).total_seconds()
            self._metrics.lag(stream.bound.resolved.endpoint.label, max(0.0, late))

    def works(self, key: StreamKey) -> bool:
        """Return whether the stream is open and has not failed recently."""
        stream = self._streams.get(key)
        return stream is not None and stream.established and stream.error is None

    def is_at_start(self, key: StreamKey) -> bool:
        """Return whether the stream is still at the token of a former process, so that new items miss no event."""
        stream = self._streams.get(key)
        return stream is not None and stream.saved_token != "" and stream.resume_token == stream.saved_token

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._streams

    def __len__(self) -> int:
        return len(self._streams)

    async def run(self) -> None:
        """Keep every wanted stream open until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                stream = await self._new.get()
                group.create_task(self._keep_open(stream))

    async def _keep_open(self, stream: _Stream) -> None:
        while not stream.dropped.is_set():
            try:
                await self._follow(stream)
                stream.failures = 0
            except ProviderError as error:
                self._failed(stream, error)
                await self._pause(stream, error)

    async def _follow(self, stream: _Stream) -> None:
        """Open a stream and follow it until it ends. Returns if it should be reopened without delay."""
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
            stream.opened = stream.established = True
            stream.since = stream.received_at = self._clock.monotonic()
            stream.was_sent(sent)
            try:
                await self._run_until_interrupted(stream, subscription, sent)
            finally:
                stream.established = False

    async def _run_until_interrupted(
        self, stream: _Stream, subscription: Subscription, sent: dict[str, WatchItem]
    ) -> None:
        """Read and send until the stream is dropped, its channel drains, or it breaks. Raises the failure."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._read(stream, subscription)),
                group.create_task(self._send_changes(stream, subscription, sent)),
            ]
            draining = group.create_task(subscription.draining.wait())
            done, _ = await asyncio.wait([*tasks, draining], return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, draining):
                task.cancel()
        for task in tasks:
            if task in done and (failure := task.result()) is not None:
                raise failure

    async def _send_changes(
        self, stream: _Stream, subscription: Subscription, sent: dict[str, WatchItem]
    ) -> ProviderError | None:
        """Send updates and acknowledgements until the stream is dropped. Returns an error, as `_read` does."""
        try:
            while not stream.dropped.is_set():
                stream.changed.clear()
                sent = await self._send_update(stream, subscription, sent)
                if token := stream.to_acknowledge:
                    await subscription.changes.send(SubscribeAck(token))
                    if stream.to_acknowledge == token:
                        stream.to_acknowledge = ""
                await stream.changed.wait()
        except ProviderError as error:
            return error
        return None

    async def _send_update(
        self, stream: _Stream, subscription: Subscription, sent: dict[str, WatchItem]
    ) -> dict[str, WatchItem]:
        """Send the difference between wanted and sent items; return the items sent so far."""
        wanted = dict(stream.items)
        more = tuple(item for each, item in wanted.items() if each not in sent)
        less = tuple(each for each in sent if each not in wanted)
        if more or less:
            await subscription.changes.send(SubscribeUpdate(more, less))
            stream.was_sent(wanted)
        return wanted

    async def _read(self, stream: _Stream, subscription: Subscription) -> ProviderError | None:
        """Read events until the stream breaks. The error is returned: a task group would wrap a raised one."""
        try:
            while True:
                event = await self._next(subscription)
                stream.received_at = self._clock.monotonic()
                if stream.received_at - stream.since >= self._settings.proven_after:
                    stream.proven = True
                    if stream.error is not None:
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
        worth_saving = isinstance(event, ChangeEvent) or not stream.resume_token
        if worth_saving:
            self.moved.set()
        if worth_saving or event.resume_token != stream.resume_token:
            self.advanced.set()
        stream.resume_token = event.resume_token

    async def _emit(self, stream: _Stream, event: ChangeEvent) -> None:
        await self.events.put(Changed(stream.key, event))

    async def _pause(self, stream: _Stream, error: ProviderError) -> None:
        """Back off before the stream is reopened; longer if the provider does not support streams at all."""
        delay = self._settings.reconnect.delay(stream.failures, self._draw)
        if error.reason is ErrorReason.UNSUPPORTED_OPERATION:
            delay = self._settings.unsupported_pause
        await happens_within(self._clock, delay, stream.dropped)

    def _failed(self, stream: _Stream, error: ProviderError) -> None:
        if error.reason is ErrorReason.INVALID_REQUEST and stream.resume_token:
            stream.resume_token, stream.missed = "", True  # the provider may have refused the token
        if error.reason is ErrorReason.CREDENTIALS_REJECTED:
            for listener in self._on_rejected:
                listener(stream.key)
        if stream.error is None:
            stream.broken_since = stream.received_at
        stream.failures += 1
        stream.error = error
        self._count()
        lasting = self._clock.monotonic() - stream.broken_since >= self._settings.degraded_after
        if lasting or error.reason is ErrorReason.UNSUPPORTED_OPERATION:
            self._notify_listeners(stream)

    def _recovered(self, stream: _Stream) -> None:
        stream.failures, stream.error = 0, None
        self._count()
        self._notify_listeners(stream)

    def _notify_listeners(self, stream: _Stream) -> None:
        for listener in self._listeners:
            listener(stream.key, StreamState(stream.error if stream.is_degraded else None))

    def _count(self) -> None:
        degraded = sum(1 for each in self._streams.values() if each.is_degraded)
        self._metrics.subscriptions(len(self._streams), degraded)
