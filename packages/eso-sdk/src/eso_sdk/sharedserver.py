"""Several providers in one process: each has its own `Server`, and one endpoint serves the probes and metrics of all.

    certificates -> import -> Server.start -> SERVING
                                 | fails: FAILED, and again with back-off

A provider that cannot be loaded or cannot listen is reported, and the others serve. The providers share the event loop
and the memory of the process: `docs/adr/0019-several-providers-in-one-process.md` says what that costs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import structlog
from structlog.contextvars import bound_contextvars

from eso_sdk import installed, metrics
from eso_sdk.metrics import Metrics, Probes
from eso_sdk.provider import Provider
from eso_sdk.redaction import seat
from eso_sdk.server import ServeError, ServeOptions, Server, listening, write_ready
from eso_wire.tls import CERTIFICATE_FILE
from kubebase.backoff import ExponentialBackoff, system_random
from kubebase.clock import Clock, SystemClock

_RETRIES: Final = ExponentialBackoff(first=1.0, cap=30.0)
_POLL_SECONDS: Final = 0.5

_log = structlog.get_logger("eso_sdk.sharedserver")


class State(StrEnum):
    """The state of one provider of the process, as `/readyz` shows it."""

    WAITING = "waiting"
    """Not needed yet: it starts as soon as it has certificates."""
    STARTING = "starting"
    SERVING = metrics.READY
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Member:
    """One provider of the process: its name as it is installed, and how it is served."""

    name: str
    options: ServeOptions


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """What the providers of a process have in common. Addresses are as in `ServeOptions`."""

    metrics: str = ""
    live: str = ""
    ready_file: Path | None = None
    """Written with the addresses as JSON once each provider serves or has failed; removed when the process ends."""
    on_demand: bool = False
    """Import and start a provider only once it has certificates; wait for them without limit."""


class Hosted:
    """One provider of the process, from its import to its end. Its failures stay here."""

    def __init__(self, member: Member, clock: Clock, load: Callable[[str], Provider], *, on_demand: bool) -> None:
        self.name = member.name
        self.state = State.WAITING if on_demand else State.STARTING
        self.unloadable = ""
        """The reason why it cannot be imported; empty if it can, or was not tried."""
        self.metrics = Metrics(member.name)
        self.started = asyncio.Event()
        """Set once it serves, has failed, or waits to be needed."""
        self._options = member.options
        self._clock = clock
        self._load = load
        self._server: Server | None = None
        self._said = ""

    @property
    def address(self) -> str:
        return self._server.address if self._server is not None and self.state is State.SERVING else ""

    async def run(self) -> None:
        """Start it, again and again until that works."""
        with bound_contextvars(provider=self.name):
            if self.state is State.WAITING:
                self.started.set()
                await self._needed()
            try:
                # In a thread: an import takes seconds, and the other providers answer calls meanwhile.
                provider = await asyncio.to_thread(self._load, self.name)
                self.metrics = Metrics(self.name, provider.api_name)
            except Exception as problem:  # noqa: BLE001 - also if the entry point leads to something else
                known = isinstance(problem, installed.ProviderNameError)
                self.unloadable = str(problem) if known else installed.unloadable(self.name, problem)
                self._fail(self.unloadable)
                return
            failures = 0
            while not await self._started(provider):
                failures += 1
                await self._clock.sleep(_RETRIES.delay(failures, system_random))

    async def drain(self) -> None:
        """Finish its calls and close it."""
        self.state = State.STOPPED
        if self._server is not None:
            with bound_contextvars(provider=self.name):
                await self._server.drain()

    async def _needed(self) -> None:
        """Wait for its certificates: the operator issues them for the provider's Service."""
        while not (self._options.tls_dir / CERTIFICATE_FILE).exists():
            await self._clock.sleep(_POLL_SECONDS)
        self.state = State.STARTING

    async def _started(self, provider: Provider) -> bool:
        """Try to start it once; return whether it serves."""
        try:
            self._server = Server(provider, self._options, self._clock, self.metrics)
            await self._server.start()
        except ServeError as problem:
            said = str(problem)
        except Exception as problem:  # noqa: BLE001 - the other providers of the process must not notice
            said = f"the start failed: {seat(problem)}"
        else:
            self.state, self._said = State.SERVING, ""
            self.started.set()
            return True
        if self._server is not None:
            await self._server.drain()
        self._fail(f"{said}; it is tried again until it works")
        return False

    def _fail(self, problem: str) -> None:
        self.state = State.FAILED
        if problem != self._said:
            _log.error("cannot serve; the other providers are not affected", problem=problem)
        self._said = problem
        self.started.set()


class SharedServer:
    """The providers of one process, served in this event loop."""

    def __init__(
        self,
        members: Sequence[Member],
        options: SharedOptions,
        clock: Clock | None = None,
        load: Callable[[str], Provider] = installed.load,
    ) -> None:
        self.options = options
        self._clock: Clock = clock or SystemClock()
        self.hosted = [Hosted(member, self._clock, load, on_demand=options.on_demand) for member in members]
        self.metrics_address = self.live_address = ""
        self._probes = Probes(self._clock, self.is_ready, self.exposition, self.states)
        self._live = Probes(self._clock, self.is_ready, states=self.states)
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen for probes, start the providers, and return once each of them serves or has failed."""
        if self.options.metrics:
            self.metrics_address = await listening(self._probes, self.options.metrics)
        if self.options.live:
            self.live_address = await listening(self._live, self.options.live)
        self._running = [asyncio.get_running_loop().create_task(one.run()) for one in self.hosted]
        await asyncio.gather(*(one.started.wait() for one in self.hosted))
        if all(one.unloadable for one in self.hosted):
            raise ServeError("; ".join(one.unloadable for one in self.hosted))
        if self.options.ready_file is not None:
            write_ready(self.options.ready_file, self.describe())

    async def drain(self) -> None:
        """Drain all providers at the same time, then close the probes."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for one, problem in zip(
            self.hosted, await asyncio.gather(*map(Hosted.drain, self.hosted), return_exceptions=True), strict=True
        ):
            if isinstance(problem, Exception):
                _log.warning("not drained cleanly", provider=one.name, error=seat(problem))
        await self._probes.stop()
        await self._live.stop()
        if self.options.ready_file is not None:
            with suppress(OSError):  # it may not exist
                self.options.ready_file.unlink()

    def is_ready(self) -> bool:
        """Return whether the start of every provider has ended, and calls to at least one of them can be answered.

        One provider that fails leaves the process ready: otherwise a pod would lose the traffic of all of them.
        """
        answering = any(one.state in {State.SERVING, State.WAITING} for one in self.hosted)
        return answering and all(one.started.is_set() for one in self.hosted)

    def states(self) -> dict[str, str]:
        """Return the state of each provider, by its name."""
        return {one.name: one.state.value for one in self.hosted}

    def exposition(self) -> bytes:
        """Return the metrics of all providers."""
        return metrics.exposition(one.metrics for one in self.hosted)

    def describe(self) -> dict[str, Any]:
        """Return the content of the ready file."""
        return {
            "providers": {one.name: one.address for one in self.hosted},
            "metrics": self.metrics_address,
            "live": self.live_address,
            "pid": os.getpid(),
        }
