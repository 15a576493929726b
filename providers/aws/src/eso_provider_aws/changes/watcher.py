"""The changes of one store: from its queue if it has a readable one, else from listings.

| token | meaning |
|---|---|
| `queue QUEUE POSITION` | a position in the log of a queue of this process |
| `looks LISTINGS NUMBER STAMP` | a listing of this process, and the time of its newest change, for other processes |

An unknown token leads to RESYNC; the README of this folder explains how subscriptions resume.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

import structlog

from eso_provider_aws.api import Api
from eso_provider_aws.changes.events import Change, Listing, NotAnEventError, Topics, change_in
from eso_provider_aws.changes.listings import PASSING, Listings, Source, poll_seconds
from eso_provider_aws.identity import Runtime
from eso_sdk.errors import invalid_config, unsupported
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, ConditionReport, Heartbeat, WatchItem
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

# ---------------------------------------------------------------------------------------------------------------------
# A queue of change events, received once for all stores that name it, with its unacknowledged messages.
#
#     receive -> log -> every subscription, from its position       an unwatched change: deleted at once
#             -> delivery, until all listeners acknowledge -------> deleted; else SQS redelivers it, as a duplicate
#
# All identities share one `Queue` for each URL and region: separate receivers would take each other's messages. Each
# identity still receives for itself (`Consumer`), so a store without the right to read the queue gets no events. A
# consumer runs while a subscription is open. If the queue is missing or access is denied, it waits ten minutes before
# it tries again.


_log = structlog.get_logger("eso_provider_aws.changes")

LOG_ENTRIES: Final = 2000
"""The number of changes in the log that a subscription can resume from."""
MAX_PENDING: Final = 4000
"""The limit of unacknowledged messages. Beyond it, the oldest are redelivered and reported again."""

Listener = object
"""A store that acknowledges messages."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change in the order of receipt."""

    position: int
    change: Change
    received: float


@dataclass(slots=True)
class Delivery:
    """One message that at least one listener received."""

    position: int
    key: str
    waiting: set[Listener]
    handle: str = field(repr=False)


class Queue:
    """The log and the unacknowledged messages of one queue."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex[:12]
        self.position = 0
        """The position of the newest change."""
        self.moved = asyncio.Event()
        """Set and replaced when a change arrives."""
        self.unreadable = 0
        self._entries: deque[Entry] = deque(maxlen=LOG_ENTRIES)
        self._reported: BoundedDict[str, None] = BoundedDict(2 * MAX_PENDING)
        self._pending: BoundedDict[str, Delivery] = BoundedDict(MAX_PENDING, self._expect_again)
        self._listening: dict[int, tuple[Listener, Topics]] = {}

    @contextmanager
    def listening(self, listener: Listener, topics: Topics) -> Iterator[None]:
        """Register a listener for these topics inside the block."""
        number = id(topics)
        self._listening[number] = (listener, topics)
        try:
            yield
        finally:
            del self._listening[number]

    def since(self, position: int) -> list[Entry] | None:
        """Return the changes after a position; None if some of them were evicted."""
        if not 0 <= position <= self.position:
            return None
        if position < self.position - len(self._entries):
            return None
        return [entry for entry in self._entries if entry.position > position]

    def recent(self, seconds: float, now: float) -> list[Entry]:
        """Return the changes of the last seconds."""
        return [entry for entry in self._entries if entry.received >= now - seconds]

    def wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def take(self, messages: Iterable[dict[str, Any]], now: float) -> list[str]:
        """Record the changes in messages; return the handles of those to delete at once."""
        needless: list[str] = []
        before = self.position
        for message in messages:
            message_id, handle = message.get("MessageId", ""), message["ReceiptHandle"]
            if delivery := self._pending.get(message_id):
                delivery.handle = handle  # only the newest handle can delete the message
            elif self._is_needless(message_id, handle, message.get("Body", ""), now):
                needless.append(handle)
        if self.position != before:
            self.wake()
        return needless

    def acknowledge(self, listener: Listener, position: int) -> list[str]:
        """Record that a listener has read up to a position; return the handles of messages that all listeners read."""
        acknowledged = []
        for message_id, delivery in list(self._pending.items()):
            if delivery.position <= position and listener in delivery.waiting:
                delivery.waiting.discard(listener)
                if not delivery.waiting:
                    del self._pending[message_id]
                    acknowledged.append(delivery.handle)
        return acknowledged

    def leave(self, listener: Listener) -> None:
        """Remove a listener. SQS redelivers the messages that only this listener received."""
        for message_id, delivery in list(self._pending.items()):
            delivery.waiting.discard(listener)
            if not delivery.waiting:
                del self._pending[message_id]
                self._expect_again(message_id, delivery)

    def _is_needless(self, message_id: str, handle: str, body: str, now: float) -> bool:
        try:
            change = change_in(body)
        except NotAnEventError:
            self.unreadable += 1
            _log.warning("a message of the queue is not an event; it is deleted", so_far=self.unreadable)
            return True
        if change is None:
            return True
        key = change.event_id or message_id
        if key in self._reported:
            return True  # a copy, or one that could not be deleted
        self.position += 1
        self._entries.append(Entry(self.position, change, now))
        waiting = {listener for listener, topics in self._listening.values() if topics.concerned(change)}
        if waiting:
            self._pending[message_id] = Delivery(self.position, key, waiting, handle)
        self._reported[key] = None
        return not waiting

    def _expect_again(self, _message_id: str, delivery: Delivery) -> None:
        """Let the change of a dropped delivery through when SQS redelivers it."""
        self._reported.pop(delivery.key, None)


WAIT_SECONDS: Final = 10
"""The long-poll time of SQS: six calls a minute while nothing changes. Shorter than the client's timeout."""
VISIBILITY_SECONDS: Final = 120
"""Acknowledgements come about once a minute."""
BATCH: Final = 10
FAILURE_PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
MAX_FAILURES: Final = 5
REFUSED_SECONDS: Final = 600.0

