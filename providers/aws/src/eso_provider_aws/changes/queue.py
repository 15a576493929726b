"""A queue of events, received once for everybody who names it, and what of it still has to be acknowledged.

    receive -> log -> every subscription, from where it is        a change nobody watches: deleted at once
            -> delivery, until all who were told acknowledge ----> deleted; not deleted: it comes again, and is known

One `Queue` for each URL and region, whoever names it: two that receive apart would take each other's messages. Each
identity receives for itself all the same (`consumer.py`), so that nobody hears of a queue that they may not read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from eso_provider_aws.changes.events import Change, NotAnEventError, change_in
from eso_provider_aws.changes.topics import Topics

_log = structlog.get_logger("eso_provider_aws.changes")

LOG_ENTRIES: Final = 2000
"""Changes that a subscription which was away for a moment can go on from."""
MAX_PENDING: Final = 4000
"""Messages that wait for an acknowledgement. Of more, the oldest come again and are told again."""

Listener = object
"""Who acknowledges: a store."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change in the order of receipt."""

    place: int
    change: Change
    received: float


@dataclass(slots=True)
class Delivery:
    """One message that somebody was told of."""

    place: int
    key: str
    waiting: set[Listener]
    handle: str = field(repr=False)


class Queue:
    """What is known of one queue."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex[:12]
        self.place = 0
        """Of the newest change."""
        self.moved = asyncio.Event()
        """Set, and replaced, when there is something new."""
        self.unreadable = 0
        self._entries: deque[Entry] = deque(maxlen=LOG_ENTRIES)
        self._pending: OrderedDict[str, Delivery] = OrderedDict()
        self._told: OrderedDict[str, None] = OrderedDict()
        self._listening: dict[int, tuple[Listener, Topics]] = {}

    @contextmanager
    def listening(self, listener: Listener, topics: Topics) -> Iterator[None]:
        """Be asked to acknowledge what concerns these."""
        number = id(topics)
        self._listening[number] = (listener, topics)
        try:
            yield
        finally:
            del self._listening[number]

    def since(self, place: int) -> list[Entry] | None:
        """The changes after a place; None if some of them are forgotten."""
        if not 0 <= place <= self.place:
            return None
        if place < self.place - len(self._entries):
            return None
        return [entry for entry in self._entries if entry.place > place]

    def recent(self, seconds: float, now: float) -> list[Entry]:
        """The changes of the last seconds."""
        return [entry for entry in self._entries if entry.received >= now - seconds]

    def wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def take(self, messages: Iterable[dict[str, Any]], now: float) -> list[str]:
        """Note what messages say; the handles of those to delete."""
        needless: list[str] = []
        before = self.place
        for message in messages:
            message_id, handle = message.get("MessageId", ""), message["ReceiptHandle"]
            if delivery := self._pending.get(message_id):
                delivery.handle = handle  # only the newest deletes
            elif self._is_needless(message_id, handle, message.get("Body", ""), now):
                needless.append(handle)
        if self.place != before:
            self.wake()
        return needless

    def settle(self, listener: Listener, place: int) -> list[str]:
        """A listener has read everything up to a place; the handles of messages that nobody waits for any more."""
        settled = []
        for message_id, delivery in list(self._pending.items()):
            if delivery.place <= place and listener in delivery.waiting:
                delivery.waiting.discard(listener)
                if not delivery.waiting:
                    del self._pending[message_id]
                    settled.append(delivery.handle)
        return settled

    def leave(self, listener: Listener) -> None:
        """A listener will not acknowledge any more. What only it was told of comes again, for others."""
        for message_id, delivery in list(self._pending.items()):
            delivery.waiting.discard(listener)
            if not delivery.waiting:
                self._drop(message_id)

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
        self._told[key] = None
        if waiting:
            self._pending[message_id] = Delivery(self.place, key, waiting, handle)
        self._shrink()
        return not waiting

    def _shrink(self) -> None:
        while len(self._pending) > MAX_PENDING:
            self._drop(next(iter(self._pending)))
        while len(self._told) > 2 * MAX_PENDING:
            self._told.popitem(last=False)

    def _drop(self, message_id: str) -> None:
        self._told.pop(self._pending.pop(message_id).key, None)
