"""The changes of one subscription under one identity, pulled once for all stores that name it.

pull -> log -> every stream, from its position        a change that no store watches: acknowledged at once
     -> pending, until all its listeners have read it -> acknowledged
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from eso_provider_gcp.changes.subscription import Change, Message, Subscription
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

LOG_ENTRIES: Final = 2000
MAX_PENDING: Final = 4000
"""The limit of messages that are not acknowledged. Pub/Sub delivers the ones beyond it again."""
MAX_FAILURES: Final = 5
PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
IDLE_SECONDS: Final = 1.0
"""The pause after an empty pull."""
RECENT_SECONDS: Final = 10.0
"""A stream without a position gets the changes of the last seconds: it may have been opening then."""

_PASSING: Final = frozenset(
    {ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_ERROR}
)
_log = structlog.get_logger("eso_provider_gcp.changes")

Concerned = Callable[[Change], bool]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change in the order of receipt."""

    position: int
    change: Change
    received: float


@dataclass(slots=True)
class _Pending:
    position: int
    waiting: set[object]
    ack_id: str = field(repr=False)


class Feed:
    """The log and the unacknowledged messages of one subscription."""

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self.subscription = subscription
        self.name = uuid.uuid4().hex[:12]
        self.position = 0
        self.users = 0
        """The stores that name this subscription."""
        self.moved = asyncio.Event()
        """Set and replaced when a change arrives, or the pulling fails."""
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=LOG_ENTRIES)
        self._pending: BoundedDict[str, _Pending] = BoundedDict(MAX_PENDING)
        self._listening: dict[int, tuple[object, Concerned]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def listening(self, listener: object, concerned: Concerned) -> Iterator[None]:
        """Pull inside the block. The last listener that leaves stops it."""
        number = id(concerned)
        self._listening[number] = (listener, concerned)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)
        try:
            yield
        finally:
            del self._listening[number]
            if not self._listening:
                self._task.cancel()

    def check(self) -> None:
        """Raise the error that ended the pulling, if any."""
        task = self._task
        if task is not None and task.done() and not task.cancelled() and (failed := task.exception()):
            raise failed.with_traceback(None)

    def since(self, position: int) -> list[Entry] | None:
        """Return the changes after a position; None if some of them are forgotten."""
        if not self.position - len(self._entries) <= position <= self.position:
            return None
        return [entry for entry in self._entries if entry.position > position]

    def recent(self) -> int:
        """Return the position before the changes of the last seconds."""
        old = [entry.position for entry in self._entries if entry.received < self._clock.monotonic() - RECENT_SECONDS]
        return old[-1] if old else self.position - len(self._entries)

    async def acknowledge(self, listener: object, position: int) -> None:
        """Acknowledge the messages up to a position for which this was the last listener."""
        ack_ids = []
        for message_id, pending in list(self._pending.items()):
            if pending.position <= position and listener in pending.waiting:
                pending.waiting.discard(listener)
                if not pending.waiting:
                    del self._pending[message_id]
                    ack_ids.append(pending.ack_id)
        await self.subscription.acknowledge(ack_ids)

    def leave(self, listener: object) -> None:
        """Forget a store. Pub/Sub delivers again what only this one had to read."""
        for message_id, pending in list(self._pending.items()):
            pending.waiting.discard(listener)
            if not pending.waiting:
                del self._pending[message_id]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.subscription.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                messages = await self.subscription.pull()
                await self._acknowledge([ack for each in messages if (ack := self._taken(each))])
                failures = 0
            except ProviderError as failed:
                failures += 1
                if failed.reason not in _PASSING or failures >= MAX_FAILURES:
                    raise
                await self._clock.sleep(max(PAUSES[failures - 1], failed.retry_after))
                continue
            if messages:
                self._wake()
            else:
                await self._clock.sleep(IDLE_SECONDS)

    def _taken(self, message: Message) -> str:
        """Record a message; return its acknowledgement if no store waits for it."""
        if known := self._pending.get(message.message_id):
            known.ack_id = message.ack_id  # only the newest one counts
            return ""
        change = message.change
        if change is None:
            return message.ack_id
        self.position += 1
        self._entries.append(Entry(self.position, change, self._clock.monotonic()))
        waiting = {listener for listener, concerned in self._listening.values() if concerned(change)}
        if waiting:
            self._pending[message.message_id] = _Pending(self.position, waiting, message.ack_id)
        return "" if waiting else message.ack_id

    async def _acknowledge(self, ack_ids: list[str]) -> None:
        try:
            await self.subscription.acknowledge(ack_ids)
        except ProviderError as failed:
            _log.warning("messages not acknowledged; Pub/Sub redelivers them", reason=failed.reason.value)

    def _wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._wake()
