"""Feed a queue from informers and run a reconcile for each key, a few at a time.

    informers -> event handlers -> queue -> reconcile -> result -> forget | requeue | back off

The result of a reconcile is a value. Only this module turns it into a requeue. `examples/labeller.py` of this
distribution shows a whole operator on one screen.

**Urgent runs** are those of new objects and of changed specs: a person waits for them. A quarter of the workers serves
nothing else, and their steps go first on the event loop. So they wait neither for ten thousand refreshes that are
queued, nor for those that are running. `bench/scheduling.py` shows what this gives: an object of a busy namespace is
done after 0.26 instead of 3.5 s.

A reconcile that waits for another system does so in `async with parked():` and frees its worker meanwhile. If its
object is deleted during such a wait, and the run only waits to read something, the run is cancelled.

A reconcile that raises, or that exceeds its deadline, backs off like one that returns `Backoff`: it never ends the
process. Logs name the exception's type and place, never its text, which may contain secrets.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final, TypeVar, assert_never

import structlog

from kubebase.backoff import ExponentialBackoff, Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairSlots
from kubebase.meta import ObjectKey
from kuberun.cache import Change, Origin
from kuberun.informer import Informer, Subscription, merge_into
from kuberun.loopscheduler import LoopScheduler, scheduler_of
from kuberun.permit import Permit, always, work_by
from kuberun.triggers import EventHandler
from kuberun.workqueue import URGENT, Lane, QueueClosedError, ReconcileRequest, WorkQueue

T = TypeVar("T")

_NEW: Final = object()
"""The share of runs that have not started. They alternate with runs that resume after a wait."""

_log = structlog.get_logger(__name__)
_HANDLER_RETRY = 30.0
_DRAIN_POLL = 0.05
_RESERVE: Final = 4
"""One in this many workers is reserved for urgent runs."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until something changes."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The object is in order; reconcile it again after `delay` seconds."""

    delay: float
    reason: str = "due"
    lane: Lane = Lane.REFRESH


@dataclass(frozen=True, slots=True)
class Backoff:
    """The reconcile failed; retry after a back-off, and not before `retry_after` seconds. The reason holds no values.

    `longest` lets the back-off of this object grow beyond the controller's cap, for objects that are rarely worth a
    retry.
    """

    reason: str
    retry_after: float = 0.0
    longest: float = 0.0


def current_trace_id() -> str:
    """Return the 32 hexadecimal digits in the log lines of the running reconcile; empty outside of a reconcile.

    Calls to other systems carry them, too. They are read from the context of the log, which each line needs anyway.
    """
    return str(structlog.contextvars.get_contextvars().get("trace_id", ""))


def parked(*, cancel_if_deleted: bool = False) -> AbstractAsyncContextManager[None]:
    """Inside a reconcile: wait for another system without holding a worker. Elsewhere this does nothing.

    Pass `cancel_if_deleted` if the awaited response has no effect on other systems. The run may then be cancelled here
    when its object is deleted.
    """
    run = _RUN.get()
    return nullcontext() if run is None else _Parked(run, cancel_if_deleted=cancel_if_deleted)


def detached() -> Context:
    """Return a context for a task that may outlive the reconcile that starts it: `parked` in it has no effect."""
    context = copy_context()
    context.run(_RUN.set, None)
    return context


Result = Done | Requeue | Backoff


def _no_wait(longest: float) -> float:
    del longest
    return 0.0


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """What a reconcile is told about its own run, besides the key."""

    now: datetime
    """The time at which it started."""
    requested_at: float = 0.0
    """The monotonic time of its latest request. Data read after that time is fresh enough."""
    longest_wait: Callable[[float], float] = _no_wait
    """Returns the longest delay until the next run if this one ends in `Backoff(longest=...)` with that argument."""


Reconcile = Callable[[ObjectKey, ReconcileContext], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Overdue:
    """A key that has waited or run too long."""

    key: ObjectKey
    seconds: float
    running: bool


class _Workers:
    """The workers of a controller. Some are reserved for urgent runs, which use the others, too."""

    def __init__(self, number: int) -> None:
        reserve = number // _RESERVE
        self.common = FairSlots(number - reserve, greed=math.inf)
        self.recent = FairSlots(reserve, greed=math.inf) if reserve else None

    @property
    def taken(self) -> int:
        return self.common.taken + (0 if self.recent is None else self.recent.taken)

    async def acquire(self, share: Hashable, *, urgent: bool) -> FairSlots:
        """Wait for a worker; return where it must be released."""
        if urgent and self.recent is not None and self.recent.take_now(share):
            return self.recent
        await self.common.acquire(share)
        return self.common


class _Run:
    """One run: whether it holds a worker, and how many of its tasks are parked."""

    def __init__(self, request: ReconcileRequest, workers: _Workers, held: FairSlots) -> None:
        self._namespace = request.key.namespace
        self._urgent = request.lane in URGENT
        self._workers = workers
        self._held: tuple[FairSlots, Hashable] | None = (held, _NEW)
        self._waits = 0
        self._cancellable = 0
        self._task = asyncio.current_task()
        self.ended = False

    def park(self, *, cancel_if_deleted: bool) -> None:
        self._waits += 1
        self._cancellable += cancel_if_deleted
        if not self.ended:
            self._release_worker()

    async def unpark(self, *, cancel_if_deleted: bool) -> None:
        self._waits -= 1
        self._cancellable -= cancel_if_deleted
        if self._waits or self.ended:
            return
        self._resume(await self._workers.acquire(self._namespace, urgent=self._urgent))

    def _resume(self, slots: FairSlots) -> None:
        """Keep the worker, unless the run has ended, already holds a worker, or one of its tasks is parked again."""
        if self.ended or self._waits or self._held is not None:
            slots.release(self._namespace)
        else:
            self._held = (slots, self._namespace)

    def end(self) -> None:
        """End the run. Its tasks that are still parked take no worker afterwards."""
        self.ended = True
        self._task = None  # the context of the task refers to this run: a cycle with everything that the run read
        self._release_worker()

    def end_if_waiting(self) -> None:
        """Cancel the run of a deleted object if all of its waits may be cancelled."""
        if self._cancellable and self._cancellable == self._waits:
            self.cancel()

    def cancel(self) -> None:
        if self._task is not None and not self.ended:
            self._task.cancel()

    def _release_worker(self) -> None:
        if self._held is not None:
            slots, share = self._held
            self._held = None
            slots.release(share)


class _Parked(AbstractAsyncContextManager[None]):
    """One wait of a run. A class, because a generator costs several times as much, and most runs wait."""

    __slots__ = ("_cancellable", "_run")

    def __init__(self, run: _Run, *, cancel_if_deleted: bool) -> None:
        self._run = run
        self._cancellable = cancel_if_deleted

    async def __aenter__(self) -> None:
        self._run.park(cancel_if_deleted=self._cancellable)

    async def __aexit__(self, *_: object) -> None:
        await self._run.unpark(cancel_if_deleted=self._cancellable)


_RUN: ContextVar[_Run | None] = ContextVar("run", default=None)
"""The run whose worker a task may release. It decides nothing about the work itself.

