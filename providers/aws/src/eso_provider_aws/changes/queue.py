"""A queue of change events, received once for all stores that name it, with its unacknowledged messages.

    receive -> log -> every subscription, from its position       an unwatched change: deleted at once
            -> delivery, until all listeners acknowledge -------> deleted; else SQS redelivers it, as a duplicate

All identities share one `Queue` for each URL and region: separate receivers would take each other's messages. Each
identity still receives for itself (`Consumer`), so a store without the right to read the queue gets no events. A
consumer runs while a subscription is open. If the queue is missing or access is denied, it waits ten minutes before it
tries again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from eso_provider_aws.api import Api
from eso_provider_aws.changes.events import Change, NotAnEventError, change_in
from eso_provider_aws.changes.listings import PASSING
from eso_provider_aws.changes.topics import Topics
from eso_sdk.errors import invalid_config
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict

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
