"""A few worker processes for slow rendering, shared by all namespaces.

    run -> a slot, round robin over the waiting namespaces -> a process -> its result, or its end at the limit

No namespace can occupy all workers: one always remains for the others. Processes start on demand, end after an idle
time, and end with this process. A worker that was interrupted, at the limit or because its caller was cancelled, is
not reused. The limit counts the processor time of the worker: workers have the lowest priority, so on a busy machine
a job may wait much longer than it works.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from eso_render.errors import RenderError
from eso_render.jobs import Job, JobResult, clock_limit, packed, unpacked_values
from kubebase.fairness import FairSlots
from kubebase.workerprocess import NotStartedError, Worker

_MODULE: Final = "eso_render.workerprocess"
_START_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 120.0
_RESULT_BYTES: Final = 64 * 2**20
_ADVICE: Final = "let templates and patterns do less, or use smaller values"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The number of processes, and the limits of each job."""

    processes: int = 2
    seconds: float = 10.0
    """A worker is killed after this much processor time. It is longer than the limit of the templates, whose error is
    more precise."""
    memory: int = 128 * 2**20
    """Address space of each process in bytes. All workers and the operator fit into the chart's memory limit."""


class StoppedError(RenderError):
    """The work was interrupted. The message says what to do and contains no part of the work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, phase="execute")


class Workers:
    """The worker pool of the process."""

    def __init__(
        self,
        settings: WorkerSettings = WorkerSettings(),  # noqa: B008 - frozen
        *,
        waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """Create the pool. `waiting` is entered while waiting for a result."""
        self._settings = settings
        self._waiting = waiting
        self._slots = FairSlots(settings.processes, greed=1)
        self._idle: list[Worker] = []

    @property
    def seconds(self) -> float:
        return self._settings.seconds

    async def run(self, job: Job, share: str) -> Any:
        """Return the result of the job, or raise its error. `share` is the namespace whose slot it takes."""
        message = packed(job)
        async with self._waiting(), self._slots.slot(share):
            result = await self._run_in_worker(message)
        if result.error is None:
            return result.value
        problems = [result.error]
        del result  # a variable with the raised exception would be a cycle that keeps all values in memory
        raise problems.pop()

    async def _run_in_worker(self, message: bytes) -> JobResult:
        worker = self._idle.pop() if self._idle else await self._start_worker()
        worker.cancel_end()
        try:
            async with asyncio.timeout(clock_limit(self._settings.seconds)):
                raw = await worker.exchange(message)
            result = unpacked_values(raw)
        except TimeoutError:
            worker.end()
            raise self._too_slow(clock_limit(self._settings.seconds)) from None
        except (OSError, EOFError, pickle.UnpicklingError):
            if worker.end() == -signal.SIGPROF:
                raise self._too_slow(self._settings.seconds) from None
            raise StoppedError(
                f"the process that rendered it ended, most likely for want of memory: {_ADVICE}"
            ) from None
        except BaseException:
            worker.end()
            raise
        self._idle.append(worker)
        worker.end_after(_IDLE_SECONDS, self._idle)
        return result if isinstance(result, JobResult) else JobResult()

    @staticmethod
    def _too_slow(seconds: float) -> StoppedError:
        return StoppedError(f"rendering took longer than {seconds:g} seconds and was stopped: {_ADVICE}")

    async def _start_worker(self) -> Worker:
        try:
            return await Worker.started(
                _MODULE, [str(self._settings.memory)], max_response_bytes=_RESULT_BYTES, within=_START_SECONDS
            )
        except NotStartedError as error:
            raise StoppedError(f"no process for templates can be started: {error}") from None
