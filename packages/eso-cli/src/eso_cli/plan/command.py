"""The command `eso plan`: options, the places of live objects and answers, exit codes, output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final, Self

import structlog

from eso_cli.connecting import load, unanswered
from eso_cli.documents import Document, InputError, read_places
from eso_cli.folder import missing
from eso_cli.plan.backends import Backend, Processes, Replayed
from eso_cli.plan.live import Live, LiveCluster, Nothing, ReadOnlyTransport, RecordedObjects, Remembering, object_names
from eso_cli.plan.page import as_json, lines
from eso_cli.plan.planning import Plan, Recorded, plan_of, recorded_outcome
from eso_cli.plan.seeding import namespace_problem
from eso_cli.plan.simulation import Order, Simulation, simulate
from eso_cli.terminal import echo, printable
from eso_operator.planning.answers import Recorder, Replay
from eso_operator.planning.objects import masked
from eso_operator.planning.recording import Recording, RecordingError, read, write
from eso_operator.planning.standins import StandIns
from eso_operator.process.settings import SettingsError
from kubebase.clock import Clock, SystemClock
from kuberun.client import Client
from kuberun.errors import ConfigError, KubeError, Unreachable
from kuberun.transport import AiohttpTransport, Transport

NOTHING_CHANGES, FAILS, UNUSABLE, CHANGES, UNCHECKED = 0, 1, 2, 3, 4
"""Exit codes. The first that applies, in the order 2, 1, 4, 3, 0, is returned."""
TERMINATED: Final = 128 + signal.SIGTERM
_SILENT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    files: tuple[Path, ...]
    namespace: str = ""
    kubeconfig: Path | None = None
    context: str = ""
    offline: bool = False
    record: Path | None = None
    recorded: Path | None = None
    allow_token_requests: bool = False
    timeout: float = 60.0
    as_json: bool = False
    operator_flags: tuple[str, ...] = ()


def silence() -> None:
    """Drop all log lines: the plan reports what matters in them."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run(options: Options) -> int:
    """Print the plan; return the exit code."""
    try:
        plan = asyncio.run(_until_terminated(options))
    except asyncio.CancelledError:
        return TERMINATED
    except (InputError, RecordingError, SettingsError, KubeError) as problem:
        for line in str(problem).splitlines():
            echo(f"eso plan: {printable(line)}", err=True)
        return UNUSABLE
    code = code_of(plan)
    echo(json.dumps(as_json(plan, code), indent=2) if options.as_json else "\n".join(lines(plan)), coloured=True)
    return code


async def _until_terminated(options: Options) -> Plan:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await planned(options)


async def planned(options: Options) -> Plan:
    """Return the plan. Raises an error for input that cannot be used."""
    _check(options)
    documents, problems = read_places(options.files)
    if problems and not documents:
        raise InputError("\n".join(problems))
    recording = read(options.recorded) if options.recorded is not None else None
    clock = SystemClock()
    with Progress(clock) as progress:
        async with _Cluster.of(options) as cluster:
            planner = _Planner(options, (documents, problems), cluster, clock, progress.tell)
            return await (planner.plan() if recording is None else planner.replay(recording))


def code_of(plan: Plan) -> int:
    if plan.causes or plan.unsettled:
        return FAILS
    if plan.unchecked:
        return UNCHECKED
    return CHANGES if plan.changes else NOTHING_CHANGES


def _check(options: Options) -> None:
    """Raise an InputError for options that cannot be used."""
    if options.record is not None and options.recorded is not None:
        raise InputError("--record needs a cluster and providers; leave out --recorded")
    if options.record is not None and not options.record.absolute().parent.is_dir():
        raise InputError(f"{options.record}: its folder does not exist; create it, or choose another --record")
    if (place := missing(options.files)) is not None:
        raise InputError(f"{place}: no such file or folder; --file names manifests")
    if problem := namespace_problem(options.namespace):
        raise InputError(f"--namespace {problem}")


