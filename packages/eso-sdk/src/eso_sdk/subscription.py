"""One subscription: an author's changes, heartbeats between them, and changing watches.

SubscribeOpen -> author's subscribe(items, token) -> ChangeEvent ... Heartbeat ...
SubscribeUpdate -> the same again with the new items, from the last token on
SubscribeAck -> author's acknowledged(token), concurrently with the stream
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, assert_never

import structlog

from eso_sdk.errors import invalid_request
from eso_sdk.reading import closing
from eso_sdk.redaction import CallRedactor
from eso_sdk.results import stream_of
from eso_sdk.store import Store
from eso_sdk.tracebacks import FAILURES, seat
from eso_wire.bounds import MAX_WATCHES
from eso_wire.values import (
    ChangeEvent,
    Heartbeat,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)
from kubebase.clock import Clock
from kubebase.deadline import Deadline

_log = structlog.get_logger("eso_sdk.subscription")

HEARTBEAT_SECONDS: Final = 30.0
ACKNOWLEDGE_SECONDS: Final = 30.0
"""Time limit for the author's acknowledgement. The caller acknowledges about once a minute."""

Event = ChangeEvent | Heartbeat
Emit = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HeartbeatSchedule:
    """The interval of heartbeats."""

    clock: Clock
    seconds: float = HEARTBEAT_SECONDS


class Subscription:
    """Runs until the author's changes end, the caller leaves, or an error occurs."""

    def __init__(self, store: Store[Any], opened: SubscribeOpen, emit: Emit, schedule: HeartbeatSchedule) -> None:
        self._store = store
        self._emit = emit
        self._schedule = schedule
        self._items: dict[str, WatchItem] = {item.watch_id: item for item in opened.items}
        self._resume_token = opened.resume_token
        self._writing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._acknowledged = ""
        self._settled = asyncio.Event()

    async def run(self, incoming: AsyncIterator[SubscribeMessage]) -> None:
        """Run until the changes end. If the caller stops sending, it still receives events."""
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(self._send_heartbeats())
            listening = group.create_task(self._listen(incoming))
            settling = group.create_task(self._acknowledgements())
            await self._follow()
            for task in (beats, listening, settling):
                task.cancel()

    async def _follow(self) -> None:
        """Follow the author's changes; restart them whenever the watches change."""
        while True:
            self._changed.clear()
            changes = asyncio.ensure_future(self._changes())
            woken = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((changes, woken), return_when=asyncio.FIRST_COMPLETED)
                if changes.done():
                    return changes.result()
            finally:
                await _ended(changes, woken)

    async def _changes(self) -> None:
        stream = stream_of(self._store.subscribe(tuple(self._items.values()), self._resume_token), "subscribe")
        async with closing(stream) as events:
            async for event in events:
                self._resume_token = event.resume_token or self._resume_token
                await self._write(event)

    async def _send_heartbeats(self) -> None:
        """Send heartbeats. The first is sent at once: it confirms the subscription."""
        while True:
            await self._write(Heartbeat(self._schedule.clock.now(), self._resume_token))
            await self._schedule.clock.sleep(self._schedule.seconds)

    async def _listen(self, incoming: AsyncIterator[SubscribeMessage]) -> None:
        async for message in incoming:
            match message:
                case SubscribeUpdate():
                    self._update(message)
                case SubscribeAck(resume_token=token):
                    self._acknowledged = token
                    self._settled.set()
                case SubscribeOpen():
                    raise invalid_request("a subscription is opened once; open another stream for another store")
                case _ as never:
                    assert_never(never)

    async def _acknowledgements(self) -> None:
        """Pass on acknowledgements one at a time; of those that arrive meanwhile, the last covers all others."""
        while True:
            await self._settled.wait()
            self._settled.clear()
            if self._acknowledged:
                await self._acknowledge(self._acknowledged)

    async def _acknowledge(self, token: str) -> None:
        """Acknowledge one token. The stream survives a failure: a later acknowledgement covers this one."""
        try:
            async with Deadline(self._schedule.clock, ACKNOWLEDGE_SECONDS):
                await self._store.acknowledged(token)
        except FAILURES as exc:  # author code may raise anything
            # Type and place only: the author's message may contain secrets.
            reason = CallRedactor(()).of_exception(exc).reason.value
            _log.warning("acknowledgement failed; a later one covers it", reason=reason, error=seat(exc))

    def _update(self, update: SubscribeUpdate) -> None:
        for watch_id in update.remove:
            self._items.pop(watch_id, None)
        self._items |= {item.watch_id: item for item in update.add}
        if len(self._items) > MAX_WATCHES:
            raise invalid_request(f"a subscription takes at most {MAX_WATCHES} watches")
        self._changed.set()

    async def _write(self, event: Event) -> None:
        """Write one message at a time, each to its end: gRPC loses a status that follows an abandoned write."""
        async with self._writing:
            writing = asyncio.ensure_future(self._emit(event))
            try:
                await asyncio.shield(writing)
            finally:
                await asyncio.wait((writing,))


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel and wait: an author's generator must be closed before the next one starts."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
