"""Merges reads of many callers into few calls: de-duplicated, batched, fanned out.

    read(bound, items) --+
    read(bound, items) --+--> window of one connection and identity --> distinct items --> batches --> Gateway.get
    read(bound, items) --+      (open for a moment)                                                       |
                         <------------------------- each caller gets its own items back ------------------+

Callers share a call only if they have the same connection, identity, token and policy. A caller that is cancelled does
not affect the others; items without a waiting caller are not read. A read joins a running call, or uses the result of
a recent one (`RecentReads`), only if that call started after the read was requested (`requested_at`). So no response is
older than its request.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from eso_api.values import SecretBytes
from eso_operator.providers.bytelimits import HeldBytes
from eso_operator.providers.errors import overloaded, restated
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import BatchSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy, CallToken, Connection
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, GetResult, NotModified, RemoteRef, Shape
from kubebase.clock import Clock
from kubebase.fairness import FairLimit
from kuberun.controller import detached, parked

_SPLIT: Final = frozenset({ErrorReason.PAYLOAD_TOO_LARGE, ErrorReason.INVALID_REQUEST})
"""Errors of a whole call that a single item may have caused: the call is split to isolate that item."""
_MAY_BE_EXPENSIVE: Final = re.compile(r"[@#*?|!\[{]")
"""The syntax of paths that can read a value more than once: modifiers, queries, wildcards, pipes and multipaths."""


class ReadBatcher:
    """Batches the reads of all callers. The process has one."""

    def __init__(self, gateway: Gateway, clock: Clock, *, settings: BatchSettings, metrics: ProviderMetrics) -> None:
        self._gateway = gateway
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._open: dict[BatchKey, _Window] = {}
        self._running_requests: dict[tuple[BatchKey, _Request], _Pending] = {}
        self._recent = RecentReads(
            seconds=settings.shared_seconds, items=settings.shared_items, size=settings.shared_bytes
        )
        self._running: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._waiting = FairLimit(settings.max_waiting_items)

    async def read(
        self,
        bound: BoundStore,
        items: Sequence[GetItem],
        *,
        requested_at: float | None = None,
        held: HeldBytes | None = None,
    ) -> list[GetResult]:
        """Return the outcome of each item, in order. Raises the error of the call if no item has a result.

        `requested_at` (monotonic) is when the caller made its request; None means now. The bytes of values are counted
        in `held`.
        """
        known = self._known(bound, items, requested_at)
        missing = [item for item in items if item.item_id not in known] if known else items
        fresh = await self._read(bound, missing, requested_at, held)
        if not known:
            return fresh
        by_id = {result.item_id: result for result in fresh}
        return [known.get(item.item_id) or by_id[item.item_id] for item in items]

    def _known(self, bound: BoundStore, items: Sequence[GetItem], requested_at: float | None) -> dict[str, GetResult]:
        """Return results that were read since the caller's request, under the caller's item ids."""
        if requested_at is None:
            return {}
        key, now = batch_key(bound), self._clock.monotonic()
        found = {
            item.item_id: _own(item.item_id, result)
            for item in items
            if (result := self._recent.find((key, _request_of(item)), requested_at, now)) is not None
        }
        if found:
            self._metrics.batch(bound.resolved.endpoint.label, items=0, wanted=len(found))
        return found

    async def _read(
        self, bound: BoundStore, items: Sequence[GetItem], requested_at: float | None, held: HeldBytes | None
    ) -> list[GetResult]:
        if not items:
            return []
        namespace = bound.resolved.caller.namespace
        if not self._waiting.may_take(namespace, len(items)):
            raise overloaded(bound.resolved.endpoint.label, self._waiting.taken)
        reader = _Reader(bound, len(items), asyncio.get_running_loop().create_future(), held)
        self._join(bound, items, reader, requested_at)
        self._waiting.take(namespace, len(items))
        try:
            async with parked(cancel_if_deleted=True):
                await reader.done
        finally:
            self._waiting.give_back(namespace, len(items))
            reader.done.cancel()  # if the caller was cancelled, this marks that it no longer waits
            self._cancel_unwanted(reader)
            reader.pending.clear()  # the requests refer to their readers: a cycle that would keep the values in memory
        return reader.results(items)

    def _cancel_unwanted(self, reader: _Reader) -> None:
        """Cancel the calls of a reader that no other reader waits for."""
        for call in {each.call for each in reader.pending if each.call is not None}:
            if not call.is_wanted:
                for each in call.batch:  # no read may join it from here on
                    self._end_joining(call.key, each)
                call.task.cancel()

    async def close(self) -> None:
        """Cancel all running calls and their readers."""
        for task in list(self._running):
            task.cancel()
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def _join(self, bound: BoundStore, items: Sequence[GetItem], reader: _Reader, requested_at: float | None) -> None:
        """Attach each item to a running call that began after `requested_at`, else to the next one."""
        key = batch_key(bound)
        for index, item in enumerate(items):
            request, slot = _request_of(item), _Slot(reader, index)
            running = self._running_requests.get((key, request))
            if running is not None and requested_at is not None and requested_at <= running.since:
                running.slots.append(slot)
                reader.pending.append(running)
            else:
                self._window(key, bound).wanted.setdefault(request, []).append(slot)

    def _window(self, key: BatchKey, bound: BoundStore) -> _Window:
        window = self._open.get(key)
        if window is None:
            window = self._open[key] = _Window(bound)
            self._start(self._run_window(key, window))
        return window

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=detached())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run_window(self, key: BatchKey, window: _Window) -> None:
        try:
            await self._clock.sleep(self._settings.merge_window)
            del self._open[key]  # later reads join a running call or open the next window
            with self._joinable(key, window) as pending:
                async with asyncio.TaskGroup() as group:
                    for bound, batch in self._batches(window.bound, pending):
                        group.create_task(self._call_batch(bound, batch))
        except Exception as defect:  # noqa: BLE001 - a defect of ours, which every reader has to get
            window.fail(defect)
        finally:
            if self._open.get(key) is window:
                del self._open[key]
            window.abandon()

    @contextmanager
    def _joinable(self, key: BatchKey, window: _Window) -> Iterator[list[_Pending]]:
        """Let reads that were requested before this moment join, until the response. A newer call replaces an older."""
        pending = window.requests(self._clock.monotonic())
        self._running_requests |= {(key, each.request): each for each in pending}
        try:
            yield pending
        finally:
            for each in pending:
                self._end_joining(key, each)

    def _end_joining(self, key: BatchKey, pending: _Pending) -> None:
        if self._running_requests.get((key, pending.request)) is pending:
            del self._running_requests[key, pending.request]

    def _batches(self, bound: BoundStore, pending: list[_Pending]) -> Iterator[tuple[BoundStore, list[_Pending]]]:
        """Yield one batch if all items fit; else batches by namespace, because call slots are shared by namespace.

        Items whose property may be expensive are never in a batch with those of another namespace: a provider limits
        such lookups by call and by namespace.
        """
        accepted = bound.resolved.handshake.limits.max_batch_items
        size = min(self._settings.max_batch_items, accepted or self._settings.max_batch_items)
        if len(pending) <= size and not any(_MAY_BE_EXPENSIVE.search(each.request.ref.property) for each in pending):
            yield bound, pending
            return
        by_namespace: dict[str, list[_Pending]] = {}
        for each in pending:
            by_namespace.setdefault(each.bound.resolved.caller.namespace, []).append(each)
        for of_namespace in by_namespace.values():
            for start in range(0, len(of_namespace), size):
                yield of_namespace[start].bound, of_namespace[start : start + size]

    async def _call_batch(self, bound: BoundStore, batch: list[_Pending]) -> None:
        """Make one call. If a single item may have caused its failure, make two calls of half the size."""
        batch = [each for each in batch if each.is_wanted]
        if not batch:
            return
        items = [_item(str(number), each.request) for number, each in enumerate(batch)]
        wanted = sum(len(each.slots) for each in batch)
        self._metrics.batch(bound.resolved.endpoint.label, items=len(batch), wanted=wanted)
        key = batch_key(bound)

        def finish(results: Sequence[GetResult]) -> None:
            for result in results:
                self._finish(key, batch[int(result.item_id)], result)

        call = _RunningCall(key, batch, asyncio.ensure_future(self._gateway.get(bound, items, on_final=finish)))
        try:
            results = await call.result()
        except _CallEndedError:
            return
        except ProviderError as error:
            if error.reason not in _SPLIT or len(batch) == 1:
                for each in batch:
                    self._end_joining(key, each)
                    each.fail(error)
                return
        else:
            finish(results)
            self._sweep_later()
            return
        middle = len(batch) // 2
        await self._call_batch(bound, batch[:middle])
        await self._call_batch(bound, batch[middle:])

    def _finish(self, key: BatchKey, pending: _Pending, result: GetResult) -> None:
        """Deliver the result to the readers of one request, once."""
        if not pending.is_finished:
            pending.is_finished = True
            self._end_joining(key, pending)
            self._recent.store((key, pending.request), result, pending.since)
            pending.deliver(result)

    def _sweep_later(self) -> None:
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = self._start(self._sweep())

    async def _sweep(self) -> None:
        """Expire recent results even if reads stop."""
        while self._recent:
            await self._clock.sleep(self._settings.shared_seconds)
            self._recent.expire(self._clock.monotonic())


class BatchKey(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a caller that its results depend on; equal for callers that may share a call.

    Several tables are searched for each item of a read, so the hash is computed once.
    """

    connection: str
    identity: str
    call_token: CallToken | None
    policy: CallPolicy