class _Planner:
    def __init__(
        self,
        options: Options,
        inputs: tuple[list[Document], list[str]],
        cluster: _Cluster,
        clock: Clock,
        tell: Callable[[str], None],
    ) -> None:
        self._options = options
        self._documents, self._problems = inputs
        self._cluster = cluster
        self._clock = clock
        self._tell = tell

    async def plan(self) -> Plan:
        """Plan with providers; with `--record`, write the recording."""
        if self._options.record is None:
            simulation = await self._simulate(self._cluster.live, lambda folder: Processes(folder, self._clock))
            return self._noted(plan_of(simulation))
        recorder = Recorder(Recording(eso=version("eso-cli")), StandIns())
        seen = Remembering(self._cluster.live)
        simulation = await self._simulate(seen, lambda folder: Processes(folder, self._clock, recorder))
        plan = plan_of(simulation)
        if plan.unsettled:
            note = f"{self._options.record} was not written, because the plan is incomplete; allow more --timeout"
            return self._noted(replace(plan, notes=(*plan.notes, note)))
        recording = recorder.finish()
        recording.objects = [masked(obj, recorder.standins) for _, obj in sorted(seen.found.items())]
        recording.asked = sorted(seen.asked)
        self._tell("checking the recording")
        recorded_outcome(recording, plan, await self._replayed(recording, RecordedObjects(recording)))
        try:
            write(recording, self._options.record)
        except OSError as problem:
            raise RecordingError(f"{self._options.record}: {problem.strerror}") from None
        return self._noted(plan)

    async def replay(self, recording: Recording) -> Plan:
        live = RecordedObjects(recording)
        simulation = await self._replayed(recording, live)
        return plan_of(simulation, Recorded(recording, tuple(live.unknown)))

    async def _replayed(self, recording: Recording, live: RecordedObjects) -> Simulation:
        replay = Replay.of(recording, self._is_recorded(live))
        return await self._simulate(live, lambda _folder: Replayed(replay))

    async def _simulate(self, live: Live, backend: Callable[[Path], Backend]) -> Simulation:
        options = self._options
        order = Order(
            self._documents,
            live,
            options.namespace or self._cluster.namespace,
            options.operator_flags,
            options.timeout,
            None if isinstance(live, RecordedObjects) else self._cluster.tokens,
            self._problems,
        )
        return await simulate(order, backend, self._clock, self._tell)

    def _is_recorded(self, live: RecordedObjects) -> Callable[[str], bool]:
        """Return a check whether the plan takes an object from the recording, not from the manifests."""
        home = self._options.namespace or self._cluster.namespace
        given = {each for document in self._documents for each in object_names(document.content, home)}
        return lambda name: name in live.names and name not in given

    def _noted(self, plan: Plan) -> Plan:
        return replace(plan, notes=(*plan.notes, *self._cluster.notes()))


class _Cluster:
    """The cluster with the live objects, if there is one."""

    def __init__(self, live: Live, namespace: str = "default", transport: Transport | None = None) -> None:
        self.live = live
        self.namespace = namespace
        self.tokens = transport
        """Where tokens are requested; None without a cluster."""

    def notes(self) -> tuple[str, ...]:
        if isinstance(self.live, LiveCluster):
            return tuple(self.live.notes)
        return ("compared with no cluster: everything is new",)

    @classmethod
    @asynccontextmanager
    async def of(cls, options: Options) -> AsyncIterator[_Cluster]:
        """Connect to the cluster of the options. Without any kubeconfig, every object is new."""
        if options.offline or options.recorded is not None:
            yield cls(Nothing())
            return
        try:
            connection = load(options.kubeconfig, options.context, command="plan")
        except ConfigError:
            if options.kubeconfig is not None or options.context or os.environ.get("KUBECONFIG"):
                raise
            yield cls(Nothing())
            return
        transport = ReadOnlyTransport(AiohttpTransport(connection), tokens=options.allow_token_requests)
        client = Client(transport)
        try:
            yield cls(LiveCluster(client), connection.namespace or "default", transport)
        except Unreachable as problem:
            raise unanswered(problem, connection) from None
        finally:
            await client.close()


class Progress:
    """Says on a terminal what happens, if that takes longer than a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._shown = self._ended = False
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def tell(self, text: str) -> None:
        if self._terminal:
            asyncio.get_running_loop().call_later(self._left(), self._show, text)

    def _left(self) -> float:
        return max(0.0, self._began + _SILENT_SECONDS - self._clock.monotonic())

    def _show(self, text: str) -> None:
        if not self._ended:
            self._shown = True
            sys.stderr.write(f"\r\x1b[K{text} ...")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
