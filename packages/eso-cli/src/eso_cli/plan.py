"""The command `eso plan`: options, the places of live objects and answers, exit codes, output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

import structlog
import typer

from eso_cli.connecting import load, with_origin
from eso_cli.demand import Demand
from eso_cli.providers import Supervised, keep_certificates, plan_others
from eso_cli.supervisor import supervised
from eso_cli.terminal import echo, printable, sign
from eso_cli.up import provider_component
from eso_operator.providers.channels import GrpcTransport
from eso_operator.providers.channels import Transport as ProviderTransport
from eso_operator.settings import SettingsError
from eso_operator.stores.resolved import Endpoint, ServiceKey
from eso_tools.manifests import Document, InputError, missing, read_places
from eso_tools.plan.backends import Backend, Needed, Replayed
from eso_tools.plan.differences import Change
from eso_tools.plan.live import (
    Live,
    LiveCluster,
    Nothing,
    ReadOnlyTransport,
    RecordedObjects,
    Remembering,
    object_names,
)
from eso_tools.plan.objects import masked
from eso_tools.plan.plan import Plan, PushPlan, Recorded, TargetPlan, plan_of, recorded_outcome
from eso_tools.plan.recording import Recording, RecordingError, read, write
from eso_tools.plan.replay import Recorder, RecordingTransport, Replay
from eso_tools.plan.seeding import namespace_problem
from eso_tools.plan.simulation import Order, Simulation, simulate
from eso_tools.plan.standins import StandIns
from eso_tools.plan.withholding import Withheld, WithholdingTransport
from eso_wire.tls import TlsMaterial
from kubebase.clock import Clock, SystemClock
from kuberun.client import Client
from kuberun.errors import ConfigError, KubeError, Unreachable
from kuberun.transport import AiohttpTransport, Transport
from localkube.cluster import Cluster
from localkube.manifests import install

_POLL_SECONDS: Final = 0.05
_REMEMBERED_LINES: Final = 5


@dataclass(slots=True)
class _Lines:
    """The last lines of the processes, for the report about one that does not start."""

    last: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_LINES))

    def passed_on(self, component: str, line: str) -> None:
        self.last.append(f"{component}: {line}")

    def warning(self, component: str, text: str) -> None:
        self.passed_on(component, text)


class Processes:
    """Installed providers as processes. With a recorder, their answers are recorded."""

    def __init__(self, folder: Path, clock: Clock, recorder: Recorder | None = None) -> None:
        self.withheld = Withheld()
        self._clock = clock
        self._recorder = recorder
        self._providers = {provider.name: provider for provider in plan_others((), folder)}

    def services(self) -> dict[ServiceKey, str]:
        return {provider.service: provider.address for provider in self._providers.values()}

    def dial(self, endpoint: Endpoint, material: TlsMaterial) -> ProviderTransport:
        inner: ProviderTransport = GrpcTransport(endpoint, material, self._clock)
        if self._recorder is not None:
            inner = RecordingTransport(inner, endpoint, self._recorder)
        return WithholdingTransport(inner, self.withheld)

    @asynccontextmanager
    async def running(self, cluster: Cluster, client: Client) -> AsyncIterator[Needed]:
        lines = _Lines()
        demand = Demand(cluster, (), self._providers, warn=lambda text: lines.warning("eso plan", text))
        async with supervised((), self._clock, lines) as start, asyncio.TaskGroup() as tasks:
            keepers: list[asyncio.Task[None]] = []

            async def begin(provider: Supervised) -> None:
                await install(cluster, provider.objects())
                start(provider_component(provider))
                copied = keep_certificates(
                    provider.name, provider.tls_folder, client, self._clock, warn=lambda text: lines.warning("up", text)
                )
                keepers.append(tasks.create_task(copied))

            with demand.following():
                yield _NeededProcesses(demand, self._providers, begin, self._clock, lines)
            for task in keepers:
                task.cancel()

    def close(self) -> None:
        for provider in self._providers.values():
            provider.reserved.release()


class _NeededProcesses:
    def __init__(
        self,
        demand: Demand,
        providers: dict[str, Supervised],
        begin: Callable[[Supervised], Awaitable[None]],
        clock: Clock,
        lines: _Lines,
    ) -> None:
        self._demand = demand
        self._providers = providers
        self._begin = begin
        self._clock = clock
        self._lines = lines
        self._running: list[Supervised] = []

    async def started(self) -> int:
        for name in await self._demand.take_needed():
            provider = self._providers[name]
            self._running.append(provider)
            await self._begin(provider)
        while not all(provider.ready_file.exists() for provider in self._running):
            await self._clock.sleep(_POLL_SECONDS)
        return len(self._running)

    def trouble(self) -> str:
        late = [provider.name for provider in self._running if not provider.ready_file.exists()]
        if not late:
            return ""
        return f"provider {late[0]} did not start; its last lines: {' | '.join(self._lines.last)}"


_SIGNS: Final = {Change.CREATE: "+", Change.CHANGE: "~", Change.REMOVE: "-", Change.UNCHANGED: "="}
_COLOURS: Final = {
    Change.CREATE: typer.colors.GREEN,
    Change.CHANGE: typer.colors.YELLOW,
    Change.REMOVE: typer.colors.RED,
    Change.UNCHANGED: None,
}
_MAX_WAITING: Final = 10


def lines(plan: Plan) -> Iterator[str]:
    """Yield the page. `echo` strips the colours if the output is not a terminal."""
    yield from _problems(plan)
    for namespace in sorted({target.namespace for target in plan.targets} | {push.namespace for push in plan.pushes}):
        yield typer.style(f"namespace {printable(namespace)}", bold=True)
        for target in plan.targets:
            if target.namespace == namespace:
                yield from _target(target)
        for of in sorted({push.of for push in plan.pushes if push.namespace == namespace}):
            yield f"  PushSecret {printable(of)} (nothing was pushed)"
            yield from _rows([_push_row(push) for push in plan.pushes if (push.namespace, push.of) == (namespace, of)])
        yield ""
    yield from (f"note: {printable(note)}" for note in plan.notes)
    yield summary(plan)


def summary(plan: Plan) -> str:
    """Return the counts of keys and remote values, then of objects."""
    counts = [f"{plan.count(change)} {change}" for change in Change]
    if plan.failing:
        counts.append(f"{plan.failing} {'fails' if plan.failing == 1 else 'fail'}")
    if plan.unchecked:
        counts.append(f"{len(plan.unchecked)} not checked")
    return ", ".join(counts)


def as_json(plan: Plan, code: int) -> dict[str, Any]:
    return {
        "summary": {
            **{change.value: plan.count(change) for change in Change},
            "fails": plan.failing,
            "notChecked": len(plan.unchecked),
            "exitCode": code,
        },
        "problems": [
            {
                "says": printable(cause.headline),
                "reason": cause.reason,
                "message": printable(cause.message) or None,
                "causedBy": [str(row.id) for row in cause.roots],
                "waiting": [str(row.id) for row in cause.waiting],
            }
            for cause in plan.causes
        ],
        "unsettled": printable(plan.unsettled) or None,
        "notChecked": [
            {"kind": each.kind, "namespace": each.namespace, "name": each.name, "why": printable(each.why)}
            for each in plan.unchecked
        ],
        "targets": [_target_fields(target) for target in plan.targets],
        "pushes": [_push_fields(push) for push in plan.pushes],
        "notes": [printable(note) for note in plan.notes],
    }


# --- text -------------------------------------------------------------------------------------------------------------


def _problems(plan: Plan) -> Iterator[str]:
    if plan.unsettled:
        yield f"{_cross()} {printable(plan.unsettled)}"
        yield ""
    for cause in plan.causes:
        yield f"{_cross()} {typer.style(printable(cause.headline), bold=True)}"
        if message := printable(cause.message):
            yield f"    {message}"
        if len(cause.roots) > 1:
            yield f"    {', '.join(printable(str(row.id.key)) for row in cause.roots[:_MAX_WAITING])}"
        if cause.waiting:
            more = len(cause.waiting) - _MAX_WAITING
            names = ", ".join(printable(str(row.id.key)) for row in cause.waiting[:_MAX_WAITING])
            yield f"    waiting: {names}{f' and {more} more' if more > 0 else ''}"
        yield ""
    for each in plan.unchecked:
        yield f"? {printable(f'{each.kind} {each.namespace}/{each.name}')}: not checked"
        yield f"    {printable(each.why)}"
        yield ""


def _target(target: TargetPlan) -> Iterator[str]:
    yield f"  {printable(f'{target.kind} {target.name}')}, of ExternalSecret {', '.join(map(printable, target.of))}"
    yield from (f"    ({printable(note)})" for note in target.notes)
    yield from _rows([(key.change, key.key, _digests(key.before, key.after)) for key in target.keys])


def _push_row(push: PushPlan) -> tuple[Change, str, str]:
    known = "" if push.current_known else "; its current value cannot be read"
    return push.change, f"{push.store}: {push.remote}", f"{push.digest}{known}"


def _rows(rows: list[tuple[Change, str, str]]) -> Iterator[str]:
    width = max((len(printable(name)) for _, name, _ in rows), default=0)
    for change, name, digests in rows:
        text = f"    {_SIGNS[change]} {change:<9}  {printable(name).ljust(width)}  {digests}".rstrip()
        yield typer.style(text, fg=_COLOURS[change])


def _digests(before: str, after: str) -> str:
    if before and after and before != after:
        return f"{before} -> {after}"
    return after or before


def _cross() -> str:
    return typer.style(sign("✗"), fg=typer.colors.RED)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _target_fields(target: TargetPlan) -> dict[str, Any]:
    return {
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "externalSecrets": list(target.of),
        "notes": list(target.notes),
        "keys": [
            {"key": key.key, "change": key.change.value, "before": key.before or None, "after": key.after or None}
            for key in target.keys
        ],
    }


def _push_fields(push: PushPlan) -> dict[str, Any]:
    return {
        "namespace": push.namespace,
        "pushSecret": push.of,
        "store": push.store,
        "remote": push.remote,
        "change": push.change.value,
        "digest": push.digest or None,
        "currentValueKnown": push.current_known,
    }


NOTHING_CHANGES, FAILS, UNUSABLE, CHANGES, UNCHECKED = 0, 1, 2, 3, 4
"""Exit codes. The first that applies, in the order 2, 1, 4, 3, 0, is returned."""
TERMINATED: Final = 128 + signal.SIGTERM
_SILENT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PlanOptions:
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


def run(options: PlanOptions) -> int:
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


async def _until_terminated(options: PlanOptions) -> Plan:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await planned(options)


async def planned(options: PlanOptions) -> Plan:
    """Return the plan. Raises an error for input that cannot be used."""
    _check(options)
    documents, problems = read_places(options.files)
    if problems and not documents:
        raise InputError("\n".join(problems))
    recording = read(options.recorded) if options.recorded is not None else None
    clock = SystemClock()
    with DelayedProgress(clock) as progress:
        async with _Cluster.of(options) as cluster:
            planner = _Planner(options, (documents, problems), cluster, clock, progress.report)
            return await (planner.plan() if recording is None else planner.replay(recording))


def code_of(plan: Plan) -> int:
    if plan.causes or plan.unsettled:
        return FAILS
    if plan.unchecked:
        return UNCHECKED
    return CHANGES if plan.changes else NOTHING_CHANGES


def _check(options: PlanOptions) -> None:
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
        options: PlanOptions,
        inputs: tuple[list[Document], list[str]],
        cluster: _Cluster,
        clock: Clock,
        report: Callable[[str], None],
    ) -> None:
        self._options = options
        self._documents, self._problems = inputs
        self._cluster = cluster
        self._clock = clock
        self._report = report

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
        recording.reads = sorted(seen.reads)
        self._report("checking the recording")
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
        return await simulate(order, backend, self._clock, self._report)

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
    async def of(cls, options: PlanOptions) -> AsyncIterator[_Cluster]:
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
            raise with_origin(problem, connection) from None
        finally:
            await client.close()


class DelayedProgress:
    """Says on a terminal what happens, if that takes longer than a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._shown = self._ended = False
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def report(self, text: str) -> None:
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