def batch_key(bound: BoundStore) -> BatchKey:
    resolved = bound.resolved
    return BatchKey(
        Connection(resolved.endpoint, resolved.tls).key, bound.identity, resolved.call_token, resolved.policy
    )


class _Request(NamedTuple):
    ref: RemoteRef
    shape: Shape
    if_version_differs: str


def _request_of(item: GetItem) -> _Request:
    return _Request(item.ref, item.shape, item.if_version_differs)


def _item(item_id: str, request: _Request) -> GetItem:
    return GetItem(item_id, request.ref, request.shape, request.if_version_differs)


@dataclass(slots=True, eq=False)
class _Reader:
    """One caller: its results so far, and the future that it waits for."""

    bound: BoundStore
    missing: int
    done: asyncio.Future[None]
    held: HeldBytes | None = None
    pending: list[_Pending] = field(default_factory=list)
    received: dict[int, GetResult | ProviderError] = field(default_factory=dict)

    def take(self, index: int, result: GetResult | ProviderError) -> None:
        """Record one result. A caller that would hold too many bytes fails at once and drops all results."""
        if self.done.done():
            return
        try:
            if self.held is not None and isinstance(result, GetResult):
                self.held.add(size_of(result) or 0)
        except ProviderError as refused:
            self.received.clear()
            self.done.set_exception(refused)
            return
        self.received[index] = result
        self.missing -= 1
        if self.missing == 0 and not self.done.done():
            self.done.set_result(None)

    def results(self, items: Sequence[GetItem]) -> list[GetResult]:
        failures = [each for each in self.received.values() if isinstance(each, ProviderError)]
        if len(failures) == len(items):
            raise restated(failures[0])
        return [_own(item.item_id, self.received[index]) for index, item in enumerate(items)]


