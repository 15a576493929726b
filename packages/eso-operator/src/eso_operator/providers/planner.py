"""Merges reads of many callers into few calls: de-duplicated, batched, fanned out.

    read(bound, items) --+
    read(bound, items) --+--> window of one connection and identity --> distinct items --> batches --> gateway.get
    read(bound, items) --+      (open for a moment)                                                       |
                         <------------------------- each caller gets its own items back ------------------+

Callers share a call only if they have the same connection, identity, token and policy. A caller that is cancelled does
not affect the others; items without a waiting caller are not read. A read joins a running call, or uses the result of
a recent one (`recent.py`), only if that call started after the read was asked for (`asked_at`). So no answer is older
than its question.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from eso_operator.providers.errors import overloaded, restated
from eso_operator.providers.metrics import RuntimeMetrics
from eso_operator.providers.protection.weights import Hold, current_hold
from eso_operator.providers.recent import RecentReads, size_of
from eso_operator.providers.settings import PlannerSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy, CallToken, Connection
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import GetItem, GetResult, RemoteRef, Shape
from kubebase.clock import Clock
from kubebase.fairness import FairLimit
from kuberun.controller import detached, parked

_SPLIT = frozenset({ErrorReason.PAYLOAD_TOO_LARGE, ErrorReason.INVALID_REQUEST})
"""Errors of a whole call that a single item may have caused: the call is split to isolate that item."""
_MAY_BE_EXPENSIVE = re.compile(r"[@#*?|!\[{]")
"""The syntax of paths that can read a value more than once: modifiers, queries, wildcards, pipes and multipaths."""

Settled = Callable[[Sequence[GetResult]], None]
"""Receives the final results of a call that is about to retry its other items."""


class Reads(Protocol):
    """The part of the gateway that is used here."""

    async def get(
        self, bound: BoundStore, items: Sequence[GetItem], *, settled: Settled | None = None
    ) -> tuple[GetResult, ...]: ...


class ReadPlanner:
    """Plans the reads of all callers. The process has one."""

    def __init__(self, gateway: Reads, clock: Clock, *, settings: PlannerSettings, metrics: RuntimeMetrics) -> None:
        self._gateway = gateway
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._open: dict[_Eyes, _Window] = {}
        self._on_the_way: dict[tuple[_Eyes, _Question], _Asked] = {}
        self._recent = RecentReads(
            seconds=settings.shared_seconds, items=settings.shared_items, size=settings.shared_bytes
        )
        self._running: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._waiting = FairLimit(settings.max_waiting_items)

    async def read(
        self, bound: BoundStore, items: Sequence[GetItem], *, asked_at: float | None = None
    ) -> list[GetResult]:
        """Return the outcome of each item, in order. Raises the error of the call if no item got an answer.

        `asked_at` (monotonic) is when the caller asked; None means now.
        """
        known = self._known(bound, items, asked_at)
        missing = [item for item in items if item.item_id not in known] if known else items
        fresh = await self._read(bound, missing, asked_at)
        if not known:
            return fresh
        by_id = {result.item_id: result for result in fresh}
        return [known.get(item.item_id) or by_id[item.item_id] for item in items]

    def _known(self, bound: BoundStore, items: Sequence[GetItem], asked_at: float | None) -> dict[str, GetResult]:
        """Return results that were read since the caller asked, under the caller's item ids."""
        if asked_at is None:
            return {}
        eyes, now = _eyes(bound), self._clock.monotonic()
        found = {
            item.item_id: _own(item.item_id, result)
            for item in items
            if (result := self._recent.answer((eyes, _question(item)), asked_at, now)) is not None
        }
        if found:
            self._metrics.batch(bound.resolved.endpoint.label, items=0, wanted=len(found))
        return found

    async def _read(self, bound: BoundStore, items: Sequence[GetItem], asked_at: float | None) -> list[GetResult]:
        if not items:
            return []
        namespace = bound.resolved.caller.namespace
        if not self._waiting.may_take(namespace, len(items)):
            raise overloaded(bound.resolved.endpoint.label, self._waiting.taken)
        reader = _Reader(bound, len(items), asyncio.get_running_loop().create_future(), current_hold())
        self._join(bound, items, reader, asked_at)
        self._waiting.take(namespace, len(items))
        try:
            async with parked(cancel_if_deleted=True):
                await reader.answered
        finally:
            self._waiting.give_back(namespace, len(items))
            reader.answered.cancel()  # if the caller was cancelled, this marks that it no longer waits
            self._left(reader)
            reader.asked.clear()  # the questions refer to their readers: a cycle that would keep the values in memory
        return reader.results(items)

    def _left(self, reader: _Reader) -> None:
        """Cancel the calls of a reader that no other reader waits for."""
        for call in {each.call for each in reader.asked if each.call is not None}:
            if not call.is_wanted:
                for each in call.batch:  # no read may join it from here on
                    self._over(call.eyes, each)
                call.task.cancel()

    async def close(self) -> None:
        """Cancel all running calls and their readers."""
        for task in list(self._running):
            task.cancel()
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def _join(self, bound: BoundStore, items: Sequence[GetItem], reader: _Reader, asked_at: float | None) -> None:
        """Attach each item to a running call that began after `asked_at`, else to the next one."""
        eyes = _eyes(bound)
        for index, item in enumerate(items):
            question, slot = _question(item), _Slot(reader, index)
            under_way = self._on_the_way.get((eyes, question))
            if under_way is not None and asked_at is not None and asked_at <= under_way.since:
                under_way.slots.append(slot)
                reader.asked.append(under_way)
            else:
                self._window(eyes, bound).wanted.setdefault(question, []).append(slot)

    def _window(self, eyes: _Eyes, bound: BoundStore) -> _Window:
        window = self._open.get(eyes)
        if window is None:
            window = self._open[eyes] = _Window(bound)
            self._start(self._serve(eyes, window))
        return window

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=detached())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _serve(self, eyes: _Eyes, window: _Window) -> None:
        try:
            await self._clock.sleep(self._settings.merge_window)
            del self._open[eyes]  # later reads join an announced call or open the next window
            with self._announced(eyes, window) as asked:
                async with asyncio.TaskGroup() as group:
                    for bound, batch in self._batches(window.bound, asked):
                        group.create_task(self._ask(bound, batch))
        except Exception as defect:  # noqa: BLE001 - a defect of ours, which every reader has to get
            window.fail(defect)
        finally:
            if self._open.get(eyes) is window:
                del self._open[eyes]
            window.abandon()

    @contextmanager
    def _announced(self, eyes: _Eyes, window: _Window) -> Iterator[list[_Asked]]:
        """Let reads that were asked for before this moment join, until the answer. A newer call replaces an older."""
        asked = window.asked(self._clock.monotonic())
        self._on_the_way |= {(eyes, each.question): each for each in asked}
        try:
            yield asked
        finally:
            for each in asked:
                self._over(eyes, each)

    def _over(self, eyes: _Eyes, asked: _Asked) -> None:
        if self._on_the_way.get((eyes, asked.question)) is asked:
            del self._on_the_way[eyes, asked.question]

    def _batches(self, bound: BoundStore, asked: list[_Asked]) -> Iterator[tuple[BoundStore, list[_Asked]]]:
        """Yield one batch if all items fit; else batches by namespace, because call slots are shared by namespace.

        Items whose property may be expensive are never in a batch with those of another namespace: a provider limits
        such lookups by call and by namespace.
        """
        told = bound.resolved.handshake.limits.max_batch_items
        size = min(self._settings.max_batch_items, told or self._settings.max_batch_items)
        if len(asked) <= size and not any(_MAY_BE_EXPENSIVE.search(each.question.ref.property) for each in asked):
            yield bound, asked
            return
        by_namespace: dict[str, list[_Asked]] = {}
        for each in asked:
            by_namespace.setdefault(each.bound.resolved.caller.namespace, []).append(each)
        for mine in by_namespace.values():
            for start in range(0, len(mine), size):
                yield mine[start].bound, mine[start : start + size]

    async def _ask(self, bound: BoundStore, batch: list[_Asked]) -> None:
        """Make one call. If a single item may have caused its failure, make two calls of half the size."""
        batch = [each for each in batch if each.is_wanted]
        if not batch:
            return
        items = [_item(str(number), each.question) for number, each in enumerate(batch)]
        wanted = sum(len(each.slots) for each in batch)
        self._metrics.batch(bound.resolved.endpoint.label, items=len(batch), wanted=wanted)
        eyes = _eyes(bound)

        def settle(results: Sequence[GetResult]) -> None:
            for result in results:
                self._settle(eyes, batch[int(result.item_id)], result)

        call = _Call(eyes, batch, asyncio.ensure_future(self._gateway.get(bound, items, settled=settle)))
        try:
            results = await call.result()
        except CallEndedError:
            return
        except ProviderError as error:
            if error.reason not in _SPLIT or len(batch) == 1:
                for each in batch:
                    self._over(eyes, each)
                    each.fail(error)
                return
        else:
            settle(results)
            self._sweep_later()
            return
        middle = len(batch) // 2
        await self._ask(bound, batch[:middle])
        await self._ask(bound, batch[middle:])

    def _settle(self, eyes: _Eyes, asked: _Asked, result: GetResult) -> None:
        """Answer the readers of one question, once."""
        if not asked.is_settled:
            asked.is_settled = True
            self._over(eyes, asked)
            self._recent.keep((eyes, asked.question), result, asked.since)
            asked.answer(result)

    def _sweep_later(self) -> None:
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = self._start(self._sweep())

    async def _sweep(self) -> None:
        """Expire recent results even if reads stop."""
        while self._recent:
            await self._clock.sleep(self._settings.shared_seconds)
            self._recent.expire(self._clock.monotonic())


