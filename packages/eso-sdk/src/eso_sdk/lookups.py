"""Lookups of properties within bounds, so that expensive paths of one namespace do not stop the calls of others.

    property_of, Draft -> CallLookups.run -> here, if it is cheap -> a worker process, if it is not -> or refused

Paths are evaluated in Python, which cannot interrupt itself. So every step is charged before it begins (`gjson.py`). A
lookup that needs more than the event loop can spare is repeated in a worker process, which is killed at the deadline.
Each call and each namespace has a budget for that. Work is counted in the unit of `gjson.MAX_WORK`; a core does about
50 million of it in a second.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from eso_sdk.errors import backend_error
from eso_sdk.gjson import MAX_DOCUMENT_BYTES, MAX_WORK, GjsonError, TooMuchWorkError, get, weight
from eso_sdk.processwide import shared_table
from eso_sdk.sjson import SjsonError, delete, set_text
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairSlots
from kubebase.workerprocess import NotStartedError, Worker

SMALL_WORK: Final = 64 * 1024
"""Lookups up to this size always run on the event loop: properties of ordinary values."""
INLINE_WORK: Final = 256 * 1024
"""Work that all larger lookups of one call may do on the event loop."""
CALL_WORK: Final = 512 * 1024 * 1024
"""Work that the lookups of one call may do in worker processes."""
CALL_SECONDS: Final = 10.0
"""Time for the lookups of one call in worker processes, with waiting. It is at most half of what the call has left."""
NAMESPACE_WORK: Final = 4 * 1024 * 1024 * 1024
"""Work that the calls of one namespace may do in worker processes within `NAMESPACE_SECONDS`."""
NAMESPACE_SECONDS: Final = 300.0
WORKERS: Final = 2

_MODULE: Final = "eso_sdk.lookupprocess"
_START_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 120.0
_RESPONSE_BYTES: Final = MAX_DOCUMENT_BYTES + 1024
_MAX_NAMESPACES: Final = 4096
_SHOWN_CHARACTERS: Final = 80
_ADVICE: Final = "shorten the path, or split the value"


class Job(msgspec.Struct, array_like=True, frozen=True):
    """One lookup, or one change of a property. It contains a secret value, so it has no repr."""

    operation: Literal["get", "set", "delete"]
    document: bytes
    path: str
    text: bytes = b""
    work: int = MAX_WORK
    """The work that it may do."""

    def __repr__(self) -> str:
        return f"Job({self.operation})"


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """The result of a job: the property or the changed document, None if there is no such property."""

    value: bytes | None = None
    work: int = 0
    too_much: bool = False
    problem: str = ""
    """Why the job failed, without a value."""

    def __repr__(self) -> str:
        return f"Outcome(work={self.work})"


def perform(job: Job) -> Outcome:
    """Do a job within its limit of work. It is the same on the event loop and in a worker."""
    try:
        if job.operation == "get":
            found = get(job.document, job.path, work=job.work)
            return Outcome(found.text if found.exists else None, found.work)
        return _changed(job)
    except TooMuchWorkError as problem:
        return Outcome(work=problem.spent, too_much=True, problem=str(problem))
    except (GjsonError, SjsonError) as problem:
        return Outcome(problem=str(problem))


def _changed(job: Job) -> Outcome:
    # One level of the document is copied for each step of the path.
    work = weight(job.document) * (1 + job.path.count("."))
    if work > job.work:
        raise TooMuchWorkError(spent=0)
    if job.operation == "delete":
        return Outcome(delete(job.document, job.path), work)
    return Outcome(set_text(job.document, job.path, job.text), work)


class CallLookups:
    """The lookups of one call, and what is left of its budgets."""

    def __init__(self, clock: Clock, namespace: str, deadline: float, *, work: int = CALL_WORK) -> None:
        self.namespace = namespace
        self.work_left = work
        self._clock = clock
        self._deadline = deadline
        self._inline_left = INLINE_WORK
        self._until: float | None = None

    async def run(self, job: Job, key: str = "") -> Outcome:
        """Return the outcome of a job, or raise why it may not be done. `key` is the remote key, for errors."""
        await asyncio.sleep(0)  # noqa: TID251 - no time passes: other calls run between two lookups
        allowed = min(max(self._inline_left, SMALL_WORK), MAX_WORK)
        if len(job.document) <= allowed:
            outcome = perform(msgspec.structs.replace(job, work=allowed))
            if outcome.work > SMALL_WORK:
                self.take_inline(outcome.work)
            if not outcome.too_much:
                return outcome
        return await self._in_worker(job, key)

    def take_inline(self, work: int) -> bool:
        """Take work from the budget of the event loop; return whether it had as much."""
        enough = work <= self._inline_left
        self._inline_left = max(self._inline_left - work, 0)
        return enough

    async def _in_worker(self, job: Job, key: str) -> Outcome:
        now = self._clock.monotonic()
        if self._until is None:
            self._until = now + min(CALL_SECONDS, (self._deadline - now) / 2)
        try:
            async with Deadline(self._clock, self._until - now):
                return await lookup_workers(self._clock).run(job, self, key)
        except TimeoutError:
            # The processors may only have been busy: unlike a budget of work, time says little about the path.
            problem = f"the lookups of this call take longer than they may; {_ADVICE}"
            raise _refused(job, key, problem, RetryClass.BACKOFF) from None


def lookup_workers(clock: Clock) -> LookupWorkers:
    """Return the workers that all calls of the process share."""
    return shared_table("eso_sdk.lookups", clock, lambda: LookupWorkers(clock))


@dataclass(slots=True)
class _Window:
    """The work of a namespace since a moment."""

    since: float
    work: int = 0


class LookupWorkers:
    """A few processes for expensive lookups, shared by all namespaces in turns.

    No namespace can occupy all of them. Processes start on demand and end after an idle time. One that was interrupted
    is not used again.
    """

    def __init__(self, clock: Clock, *, namespace_work: int = NAMESPACE_WORK) -> None:
        self._clock = clock
        self._namespace_work = namespace_work
        self._slots = FairSlots(WORKERS, greed=1)
        self._idle: list[Worker] = []
        self._windows: BoundedDict[str, _Window] = BoundedDict(_MAX_NAMESPACES)

    async def run(self, job: Job, call: CallLookups, key: str) -> Outcome:
        """Do a job of a call in a worker, within the budgets of the call and its namespace."""
        async with self._slots.slot(call.namespace):
            window = self._window(call.namespace)
            room = self._namespace_work - window.work
            limit = min(MAX_WORK, call.work_left, room)
            if limit <= 0:
                raise _exhausted(job, key, call, room)
            taken = limit
            try:
                outcome = await self._run_in_worker(msgspec.structs.replace(job, work=limit), key)
                taken = limit if outcome.too_much else outcome.work
            finally:  # an interrupted job counts as if it had done everything
                call.work_left -= taken
                window.work += taken
            if outcome.too_much:
                raise _exhausted(job, key, call, room - taken, permanent=limit == MAX_WORK)
            return outcome

    def _window(self, namespace: str) -> _Window:
        now = self._clock.monotonic()
        window = self._windows.use(namespace)
        if window is None or now - window.since >= NAMESPACE_SECONDS:
            window = self._windows[namespace] = _Window(now)
        return window

    async def _run_in_worker(self, job: Job, key: str) -> Outcome:
        worker = self._idle.pop() if self._idle else await self._started()
        worker.cancel_end()
        try:
            raw = await worker.exchange(msgspec.msgpack.encode(job))
            outcome = msgspec.msgpack.decode(raw, type=Outcome)
        except (OSError, EOFError, msgspec.DecodeError):
            worker.end()
            problem = f"its process ended, most likely for want of memory; {_ADVICE}"
            raise _refused(job, key, problem) from None
        except BaseException:
            worker.end()
            raise
        self._idle.append(worker)
        worker.end_after(_IDLE_SECONDS, self._idle)
        return outcome

    async def _started(self) -> Worker:
        try:
            return await Worker.started(_MODULE, max_response_bytes=_RESPONSE_BYTES, within=_START_SECONDS)
        except NotStartedError as problem:
            raise backend_error(f"the provider cannot start a process for lookups of properties: {problem}") from None


def _exhausted(job: Job, key: str, call: CallLookups, room: int, *, permanent: bool = False) -> ProviderError:
    if permanent:
        return _refused(job, key, f"the path asks for too much work on this value; {_ADVICE}", RetryClass.NEVER)
    if room <= 0:
        return _refused(
            job,
            key,
            f'namespace "{call.namespace}" used up its work for lookups of {NAMESPACE_SECONDS / 60:g} minutes;'
            f" {_ADVICE}, or read it less often",
        )
    return _refused(
        job, key, f"the lookups of this call ask for too much work together; {_ADVICE}, or read fewer properties of it"
    )


def _refused(job: Job, key: str, problem: str, retry: RetryClass = RetryClass.AFTER_CHANGE) -> ProviderError:
    """Return an error about one item: it says nothing about the backend, and other items go on."""
    path = job.path if len(job.path) <= _SHOWN_CHARACTERS else f"{job.path[:_SHOWN_CHARACTERS]}…"
    of_key = f' of "{key}"' if key else ""
    return ProviderError(
        ErrorReason.INVALID_REQUEST, f'property "{path}"{of_key} cannot be looked up: {problem}', retry=retry
    )