def _own(item_id: str, result: GetResult | ProviderError) -> GetResult:
    """Return the result under the caller's item id; exceptions are copied, never shared between callers."""
    if isinstance(result, ProviderError):
        return GetResult(item_id, restated(result))
    if isinstance(result.outcome, ProviderError):
        return GetResult(item_id, restated(result.outcome), result.metadata)
    return GetResult(item_id, result.outcome, result.metadata)


class _Slot(NamedTuple):
    """One item of one caller."""

    reader: _Reader
    position: int


class _CallEndedError(Exception):
    """The call was cancelled because all its readers were."""


@dataclass(slots=True, eq=False)
class _RunningCall:
    """A running call and its requests."""

    key: BatchKey
    batch: list[_Pending]
    task: asyncio.Future[tuple[GetResult, ...]]

    def __post_init__(self) -> None:
        for each in self.batch:
            each.call = self

    @property
    def is_wanted(self) -> bool:
        return any(each.is_wanted for each in self.batch)

    async def result(self) -> tuple[GetResult, ...]:
        try:
            return await self.task
        except asyncio.CancelledError:
            if self.task.cancelled() and not self.is_wanted:
                raise _CallEndedError from None
            self.task.cancel()
            raise
        finally:
            for each in self.batch:
                each.call = None


