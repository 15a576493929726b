"""A queue of change events, received once for all stores that name it, with its unacknowledged messages.

    receive -> log -> every subscription, from its position       an unwatched change: deleted at once
            -> delivery, until all listeners acknowledge -------> deleted; else SQS redelivers it, as a duplicate

All identities share one `Queue` for each URL and region: separate receivers would take each other's messages. Each
identity still receives for itself (`consumer.py`), so a store without the right to read the queue gets no events.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from eso_provider_aws.changes.events import Change, NotAnEventError, change_in
from eso_provider_aws.changes.topics import Topics
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

    place: int
    change: Change
    received: float


@dataclass(slots=True)
class Delivery:
    """One message that at least one listener received."""

    place: int
    key: str
    waiting: set[Listener]
    handle: str = field(repr=False)


class Queue:
    """The log and the unacknowledged messages of one queue."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex[:12]
        self.place = 0
        """The place of the newest change."""
        self.moved = asyncio.Event()
        """Set and replaced when a change arrives."""
        self.unreadable = 0
        self._entries: deque[Entry] = deque(maxlen=LOG_ENTRIES)
        self._told: BoundedDict[str, None] = BoundedDict(2 * MAX_PENDING)
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

    def since(self, place: int) -> list[Entry] | None:
        """Return the changes after a place; None if some of them were evicted."""
        if not 0 <= place <= self.place:
            return None
        if place < self.place - len(self._entries):
            return None
        return [entry for entry in self._entries if entry.place > place]

    def recent(self, seconds: float, now: float) -> list[Entry]:
        """Return the changes of the last seconds."""
        return [entry for entry in self._entries if entry.received >= now - seconds]

    def wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def take(self, messages: Iterable[dict[str, Any]], now: float) -> list[str]:
        """Record the changes in messages; return the handles of those to delete at once."""
        needless: list[str] = []
        before = self.place
        for message in messages:
            message_id, handle = message.get("MessageId", ""), message["ReceiptHandle"]
            if delivery := self._pending.get(message_id):
                delivery.handle = handle  # only the newest handle can delete the message
            elif self._is_needless(message_id, handle, message.get("Body", ""), now):
                needless.append(handle)
        if self.place != before:
            self.wake()
        return needless

    def settle(self, listener: Listener, place: int) -> list[str]:
        """Record that a listener has read up to a place; return the handles of messages that all listeners read."""
        settled = []
        for message_id, delivery in list(self._pending.items()):
            if delivery.place <= place and listener in delivery.waiting:
                delivery.waiting.discard(listener)
                if not delivery.waiting:
                    del self._pending[message_id]
                    settled.append(delivery.handle)
        return settled

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
            _log.warning("a message of the queue is no event; it is deleted", so_far=self.unreadable)
            return True
        if change is None:
            return True
        key = change.event_id or message_id
        if key in self._told:
            return True  # a copy, or one that could not be deleted
        self.place += 1
        self._entries.append(Entry(self.place, change, now))
        waiting = {listener for listener, topics in self._listening.values() if topics.concerned(change)}
        if waiting:
            self._pending[message_id] = Delivery(self.place, key, waiting, handle)
        self._told[key] = None
        return not waiting

    def _expect_again(self, _message_id: str, delivery: Delivery) -> None:
        """Let the change of a dropped delivery through when SQS redelivers it."""
        self._told.pop(delivery.key, None)