A context variable, because tasks that a reconcile starts inherit it, and waits begin deep inside shared clients.
"""


class Controller:
    """Runs up to `workers` reconciles at a time, each for at most `deadline` seconds, never two of one key.

    Fewer than four workers are too few to reserve one for urgent runs.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        clock: Clock,
        workers: int = 4,
        deadline: float = 300.0,
        backoff: ExponentialBackoff | None = None,
        draw: Random = system_random,
        scheduler: LoopScheduler | None = None,
    ) -> None:
        """Pass `scheduler` to replace the one that all controllers of the event loop share."""
        self.name = name
        self.queue = WorkQueue(clock, backoff=backoff, draw=draw)
        self._reconcile = reconcile
        self._clock = clock
        self._workers = _Workers(workers)
        self._scheduler = scheduler
        self._runs: dict[ObjectKey, _Run] = {}
        self._deadline = deadline
        self._feeds: list[tuple[Subscription[Any], EventHandler[Any]]] = []
        self._watched: list[tuple[Informer[Any], Subscription[Any]]] = []
        self._permit_of: Callable[[ObjectKey], Permit] | None = None
        self._informers: list[Informer[Any]] = []
        self._run_ids = itertools.count(1)
        self._permitted: Permit = always
        self.crashes = 0
        """Reconciles that ended with an exception, since the start."""
        self.timeouts = 0
        """Reconciles that exceeded their deadline, since the start."""
        self._log = _log.bind(controller=name)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """Return the informers that must be synced before this controller may run."""
        return tuple(self._informers)

    def watch(self, informer: Informer[T], handler: EventHandler[T], *, own: bool = False) -> None:
        """Turn changes observed by the informer into requests through the handler. Call this before `run`.

        Pass `own` if the informer holds the objects that are reconciled: a parked run is then cancelled when its object
        is deleted.
        """
        subscription = informer.subscribe()
        self._watched.append((informer, subscription))
        self._feeds.append((subscription, self._cancelling_runs(handler) if own else handler))
        if informer not in self._informers:
            self._informers.append(informer)

    async def run(self, permitted: Permit = always) -> None:
        """Work until `stop`, then let running reconciles finish. Cancel it to end at once.

        While `permitted` returns false, no reconcile starts and no running reconcile writes. A leader that resumes
        after a suspension therefore stops before it notices that another process holds its lease.
        """
        self._permitted = permitted
        async with asyncio.TaskGroup() as feeds:
            tasks = [feeds.create_task(self._feed(subscription, handler)) for subscription, handler in self._feeds]
            async with asyncio.TaskGroup() as runs:
                await self._dispatch(runs)
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Start no further reconciles."""
        self.queue.close()

    def restrict(self, admits: Callable[[ObjectKey], bool], permit_of: Callable[[ObjectKey], Permit]) -> None:
        """Reconcile only admitted objects from now on, each with its own permission to write (`sharding.py`)."""
        self._permit_of = permit_of
        self.queue.restrict(admits)

    def reconcile_all(self, belongs: Callable[[ObjectKey], bool]) -> None:
        """Reconcile these objects as after a start of the process."""
        for informer, subscription in self._watched:
            subscription.put(informer.cache.everything(Origin.LISTED, belongs))

    async def wait_drained(self, belongs: Callable[[ObjectKey], bool]) -> None:
        """Wait until no reconcile of these objects runs. They must not be admitted any more."""
        while any(map(belongs, self.queue.running())):
            await self._clock.sleep(_DRAIN_POLL)

    def cancel(self, belongs: Callable[[ObjectKey], bool]) -> None:
        """Cancel running reconciles of these objects."""
        for key, run in self._runs.items():
            if belongs(key):
                run.cancel()

    def overdue(self, limit: float) -> list[Overdue]:
        """List the keys that have run or waited for a worker longer than `limit` seconds, the worst first.

        While requests are taken, no key counts as waiting too long: every eighth take serves the oldest. With 50,000
        objects and a slow backend the last one may wait for an hour, and a restart would only make it longer.
        """
        running = [Overdue(key, age, running=True) for key, age in self.queue.running().items() if age > limit]
        if self.queue.idle_seconds <= limit:
            return sorted(running, key=lambda late: -late.seconds)
        waiting = [Overdue(key, age, running=False) for key, age in self.queue.waiting().items() if age > limit]
        return sorted(running + waiting, key=lambda late: -late.seconds)

    def _cancelling_runs(self, handler: EventHandler[T]) -> EventHandler[T]:
        def mapped(change: Change[T]) -> Iterable[ReconcileRequest]:
            if change.new is None and (run := self._runs.get(change.key)) is not None:
                run.end_if_waiting()
            return handler(change)

        return mapped

    async def _dispatch(self, runs: asyncio.TaskGroup) -> None:
        if self._workers.recent is not None:
            runs.create_task(self._dispatch_urgent(self._workers.recent, runs))
        workers = self._workers.common
        while await self._has_work():  # takes no worker: runs that resume after a wait need them all
            await workers.acquire(_NEW)
            if (request := self.queue.take_now()) is None:
                workers.release(_NEW)
            else:
                self._start(request, workers, runs)

    async def _dispatch_urgent(self, workers: FairSlots, runs: asyncio.TaskGroup) -> None:
        while await self._has_work(URGENT):
            await workers.acquire(_NEW)
            if (request := self.queue.take_urgent()) is None:
                workers.release(_NEW)
            else:
                self._start(request, workers, runs)

    async def _has_work(self, lanes: Iterable[Lane] = Lane) -> bool:
        """Wait for a request; return False once the queue is closed."""
        try:
            await self.queue.wait(lanes)
        except QueueClosedError:
            return False
        return True

    def _start(self, request: ReconcileRequest, workers: FairSlots, runs: asyncio.TaskGroup) -> None:
        run = self._run_one(request, workers)
        scheduler = self._scheduler or scheduler_of(asyncio.get_running_loop())
        runs.create_task(scheduler.take(request.key.namespace, run, urgent=request.lane in URGENT))

    async def _run_one(self, request: ReconcileRequest, workers: FairSlots) -> None:
        run = f"{self.name}-{next(self._run_ids)}"
        trace_id = os.urandom(16).hex()
        permitted = self._permitted if self._permit_of is None else self._permit_of(request.key)
        work_by(permitted)
        # Each run is a task with its own context, so nothing has to be unset.
        structlog.contextvars.bind_contextvars(
            controller=self.name, key=str(request.key), reconcile_id=run, trace_id=trace_id
        )
        self._runs[request.key] = this = _Run(request, self._workers, workers)
        _RUN.set(this)
        try:
            result = await self._reconcile_key(request, permitted)
            self._conclude(request, result)
        finally:
            del self._runs[request.key]
            this.end()
            self.queue.done(request.key)

    async def _reconcile_key(self, request: ReconcileRequest, permitted: Permit) -> Result:
        if not permitted():
            return Backoff("this process may not work at the moment")
        self._log.debug("reconcile starts", reason=request.reason, lane=request.lane.name)
        if request.lane <= Lane.SPEC_CHANGE:
            self.queue.forget(request.key)  # earlier failures were of another spec
        deadline = Deadline(self._clock, self._deadline)
        context = ReconcileContext(
            self._clock.now(),
            self.queue.requested_at(request.key),
            lambda longest: self.queue.longest_wait(request.key, longest=longest),
        )
        try:
            async with deadline:
                return _checked(await self._reconcile(request.key, context))
        except (Exception, asyncio.CancelledError) as error:  # the failure of one object never ends the process
            if _being_cancelled():
                raise
            self.timeouts += deadline.expired
            self.crashes += not deadline.expired
            self._log.error(
                "reconcile failed", error=type(error).__name__, place=place_of(error), late=deadline.expired
            )
            return Backoff("it took too long" if deadline.expired else "it failed unexpectedly")

    def _conclude(self, request: ReconcileRequest, result: Result) -> None:
        match result:
            case Done():
                self.queue.forget(request.key)
            case Requeue(delay=delay, reason=reason, lane=lane):
                self.queue.forget(request.key)
                self.queue.add(ReconcileRequest(request.key, reason, lane), after=delay)
            case Backoff(reason=reason, retry_after=retry_after, longest=longest):
                again = ReconcileRequest(request.key, reason, request.lane)
                delay = self.queue.retry(again, at_least=retry_after, longest=longest)
                self._log.info("reconcile will be retried", reason=reason, delay=round(delay, 3))
            case _:
                assert_never(result)

    async def _feed(self, subscription: Subscription[T], handler: EventHandler[T]) -> None:
        """Handle changes as they arrive. A change whose handler fails is retried with the next changes or later.

        Only one change is stored for each object whose handler fails repeatedly, however often the object changes.
        """
        failed: dict[ObjectKey, Change[T]] = {}
        while True:
            changes = await (subscription.take_within(_HANDLER_RETRY) if failed else subscription.take())
            if failed:
                for change in changes:
                    merge_into(failed, change)
                changes, failed = list(failed.values()), {}
            for count, change in enumerate(changes, start=1):
                if not self._handle(change, handler):
                    failed[change.key] = change
                if count % 500 == 0:
                    await self._clock.sleep(0)  # a long list must not block other tasks

    def _handle(self, change: Change[T], handler: EventHandler[T]) -> bool:
        try:
            for request in handler(change):
                self.queue.add(request)
        except Exception as error:  # noqa: BLE001 - one odd object must not stop the feed for all others
            self._log.error(
                "event handler failed", key=str(change.key), error=type(error).__name__, place=place_of(error)
            )
            return False
        return True


def place_of(error: BaseException) -> str:
    """Return the file and line that raised the exception: enough to find it, without any value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    return f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def _checked(result: object) -> Result:
    if isinstance(result, Done | Requeue | Backoff):
        return result
    raise TypeError("a reconcile returns Done, Requeue or Backoff")


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