@dataclass(slots=True, eq=False)
class _Pending:
    """One distinct request, all its readers, and a time (monotonic) before its call."""

    request: _Request
    slots: list[_Slot]
    since: float
    call: _RunningCall | None = None
    """Its running call."""
    is_finished: bool = False

    @property
    def is_wanted(self) -> bool:
        """Return whether a reader still waits for the result."""
        return any(not slot.reader.done.done() for slot in self.slots)

    @property
    def bound(self) -> BoundStore:
        """Return the store of a reader that still waits, or of the first one."""
        waiting = (slot.reader for slot in self.slots if not slot.reader.done.done())
        return next(waiting, self.slots[0].reader).bound

    def deliver(self, result: GetResult) -> None:
        for slot in self.slots:
            slot.reader.take(slot.position, result)

    def fail(self, error: ProviderError) -> None:
        for slot in self.slots:
            slot.reader.take(slot.position, error)


@dataclass(slots=True, eq=False)
class _Window:
    bound: BoundStore
    wanted: dict[_Request, list[_Slot]] = field(default_factory=dict)

    def requests(self, now: float) -> list[_Pending]:
        """Return the requests that a reader still waits for."""
        made = [_Pending(request, slots, now) for request, slots in self.wanted.items()]
        for each in made:
            for slot in each.slots:
                slot.reader.pending.append(each)
        return [each for each in made if each.is_wanted]

    def fail(self, defect: Exception) -> None:
        for reader in self._waiting():
            error = ProviderError(ErrorReason.INTERNAL, f"reading failed inside the operator: {type(defect).__name__}")
            error.__cause__ = defect
            reader.done.set_exception(error)

    def abandon(self) -> None:
        """Cancel the readers that are still waiting when the work has ended."""
        for reader in self._waiting():
            reader.done.cancel()

    def _waiting(self) -> Iterator[_Reader]:
        """Yield the readers that still miss a result of this window."""
        for slots in self.wanted.values():
            for slot in slots:
                if not slot.reader.done.done() and slot.position not in slot.reader.received:
                    yield slot.reader


# --- recent results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RecentRead:
    read_at: float
    result: GetResult
    size: int


class RecentReads:
    """A short-lived cache of values, for requests that were made before the value was read. Times are monotonic.

    A thousand objects can become due at once and are reconciled a few at a time. A value that the first ones read is
    fresh for those that still wait, because they made their requests before it was read. A value that was read before a
    request is never its result. Entries expire within a minute; the oldest are evicted.
    """

    def __init__(self, *, seconds: float, items: int, size: int) -> None:
        self._seconds = seconds
        self._items = items
        self._size = size
        self._held = 0
        self._entries: OrderedDict[Hashable, _RecentRead] = OrderedDict()

    def find(self, request: Hashable, requested_at: float, now: float) -> GetResult | None:
        """Return a result that was read after `requested_at`; None if there is none."""
        entry = self._entries.get(request)
        if entry is None or entry.read_at < requested_at or now - entry.read_at > self._seconds:
            return None
        return entry.result

    def store(self, request: Hashable, result: GetResult, read_at: float) -> None:
        """Cache a result if it is a value or "not found"; other errors are not cached."""
        size = size_of(result)
        if size is None or size > self._size // 4:
            return
        self._remove(request)
        self._entries[request] = _RecentRead(read_at, result, size)
        self._held += size
        while len(self._entries) > self._items or self._held > self._size:
            self._remove(next(iter(self._entries)))

    def expire(self, now: float) -> None:
        """Remove expired entries."""
        old = [request for request, entry in self._entries.items() if now - entry.read_at > self._seconds]
        for request in old:
            self._remove(request)

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, request: Hashable) -> None:
        if (entry := self._entries.pop(request, None)) is not None:
            self._held -= entry.size


def size_of(result: GetResult) -> int | None:
    match result.outcome:
        case SecretBytes() as value:
            return len(value)
        case ProviderError() as error:
            return len(error.message) if error.is_not_found else None
        case NotModified():
            return None
        case Mapping() as values:
            return sum(len(key) + len(value) for key, value in values.items())