class _Eyes(msgspec.Struct, frozen=True, cache_hash=True):
    """The properties of a caller that its answers depend on; equal for callers that may share a call.

    Several tables are searched for each item of a read, so the hash is computed once.
    """

    connection: str
    identity: str
    call_token: CallToken | None
    policy: CallPolicy


def _eyes(bound: BoundStore) -> _Eyes:
    resolved = bound.resolved
    return _Eyes(Connection(resolved.endpoint, resolved.tls).key, bound.identity, resolved.call_token, resolved.policy)


class _Question(NamedTuple):
    ref: RemoteRef
    shape: Shape
    if_version_differs: str


def _question(item: GetItem) -> _Question:
    return _Question(item.ref, item.shape, item.if_version_differs)


def _item(item_id: str, question: _Question) -> GetItem:
    return GetItem(item_id, question.ref, question.shape, question.if_version_differs)


@dataclass(slots=True, eq=False)
class _Reader:
    """One caller: its answers so far, and the future that it waits for."""

    bound: BoundStore
    missing: int
    answered: asyncio.Future[None]
    hold: Hold | None = None
    asked: list[_Asked] = field(default_factory=list)
    answers: dict[int, GetResult | ProviderError] = field(default_factory=dict)

    def take(self, index: int, answer: GetResult | ProviderError) -> None:
        """Record one answer. A caller that would hold too many bytes fails at once and drops all answers."""
        if self.answered.done():
            return
        try:
            if self.hold is not None and isinstance(answer, GetResult):
                self.hold.add(size_of(answer) or 0)
        except ProviderError as refused:
            self.answers.clear()
            self.answered.set_exception(refused)
            return
        self.answers[index] = answer
        self.missing -= 1
        if self.missing == 0 and not self.answered.done():
            self.answered.set_result(None)

    def results(self, items: Sequence[GetItem]) -> list[GetResult]:
        failures = [answer for answer in self.answers.values() if isinstance(answer, ProviderError)]
        if len(failures) == len(items):
            raise restated(failures[0])
        return [_own(item.item_id, self.answers[index]) for index, item in enumerate(items)]


