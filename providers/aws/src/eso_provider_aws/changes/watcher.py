"""The changes of one store: from its queue if it has a readable one, else from listings.

| token | meaning |
|---|---|
| `queue QUEUE PLACE` | a place in the log of a queue of this process |
| `looks LOOKS NUMBER STAMP` | a listing of this process, and the time of its newest change, for other processes |

An unknown token is answered with RESYNC; the README of this folder explains how subscriptions resume.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from math import inf, isfinite
from typing import Final

from eso_provider_aws.api import Api
from eso_provider_aws.changes.consumer import Consumer
from eso_provider_aws.changes.looks import PASSING, look_seconds
from eso_provider_aws.changes.queue import Entry
from eso_provider_aws.changes.shared import Shared
from eso_provider_aws.changes.source import Source
from eso_provider_aws.changes.topics import Look, Topics
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, ConditionReport, Heartbeat, WatchItem

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
        self._looks = shared.looks(api.identity.key, source, api.region)
        self._consumer: Consumer | None = None
        self._trouble: ProviderError | None = None

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
                    async with aclosing(self._heard(topics, token)) as events:
                        async for event in events:
                            token = event.resume_token or token
                            yield event
                except ProviderError as failed:
                    if failed.reason in PASSING:
                        raise
                    yield self._fallen_back(failed)
                retry_at = self._api.clock.monotonic() + QUEUE_RETRY_SECONDS
            async with aclosing(self._looked(topics, token, until=retry_at)) as found:
                async for event in found:
                    token = event.resume_token or token
                    yield event

    async def acknowledged(self, resume_token: str) -> None:
        """Delete the messages up to an acknowledged token."""
        consumer, place = self._consumer, self._place_in(resume_token)
        if consumer is not None and place is not None:
            await consumer.settle(self, place)

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return the condition of the queue; empty if it works."""
        trouble = self._trouble or (self._consumer.trouble if self._consumer is not None else None)
        return () if trouble is None else (_condition(trouble),)

    @property
    def is_refused(self) -> bool:
        """Return whether the store cannot report changes at present."""
        return self._looks.refusal is not None and (not self._queue_url or self._trouble is not None)

    async def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            consumer.queue.leave(self)
            await self._shared.leave(consumer)

    # --- queue -------------------------------------------------------------------------------------------------------

    async def _heard(self, topics: Topics, token: str) -> Events:
        if self._consumer is None:
            self._consumer = await self._shared.join(self._queue_url, self._api, self._sqs)
        consumer, queue = self._consumer, self._consumer.queue
        await consumer.prove()
        self._trouble = None
        with consumer.listening(self, topics):
            place = self._place_in(token)
            if place is None or queue.since(place) is None:
                place = queue.place
                if token:
                    yield self._resync(place)
            for unread in self._unread(topics, place):
                yield unread
            yield Heartbeat(self._api.clock.now(), self._queue_token(place))
            async with aclosing(self._followed(consumer, topics, place)) as events:
                async for event in events:
                    yield event

    async def _followed(self, consumer: Consumer, topics: Topics, place: int) -> Events:
        """Yield the changes after a place."""
        told, queue = place, consumer.queue
        while True:
            moved, entries = queue.moved, queue.since(place)
            if entries is None:  # more came than is kept
                place = told = queue.place
                yield self._resync(place)
                continue
            for entry in entries:
                place = entry.place
                if ids := topics.concerned(entry.change):
                    told = place
                    yield self._event(entry, ids)
            if place - told >= TOKEN_AFTER:
                told = place
                yield Heartbeat(self._api.clock.now(), self._queue_token(place))
            consumer.check()
            if place == queue.place:
                await moved.wait()

    def _unread(self, topics: Topics, place: int) -> list[ChangeEvent]:
        """Return changes between the read of a value and its watch, except those that the stream will still deliver."""
        if self._consumer is None:
            return []
        recent = self._consumer.queue.recent(READ_TO_WATCH_SECONDS, self._api.clock.monotonic())
        past = [(entry, topics.concerned(entry.change, unread=True)) for entry in recent if entry.place <= place]
        return [replace(self._event(entry, ids), resume_token=self._queue_token(place)) for entry, ids in past if ids]

    def _event(self, entry: Entry, ids: tuple[str, ...]) -> ChangeEvent:
        change = entry.change
        kind = ChangeType.DELETED if change.deleted else ChangeType.UPDATED
        at = change.at or self._api.clock.now()
        return ChangeEvent(kind, ids, change.version, at, resume_token=self._queue_token(entry.place))

    def _resync(self, place: int) -> ChangeEvent:
        return ChangeEvent(ChangeType.RESYNC, resume_token=self._queue_token(place))

    def _queue_token(self, place: int) -> str:
        return f"queue {self._consumer.queue.name} {place}" if self._consumer is not None else ""

    def _place_in(self, token: str) -> int | None:
        match token.split(" "):
            case ["queue", name, place] if self._consumer is not None and name == self._consumer.queue.name:
                return int(place) if place.isascii() and place.isdigit() else None
        return None

    def _fallen_back(self, failed: ProviderError) -> ChangeEvent:
        self._trouble = failed
        return ChangeEvent(ChangeType.CONDITION, condition=_condition(failed))

    # --- looks -------------------------------------------------------------------------------------------------------

    async def _looked(self, topics: Topics, token: str, *, until: float) -> Events:
        with self._looks.wanting(topics):
            try:
                begun = self._api.clock.now().timestamp()
                look = await self._looks.first(self._api)
                for event in self._since(topics, look, token, begun):
                    yield event
                yield Heartbeat(self._api.clock.now(), self._look_token(look))
                while (after := await self._looks.after(self._api, look, until=until)) is not None:
                    here = self._look_token(after)
                    for event in topics.changes(look, after, now=self._api.clock.now()):
                        yield replace(event, resume_token=here)
                    yield Heartbeat(self._api.clock.now(), here)  # looks are not remembered for long
                    look = after
            except ProviderError as failed:
                if self._trouble is None or failed.reason is not ErrorReason.UNSUPPORTED_OPERATION:
                    raise
                # The store names a queue, so that it works is expected: this is not a backend without a change feed.
                message = f"{self._trouble.message}; without the queue: {failed.message}"
                raise ProviderError(self._trouble.reason, message) from None

    def _since(self, topics: Topics, look: Look, token: str, begun: float) -> list[ChangeEvent]:
        """Return the changes that a caller with this token missed, including those during the opening of the stream."""
        now, here = self._api.clock.now(), self._look_token(look)
        events: list[ChangeEvent] = []
        before, stamp = self._look_in(token)
        if before is not None:
            events += topics.changes(before, look, now=now)
        elif token and stamp is None:
            events.append(ChangeEvent(ChangeType.RESYNC))
        since = begun - SKEW_SECONDS if stamp is None else stamp - LATE_SECONDS
        away = before is None and stamp is not None
        events += topics.missed(look, since=since if before is None else inf, away=away, now=now)
        return [replace(event, resume_token=here) for event in events]

    def _look_token(self, look: Look) -> str:
        return f"looks {self._looks.name} {look.number} {look.latest:.3f}"

    def _look_in(self, token: str) -> tuple[Look | None, float | None]:
        """Return the listing of a token, and the time of the newest change in it."""
        match token.split(" "):
            case ["looks", name, number, stamp]:
                known = self._looks.remembered(_number(number)) if name == self._looks.name else None
                return known, _stamp(stamp)
        return None, None


def _condition(trouble: ProviderError) -> ConditionReport:
    words = f"{trouble.message}; until then changes are looked for every {look_seconds():g} s or less often"
    return ConditionReport("ChangeQueue", "False", "QueueRefused", words)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _stamp(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) else None
