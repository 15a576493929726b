"""Child processes kept running: started, restarted with back-off when they end, stopped together.

    async with supervised(components, clock, emit) as start:
        start(another)                             # all of them run; on the way out they are stopped

What they write comes out of one stream, line by line, with the name of the component. Nothing here knows what the
components are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from kuberun.backoff import Backoff, system_random
from kuberun.children import bound_to_parent
from kuberun.clock import Clock

LINE_BYTES: Final = 64 * 1024
GRACE_SECONDS: Final = 15.0
"""What a component gets to stop by itself; longer than a provider's drain."""
_SETTLED_SECONDS: Final = 60.0
"""A component that ran this long is not failing over and over."""

Emit = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Component:
    """One child process."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@asynccontextmanager
async def supervised(
    components: Sequence[Component], clock: Clock, emit: Emit, *, backoff: Backoff | None = None
) -> AsyncIterator[Callable[[Component], None]]:
    """Keep the components running for as long as the block lasts; the yielded function adds another one."""
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:

        def start(component: Component) -> None:
            keeper = _Keeper(component, clock, emit, backoff or Backoff(first=0.5, cap=30.0))
            tasks.append(group.create_task(keeper.run()))

        for component in components:
            start(component)
        try:
            yield start
        finally:
            for task in tasks:
                task.cancel()


class _Keeper:
    """One component: run it, say how it ended, run it again."""

    def __init__(self, component: Component, clock: Clock, emit: Emit, backoff: Backoff) -> None:
        self._component = component
        self._clock = clock
        self._emit = emit
        self._backoff = backoff

    async def run(self) -> None:
        failures = 0
        while True:
            started = self._clock.monotonic()
            ended = await self._run_once()
            settled = self._clock.monotonic() - started > _SETTLED_SECONDS
            failures = 1 if settled else failures + 1
            delay = self._backoff.delay(failures, system_random)
            self._say(f"{ended}; starting again in {delay:.1f} s")
            await self._clock.sleep(delay)

    async def _run_once(self) -> str:
        """One life of the process; says how it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                # A supervisor that is killed cannot stop its components, so the kernel does.
                *bound_to_parent(self._component.command, signal.SIGTERM),
                env=dict(self._component.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=LINE_BYTES,
            )
        except OSError as problem:
            return f"cannot be started: {problem.strerror}"
        try:
            await self._pump(process)
            return f"ended with {await process.wait()}"
        finally:
            await asyncio.shield(_stopped(process))

    async def _pump(self, process: asyncio.subprocess.Process) -> None:
        """Pass its lines on until there are no more."""
        lines = process.stdout
        if lines is None:  # it was asked for above
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
            self._emit(named(self._component.name, line.decode(errors="replace").rstrip()))

    def _say(self, text: str) -> None:
        self._emit(json.dumps({"component": self._component.name, "level": "warning", "event": text}))


def named(component: str, line: str) -> str:
    """A line of a component's log with its name: inside, if it is JSON, else in front."""
    with contextlib.suppress(json.JSONDecodeError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return json.dumps({"component": component, **entry}, ensure_ascii=False)
    return f"{component} | {line}"


async def _stopped(process: asyncio.subprocess.Process) -> None:
    """Ask it to stop, and make it stop if it does not."""
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
    """Read away its last words: a full pipe would keep it from stopping."""
    if process.stdout is not None:
        while await process.stdout.read(LINE_BYTES):
            pass
