"""Keeps child processes running: starts them, restarts them with back-off when they exit, stops them together.

    async with supervised(components, clock, log) as start:
        start(another)                             # all of them run; at the end of the block they are stopped

Their output goes to one stream, line by line, with the name of the component. This module does not depend on the kind
of component.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from kubebase.backoff import ExponentialBackoff, system_random
from kubebase.children import bound_to_parent
from kubebase.clock import Clock

LINE_BYTES: Final = 64 * 1024
GRACE_SECONDS: Final = 15.0
"""The time for a component to stop by itself; longer than a provider's drain."""
_STABLE_SECONDS: Final = 60.0
"""After this time a component no longer counts as failing repeatedly."""


class Log(Protocol):
    def passed_on(self, component: str, line: str) -> None:
        """Write a line that the component wrote."""

    def warning(self, component: str, text: str) -> None:
        """Write a line about the component."""


@dataclass(frozen=True, slots=True)
class Component:
    """One child process."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@asynccontextmanager
async def supervised(
    components: Sequence[Component], clock: Clock, log: Log, *, backoff: ExponentialBackoff | None = None
) -> AsyncIterator[Callable[[Component], None]]:
    """Keep the components running while the block lasts; the yielded function adds another one."""
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:

        def start(component: Component) -> None:
            keeper = _Keeper(component, clock, log, backoff or ExponentialBackoff(first=0.5, cap=30.0))
            tasks.append(group.create_task(keeper.run()))

        for component in components:
            start(component)
        try:
            yield start
        finally:
            for task in tasks:
                task.cancel()


class _Keeper:
    """Runs one component, reports how it exited, and runs it again."""

    def __init__(self, component: Component, clock: Clock, log: Log, backoff: ExponentialBackoff) -> None:
        self._component = component
        self._clock = clock
        self._log = log
        self._backoff = backoff

    async def run(self) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            ended = await self._run_once()
            is_stable = self._clock.monotonic() - started > _STABLE_SECONDS
            failures = 1 if is_stable else failures + 1
            delay = self._backoff.delay(failures, system_random)
            self._log.warning(self._component.name, f"{ended}; starting again in {delay:.1f} s")
            await self._clock.sleep(delay)

    async def _run_once(self) -> str:
        """Run the process once; return how it exited."""
        try:
            process = await asyncio.create_subprocess_exec(
                # A supervisor that is killed cannot stop its components, so the kernel does.
                *bound_to_parent(self._component.command, signal.SIGTERM),
                env=dict(self._component.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=LINE_BYTES,
                umask=0o077,  # what it writes into the data directory is for this user alone
            )
        except OSError as problem:
            return f"cannot be started: {problem.strerror}"
        try:
            await self._pump(process)
            return f"ended with {await process.wait()}"
        finally:
            await asyncio.shield(_stopped(process))

    async def _pump(self, process: asyncio.subprocess.Process) -> None:
        """Write its lines until the stream ends."""
        lines = process.stdout
        if lines is None:  # never: the pipe was requested above
            return
        while True:
            try:
                line = await lines.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
            except asyncio.LimitOverrunError as long:
                line = await lines.readexactly(min(long.consumed, LINE_BYTES))
            if not line:
                return
            self._log.passed_on(self._component.name, line.decode(errors="replace").rstrip())


async def _stopped(process: asyncio.subprocess.Process) -> None:
    """Ask the process to stop; kill it if it does not."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(GRACE_SECONDS):
            await asyncio.gather(process.wait(), _drained(process))
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Read its remaining output: a full pipe would block its exit."""
    if process.stdout is not None:
        while await process.stdout.read(LINE_BYTES):
            pass