_MISSING: Final = frozenset({"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NonExistentQueue"})


class Consumer:
    """One identity at one queue."""

    def __init__(self, queue: Queue, url: str, api: Api) -> None:
        self.queue = queue
        self.api = api
        self.users = 0
        """The number of stores that may listen."""
        self.error: ProviderError | None = None
        """The error of the queue, if any."""
        self._url = url
        self._about = f'queue "{url.rpartition("/")[2]}"'
        self._refused_until = float("-inf")
        self._proven = False
        self._streams = 0
        self._task: asyncio.Task[None] | None = None
        self._proving = asyncio.Lock()

    async def prove(self) -> None:
        """Receive once without consuming a message, to prove that this identity may read the queue."""
        async with self._proving:
            if self.error is not None and self.api.clock.monotonic() < self._refused_until:
                raise self.error.with_traceback(None)
            if not self._proven:
                try:
                    await self._received(most=1, wait=0, hidden=0)
                except ProviderError as failed:
                    raise self._refused(failed) from None
                self.error, self._proven = None, True

    @contextmanager
    def listening(self, listener: Listener, topics: Topics) -> Iterator[None]:
        """Receive inside the block. When the last listener leaves, a receive call in progress is completed."""
        with self.queue.listening(listener, topics):
            self._streams += 1
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run())
                self._task.add_done_callback(self._ended)
            try:
                yield
            finally:
                self._streams -= 1

    def check(self) -> None:
        """Raise the error that ended the receiver, if any."""
        if self._task is not None and self._task.done() and (failed := self._task.exception()):
            raise failed.with_traceback(None)

    async def acknowledge(self, listener: Listener, position: int) -> None:
        """Delete the messages up to a position for which this was the last listener."""
        await self._delete(self.queue.acknowledge(listener, position))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.api.close()

    async def _run(self) -> None:
        failures = 0
        while self._streams:
            try:
                messages = await self._received(most=BATCH, wait=WAIT_SECONDS, hidden=VISIBILITY_SECONDS)
                failures = 0
            except ProviderError as failed:
                failures += 1
                if failed.reason not in PASSING or failures >= MAX_FAILURES:
                    raise self._refused(failed) from None
                pause = FAILURE_PAUSES[min(failures, len(FAILURE_PAUSES)) - 1]
                await self.api.clock.sleep(max(pause, failed.retry_after))
                continue
            await self._delete(self.queue.take(messages, self.api.clock.monotonic()))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Wake the listeners if the receiver failed; they raise its error."""
        if not task.cancelled() and task.exception() is not None:
            self.queue.wake()

    async def _received(self, *, most: int, wait: int, hidden: int) -> Sequence[dict[str, Any]]:
        response = await self.api.call(
            "ReceiveMessage",
            about=self._about,
            QueueUrl=self._url,
            MaxNumberOfMessages=most,
            WaitTimeSeconds=wait,
            VisibilityTimeout=hidden,
        )
        return response.get("Messages") or ()

    async def _delete(self, handles: Sequence[str]) -> None:
        """Delete messages. SQS redelivers those that cannot be deleted; they are then recognised."""
        for start in range(0, len(handles), BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": handle}
                for number, handle in enumerate(handles[start : start + BATCH])
            ]
            try:
                await self.api.call("DeleteMessageBatch", about=self._about, QueueUrl=self._url, Entries=entries)
            except ProviderError as failed:
                if failed.reason is ErrorReason.PERMISSION_DENIED:
                    self.error = self._explained(failed)
                _log.warning("messages of a queue not deleted; SQS redelivers them", reason=failed.reason.value)
                return
            self.error = None

    def _refused(self, failed: ProviderError) -> ProviderError:
        """Return the error to raise; remember it and pause if it is not transient."""
        self._proven = False
        if failed.reason in PASSING:
            return failed
        self.error = self._explained(failed)
        self._refused_until = self.api.clock.monotonic() + REFUSED_SECONDS
        return self.error

    def _explained(self, failed: ProviderError) -> ProviderError:
        if failed.backend_code in _MISSING:
            return invalid_config("/changes/queueURL", f"{self._about} does not exist in {self.api.region}")
        if failed.reason is ErrorReason.PERMISSION_DENIED:
            message = f"{self._about} in {self.api.region}: allow sqs:ReceiveMessage and sqs:DeleteMessage"
            return ProviderError(failed.reason, message, backend_code=failed.backend_code)
        return failed


# --- The changes of one store ----------------------------------------------------------------------------------------


MAX_CONSUMERS: Final = 32
"""Each holds one of the 64 connections to SQS."""


@dataclass(slots=True)
class Shared:
    """The state of one runtime."""

    clock: Clock
    _listings: WeakValueDictionary[Hashable, Listings] = field(default_factory=WeakValueDictionary)
    _queues: WeakValueDictionary[Hashable, Queue] = field(default_factory=WeakValueDictionary)
    _consumers: dict[Hashable, Consumer] = field(default_factory=dict)

    def listings(self, identity: Hashable, source: Source, region: str) -> Listings:
        key = (identity, source.service, region)
        found = self._listings.get(key)
        if found is None:
            self._listings[key] = found = Listings(source, self.clock)
        return found

    async def join(self, url: str, api: Api, sqs: Callable[[], Awaitable[Api]]) -> Consumer:
        """Return the consumer of a queue under the identity of `api`; every `join` needs a `leave`."""
        key = (url, api.region, api.identity.key)
        if key not in self._consumers:
            if len(self._consumers) >= MAX_CONSUMERS:
                raise unsupported(f"this provider listens to {MAX_CONSUMERS} queues already; let stores share queues")
            opened = await sqs()
            if key in self._consumers:
                await opened.close()
            else:
                self._consumers[key] = Consumer(self._queue(url, api.region), url, opened)
        consumer = self._consumers[key]
        consumer.users += 1
        return consumer

    async def leave(self, consumer: Consumer) -> None:
        """Release a consumer; the last user stops it."""
        consumer.users -= 1
        if consumer.users == 0:
            for key in [key for key, each in self._consumers.items() if each is consumer]:
                del self._consumers[key]
            await consumer.close()

    def _queue(self, url: str, region: str) -> Queue:
        found = self._queues.get((url, region))
        if found is None:
            self._queues[url, region] = found = Queue()
        return found


_SHARED: Final[WeakKeyDictionary[Runtime, Shared]] = WeakKeyDictionary()


def shared_by(runtime: Runtime) -> Shared:
    """Return the state that the subscriptions of this runtime share."""
    found = _SHARED.get(runtime)
    if found is None:
        _SHARED[runtime] = found = Shared(runtime.clock)
    return found


LATE_SECONDS: Final = 300.0
"""The maximum lag of listings, according to AWS."""
SKEW_SECONDS: Final = 5.0
"""The maximum clock difference for changes that happen while a subscription opens."""
READ_TO_WATCH_SECONDS: Final = 60.0
"""Seconds that may pass between the read of a value and its watch."""
QUEUE_RETRY_SECONDS: Final = 600.0
TOKEN_AFTER: Final = 500
"""The number of unrelated changes after which a subscription gets a new token."""

Events = AsyncGenerator[ChangeEvent | Heartbeat]


class Watcher:
    """Reports the changes of one store."""

    def __init__(
        self,
        source: Source,
        api: Api,
        shared: Shared,
        *,
        prefix: str,
        queue_url: str,
        sqs: Callable[[], Awaitable[Api]],
    ) -> None:
        self._source = source
        self._api = api
        self._shared = shared
        self._prefix = prefix
        self._queue_url = queue_url
        self._sqs = sqs
        self._listings = shared.listings(api.identity.key, source, api.region)
        self._consumer: Consumer | None = None
        self._queue_error: ProviderError | None = None

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> Events:
        """Yield changes of the watched values, without end."""
        topics = Topics(
            items,
            service=self._source.service,
            region=self._api.region,
            prefix=self._prefix,
            naming=self._source.naming,
        )
        token = resume_token
        while True:
            retry_at = inf
            if self._queue_url:
                try:
                    async with aclosing(self._from_queue(topics, token)) as events:
                        async for event in events:
                            token = event.resume_token or token
                            yield event
                except ProviderError as failed:
                    if failed.reason in PASSING:
                        raise
                    yield self._fallen_back(failed)
                retry_at = self._api.clock.monotonic() + QUEUE_RETRY_SECONDS
            async with aclosing(self._from_listings(topics, token, until=retry_at)) as found:
                async for event in found:
                    token = event.resume_token or token
                    yield event

    async def acknowledged(self, resume_token: str) -> None:
        """Delete the messages up to an acknowledged token."""
        consumer, position = self._consumer, self._position_in(resume_token)
        if consumer is not None and position is not None:
            await consumer.acknowledge(self, position)

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return the condition of the queue; empty if it works."""
        error = self._queue_error or (self._consumer.error if self._consumer is not None else None)
        return () if error is None else (_condition(error),)

    @property
    def is_refused(self) -> bool:
        """Return whether the store cannot report changes at present."""
        return self._listings.refusal is not None and (not self._queue_url or self._queue_error is not None)

    async def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.queue.leave(self)
            await self._shared.leave(consumer)

    # --- queue -------------------------------------------------------------------------------------------------------

    async def _from_queue(self, topics: Topics, token: str) -> Events:
        if self._consumer is None:
            self._consumer = await self._shared.join(self._queue_url, self._api, self._sqs)
        consumer, queue = self._consumer, self._consumer.queue
        await consumer.prove()
        self._queue_error = None
        with consumer.listening(self, topics):
            position = self._position_in(token)
            if position is None or queue.since(position) is None:
                position = queue.position
                if token:
                    yield self._resync(position)
            for unread in self._unread(topics, position):
                yield unread
            yield Heartbeat(self._api.clock.now(), self._queue_token(position))
            async with aclosing(self._followed(consumer, topics, position)) as events:
                async for event in events:
                    yield event

    async def _followed(self, consumer: Consumer, topics: Topics, position: int) -> Events:
        """Yield the changes after a position."""
        reported, queue = position, consumer.queue
        while True:
            moved, entries = queue.moved, queue.since(position)
            if entries is None:  # more came than is kept
                position = reported = queue.position
                yield self._resync(position)
                continue
            for entry in entries:
                position = entry.position
                if ids := topics.concerned(entry.change):
                    reported = position
                    yield self._event(entry, ids)
            if position - reported >= TOKEN_AFTER:
                reported = position
                yield Heartbeat(self._api.clock.now(), self._queue_token(position))
            consumer.check()
            if position == queue.position:
                await moved.wait()

    def _unread(self, topics: Topics, position: int) -> list[ChangeEvent]:
        """Return changes between the read of a value and its watch, except those that the stream will still deliver."""
        if self._consumer is None:
            return []
        recent = self._consumer.queue.recent(READ_TO_WATCH_SECONDS, self._api.clock.monotonic())
        past = [(entry, topics.concerned(entry.change, unread=True)) for entry in recent if entry.position <= position]
        return [
            replace(self._event(entry, ids), resume_token=self._queue_token(position)) for entry, ids in past if ids
        ]

    def _event(self, entry: Entry, ids: tuple[str, ...]) -> ChangeEvent:
        change = entry.change
        kind = ChangeType.DELETED if change.deleted else ChangeType.UPDATED
        at = change.at or self._api.clock.now()
        return ChangeEvent(kind, ids, change.version, at, resume_token=self._queue_token(entry.position))

    def _resync(self, position: int) -> ChangeEvent:
        return ChangeEvent(ChangeType.RESYNC, resume_token=self._queue_token(position))

    def _queue_token(self, position: int) -> str:
        return f"queue {self._consumer.queue.name} {position}" if self._consumer is not None else ""

    def _position_in(self, token: str) -> int | None:
        match token.split(" "):
            case ["queue", name, position] if self._consumer is not None and name == self._consumer.queue.name:
                return int(position) if position.isascii() and position.isdigit() else None
        return None

    def _fallen_back(self, failed: ProviderError) -> ChangeEvent:
        self._queue_error = failed
        return ChangeEvent(ChangeType.CONDITION, condition=_condition(failed))

    # --- listings ----------------------------------------------------------------------------------------------------

    async def _from_listings(self, topics: Topics, token: str, *, until: float) -> Events:
        with self._listings.including(topics):
            try:
                begun = self._api.clock.now().timestamp()
                listing = await self._listings.first(self._api)
                for event in self._since(topics, listing, token, begun):
                    yield event
                yield Heartbeat(self._api.clock.now(), self._listing_token(listing))
                while (after := await self._listings.after(self._api, listing, until=until)) is not None:
                    new_token = self._listing_token(after)
                    for event in topics.changes(listing, after, now=self._api.clock.now()):
                        yield replace(event, resume_token=new_token)
                    yield Heartbeat(self._api.clock.now(), new_token)  # listings are not remembered for long
                    listing = after
            except ProviderError as failed:
                if self._queue_error is None or failed.reason is not ErrorReason.UNSUPPORTED_OPERATION:
                    raise
                # The store names a queue, so that it works is expected: this is not a backend without a change feed.
                message = f"{self._queue_error.message}; without the queue: {failed.message}"
                raise ProviderError(self._queue_error.reason, message) from None

    def _since(self, topics: Topics, listing: Listing, token: str, begun: float) -> list[ChangeEvent]:
        """Return the changes that a caller with this token missed, including those during the opening of the stream."""
        now, new_token = self._api.clock.now(), self._listing_token(listing)
        events: list[ChangeEvent] = []
        before, stamp = self._listing_of(token)
        if before is not None:
            events += topics.changes(before, listing, now=now)
        elif token and stamp is None:
            events.append(ChangeEvent(ChangeType.RESYNC))
        since = begun - SKEW_SECONDS if stamp is None else stamp - LATE_SECONDS
        disconnected = before is None and stamp is not None
        events += topics.missed(listing, since=since if before is None else inf, disconnected=disconnected, now=now)
        return [replace(event, resume_token=new_token) for event in events]

    def _listing_token(self, listing: Listing) -> str:
        return f"looks {self._listings.name} {listing.number} {listing.latest:.3f}"

    def _listing_of(self, token: str) -> tuple[Listing | None, float | None]:
        """Return the listing of a token, and the time of the newest change in it."""
        match token.split(" "):
            case ["looks", name, number, stamp]:
                known = self._listings.remembered(_number(number)) if name == self._listings.name else None
                return known, _stamp(stamp)
        return None, None


def _condition(error: ProviderError) -> ConditionReport:
    message = f"{error.message}; until then changes are looked for every {poll_seconds():g} s or less often"
    return ConditionReport("ChangeQueue", "False", "QueueRefused", message)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _stamp(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) else None