def _own(item_id: str, answer: GetResult | ProviderError) -> GetResult:
    """Return the answer under the caller's item id; exceptions are copied, never shared between callers."""
    if isinstance(answer, ProviderError):
        return GetResult(item_id, restated(answer))
    if isinstance(answer.outcome, ProviderError):
        return GetResult(item_id, restated(answer.outcome), answer.metadata)
    return GetResult(item_id, answer.outcome, answer.metadata)


class _Slot(NamedTuple):
    """One item of one caller."""

    reader: _Reader
    position: int


class CallEndedError(Exception):
    """The call was cancelled because all its readers were."""


@dataclass(slots=True, eq=False)
class _Call:
    """A running call and its questions."""

    eyes: _Eyes
    batch: list[_Asked]
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
                raise CallEndedError from None
            self.task.cancel()
            raise
        finally:
            for each in self.batch:
                each.call = None


@dataclass(slots=True, eq=False)
class _Asked:
    """One distinct question, all its readers, and a time (monotonic) before the call that answers it."""

    question: _Question
    slots: list[_Slot]
    since: float
    call: _Call | None = None
    """The running call that asks it."""
    is_settled: bool = False

    @property
    def is_wanted(self) -> bool:
        """Return whether a reader still waits for the answer."""
        return any(not slot.reader.answered.done() for slot in self.slots)

    @property
    def bound(self) -> BoundStore:
        """Return the store of a reader that still waits, or of the first one."""
        waiting = (slot.reader for slot in self.slots if not slot.reader.answered.done())
        return next(waiting, self.slots[0].reader).bound

    def answer(self, result: GetResult) -> None:
        for slot in self.slots:
            slot.reader.take(slot.position, result)

    def fail(self, error: ProviderError) -> None:
        for slot in self.slots:
            slot.reader.take(slot.position, error)


@dataclass(slots=True, eq=False)
class _Window:
    bound: BoundStore
    wanted: dict[_Question, list[_Slot]] = field(default_factory=dict)

    def asked(self, now: float) -> list[_Asked]:
        """Return the questions that a reader still waits for."""
        made = [_Asked(question, slots, now) for question, slots in self.wanted.items()]
        for each in made:
            for slot in each.slots:
                slot.reader.asked.append(each)
        return [each for each in made if each.is_wanted]

    def fail(self, defect: Exception) -> None:
        for reader in self._waiting():
            error = ProviderError(ErrorReason.INTERNAL, f"reading failed inside the operator: {type(defect).__name__}")
            error.__cause__ = defect
            reader.answered.set_exception(error)

    def abandon(self) -> None:
        """Cancel the readers that are still waiting when the work has ended."""
        for reader in self._waiting():
            reader.answered.cancel()

    def _waiting(self) -> Iterator[_Reader]:
        """Yield the readers that still miss an answer of this window."""
        for slots in self.wanted.values():
            for slot in slots:
                if not slot.reader.answered.done() and slot.position not in slot.reader.answers:
                    yield slot.reader
