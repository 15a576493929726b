"""`eso status --watch`: follows every kind with informers, and shows the overview again after each change.

On a terminal the page is redrawn in place. Otherwise each problem that begins or ends is one line, or with `-o json`
each new overview is one line. Changes within half a second are shown together.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from eso_cli.statuspage import Scene, as_json, headline, lines, operator_problems
from eso_cli.terminal import echo, sign
from eso_operator.insight.operators import NOT_READ, read_operators
from eso_operator.insight.overview import OVERVIEW_KINDS, AnyKind, CachedObjects, Missing, gap_of, gather
from eso_operator.insight.times import time_of_day
from eso_operator.telemetry import logs
from eso_operator.telemetry.settings import LogLevel, LogSettings
from kubebase.clock import Clock, rfc3339
from kubebase.deadline import happens_within
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.requests import Selection

Show = Callable[[Scene], None]

_TOGETHER_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 10.0
"""Times in the page must be updated, Leases of operators are read, and kinds that could not be listed are retried."""
_SYNC_SECONDS: Final = 30.0
_OPERATOR_SECONDS: Final = 5.0


async def follow(client: Client, namespace: str, clock: Clock, *, as_json: bool) -> Scene:
    """Show the overview until SIGINT or SIGTERM; return the last one. Raises ApiError if nothing can be listed."""
    logs.configure(LogSettings(level=LogLevel.FATAL), clock)  # watches recover; log lines would garble the page
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    watching = Watching(client, namespace, clock)
    with ExitStack() as stack:
        show = _shower(stack, as_json=as_json)
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    return await watching.show_until(stop, show, group)
                finally:
                    watching.stop()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # of the loop above; informers do not end


class Watching:
    """The informers of all kinds that can be listed."""

    def __init__(self, client: Client, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._informers: dict[AnyKind, Informer[Any]] = {}
        self._gaps: dict[AnyKind, Missing] = {}
        self._operators = NOT_READ
        self._operators_at = float("-inf")
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    async def show_until(self, stop: asyncio.Event, show: Show, group: asyncio.TaskGroup) -> Scene:
        stopping = group.create_task(self._wake_at(stop))
        self._tasks.append(stopping)
        tried = self._clock.monotonic() - _AGAIN_SECONDS
        while True:
            if self._clock.monotonic() - tried >= _AGAIN_SECONDS:
                await self._start_missing(group)
                tried = self._clock.monotonic()
            self._changed.clear()
            scene = await self._scene()
            show(scene)
            if stop.is_set():
                return scene
            await happens_within(self._clock, _AGAIN_SECONDS, self._changed)
            if not stop.is_set():
                await happens_within(self._clock, _TOGETHER_SECONDS, stop)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _scene(self) -> Scene:
        caches = {custom: informer.cache for custom, informer in self._informers.items()}
        overview = await gather(CachedObjects(caches, self._gaps))
        await self._read_operators()
        return Scene.of(overview, self._clock.now(), self._namespace, self._operators)

    async def _read_operators(self) -> None:
        """Read the Leases of operators again, but not at every change of an object."""
        at = self._clock.monotonic()
        if at - self._operators_at >= _OPERATOR_SECONDS:
            self._operators_at = at
            self._operators = await read_operators(self._client, self._clock.now(), self._namespace)

    async def _start_missing(self, group: asyncio.TaskGroup) -> None:
        """Start the informers of kinds that can be listed now; record why the others cannot."""
        for custom in OVERVIEW_KINDS:
            if custom in self._informers:
                continue
            try:
                gap = await gap_of(self._client, custom, self._namespace)
            except ApiError:
                if not self._informers:
                    raise
                gap = Missing.UNREADABLE
            if gap is not None:
                self._gaps[custom] = gap
                continue
            self._gaps.pop(custom, None)
            await self._start(custom, group)

    async def _start(self, custom: AnyKind, group: asyncio.TaskGroup) -> None:
        selection = Selection(self._namespace if custom.namespaced else "")
        source = self._client.source(custom.kind(), selection)
        informer: Informer[Any] = Informer(source, clock=self._clock, name=custom.crd_name)
        self._informers[custom] = informer
        self._tasks += [group.create_task(informer.run()), group.create_task(self._listen(informer))]
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                await informer.wait_synced()
        except TimeoutError:
            self._gaps[custom] = Missing.UNREADABLE

    async def _listen(self, informer: Informer[Any]) -> None:
        subscription = informer.subscribe()
        while True:
            await subscription.take()
            self._changed.set()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._changed.set()


def _shower(stack: ExitStack, *, as_json: bool) -> Show:
    if as_json:
        return _Documents().show
    if sys.stdout.isatty():
        live = stack.enter_context(Live(console=Console(), auto_refresh=False, screen=True, redirect_stdout=False))
        return lambda scene: live.update(Text.from_ansi("\n".join(lines(scene))), refresh=True)
    return _Changes().show


class _Documents:
    """One JSON document for each overview that differs from the one before."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, scene: Scene) -> None:
        document = json.dumps(as_json(scene))
        if document != self._last:
            _line(document)
        self._last = document


class _Changes:
    """One line for each problem that begins, grows, shrinks or ends."""

    def __init__(self) -> None:
        self._known: dict[str, str] | None = None

    def show(self, scene: Scene) -> None:
        found = {f"{each.reason} {each.roots[0].id}": headline(each, scene.now) for each in scene.causes}
        found |= {f"operator {each}": each for each in operator_problems(scene)}
        known, self._known = self._known, found
        if known is None:
            _line("\n".join(lines(scene)))
            return
        at = time_of_day(rfc3339(scene.now), scene.now)
        for ended in known.keys() - found.keys():
            _line(f"{at} {sign('✓')} over: {known[ended]}")
        for cause, said in found.items():
            if known.get(cause) != said:
                _line(f"{at} {sign('✗')} {said}")


def _line(text: str) -> None:
    echo(text, coloured=True)
    sys.stdout.flush()
