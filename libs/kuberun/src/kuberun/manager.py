"""Runs a whole operator process: informers, controllers, leader election, probes and other services in one TaskGroup.

    start   probes, services, informers -> leadership -> caches synced -> controllers
    stop    controllers take no more work and finish running reconciles, up to a deadline -> they are cancelled ->
            the lease is released -> everything else is cancelled
    crash   a component that raises, or ends by itself, ends the process with an error that names the component

A standby keeps its caches warm while it waits for the lease. A second signal ends the draining at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import structlog

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kuberun.controller import Controller, place_of
from kuberun.health import HealthServer, caches_fresh, caches_synced, no_overdue_keys
from kuberun.informer import Informer

_log = structlog.get_logger(__name__)

Run = Callable[[], Awaitable[None]]


class Election(Protocol):
    """Leadership: `run` competes for the lease and then renews it until cancelled; it raises when the lease is lost."""

    async def run(self) -> None: ...

    async def wait_acquired(self) -> None: ...

    @property
    def leading(self) -> bool:
        """Return whether this process may work right now."""
        ...

    async def release(self) -> None:
        """Release the lease. Called after all work has stopped; does not raise."""
        ...


class ComponentFailedError(Exception):
    """A component of the process failed; the message says which and where."""


class Manager:
    """Owns the lifetime of everything added to it."""

    def __init__(
        self,
        *,
        clock: Clock,
        drain: float = 25.0,
        election: Election | None = None,
        health: HealthServer | None = None,
    ) -> None:
        self._clock = clock
        self._drain = drain
        self._election = election
        self._health = health
        self._informers: list[Informer[Any]] = []
        self._controllers: list[Controller] = []
        self._services: list[tuple[str, Run]] = []
        self._stopping = asyncio.Event()
        self._forced = asyncio.Event()
        self._when_synced: Callable[[], None] = _nothing

    def add_informer(self, informer: Informer[Any]) -> None:
        if informer not in self._informers:
            self._informers.append(informer)

    def add_controller(self, controller: Controller) -> None:
        """Add the controller and the informers it watches."""
        self._controllers.append(controller)
        for informer in controller.informers:
            self.add_informer(informer)

    def add_service(self, name: str, run: Run) -> None:
        """Add another component that runs from start to stop, on the leader and on standbys."""
        self._services.append((name, run))

    def add_watchdogs(self, *, overdue: float = 1800.0, stale: float = 600.0) -> None:
        """Add probes for everything added so far: liveness for overdue keys, readiness for the caches."""
        if self._health is not None:
            self._health.add_liveness("keys", no_overdue_keys(self._controllers, overdue))
            self._health.add_readiness("caches", caches_synced(self._informers))
            self._health.add_readiness("api-server", caches_fresh(self._informers, stale))

    def stop(self) -> None:
        """Drain and end. A second call ends at once."""
        if self._stopping.is_set():
            self._forced.set()
        self._stopping.set()

    async def run_until_signalled(self) -> None:
        """Run as the main task of a process: SIGTERM and SIGINT stop it; garbage collection is tuned."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        self._when_synced = tune_garbage_collector
        try:
            await self.run()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    async def run(self) -> None:
        """Run until `stop`. Raises ComponentFailedError when a component breaks."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_endless(name, run)) for name, run in self._background()]
                await self._lead_and_work(group)
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _first(failures) from failures

    def _background(self) -> list[tuple[str, Run]]:
        health = [] if self._health is None else [("health", self._health.run)]
        informers = [(f"informer {informer.name}", informer.run) for informer in self._informers]
        return [*health, *self._services, *informers]

    async def _lead_and_work(self, group: asyncio.TaskGroup) -> None:
        if self._election is None:
            await self._work()
            return
        competing = group.create_task(_endless("leader election", self._election.run))
        try:
            if await _before(self._stopping, self._election.wait_acquired()):
                await self._work()
        finally:
            competing.cancel()
            await asyncio.wait({competing})  # a late renewal must not undo the release
            await self._election.release()

    async def _work(self) -> None:
        for informer in self._informers:
            if not await _before(self._stopping, informer.wait_synced()):
                return
        _log.info("caches synced", informers=len(self._informers), controllers=len(self._controllers))
        self._when_synced()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._control(controller)) for controller in self._controllers]
            await self._stopping.wait()
            await self._finish(tasks)

    async def _control(self, controller: Controller) -> None:
        await _named(f"controller {controller.name}", lambda: controller.run(self._permitted))
        if not self._stopping.is_set():
            raise ComponentFailedError(f"controller {controller.name} ended by itself")

    def _permitted(self) -> bool:
        return self._election is None or self._election.leading

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let running reconciles finish until the deadline or a second signal, then cancel them."""
        _log.info("draining", limit=self._drain)
        for controller in self._controllers:
            controller.stop()
        try:
            async with Deadline(self._clock, self._drain):
                drained = not tasks or await _before(self._forced, asyncio.wait(tasks))
        except TimeoutError:
            drained = False
        unfinished = [str(key) for controller in self._controllers for key in controller.queue.running()]
        _log.info("drained" if drained else "draining was cut short", unfinished=unfinished)
        for task in tasks:
            task.cancel()


def _nothing() -> None: ...


def tune_garbage_collector() -> None:
    """Tune the garbage collector for a process that holds large caches.

    Cached objects live as long as the process. Freezing them keeps them out of collections, and higher thresholds make
    collections rare while lists are decoded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _endless(name: str, run: Run) -> None:
    await _named(name, run)
    raise ComponentFailedError(f"{name} ended by itself")


async def _named(name: str, run: Run) -> None:
    """Run the component, and add its name to its failure."""
    try:
        await run()
    except Exception as error:
        what = type(error).__name__
        if isinstance(error, OSError) and error.errno:  # the system's own message, for example for a port in use
            what += f" ({os.strerror(error.errno)})"
        message = f"{name} failed: {what} at {place_of(error)}"
        _log.error("component failed", component=name, error=what, place=place_of(error))
        raise ComponentFailedError(message) from error


async def _before(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Return whether the work finished before the event; cancel the work if it did not."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.done()
    finally:
        working.cancel()
        waiting.cancel()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the failure that caused the others: groups keep the order in which their tasks failed."""
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
