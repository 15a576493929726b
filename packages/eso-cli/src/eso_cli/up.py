"""`eso up`: the embedded API server with our CRDs, the operator and the providers that are needed, as one command.

The API server runs in this process; the operator and each provider are children, restarted when they end. Providers
that the command line names start at once, every other installed one with the first object that needs it. Their logs
come out of this process' standard error with the name of the component.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
import typer

from eso_api.kinds import installed_kinds
from eso_cli.demand import Demand
from eso_cli.folder import Folder, Voice, missing
from eso_cli.providers import (
    CORE_NAMESPACE,
    STARTED_HERE,
    ProviderNameError,
    Supervised,
    free_port,
    keep_certificates,
    plan,
    plan_others,
)
from eso_cli.supervisor import Component, supervised
from eso_operator.flags import parse
from eso_operator.settings import SettingsError
from eso_sdk.redaction import seat
from kuberun import config
from kuberun.client import Client
from kuberun.clock import Clock, SystemClock
from kuberun.meta import JsonObject
from kuberun.transport import AiohttpTransport
from localkube.manifests import ManifestError, install, remove
from localkube.model import ListQuery
from localkube.process import Files, StartError, run, write_ready
from localkube.server import LocalKube

_READY_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 5.0
_ALLOW_ADDRESS: Final = "ESO_PROVIDER_ALLOW_ADDRESS"


@dataclass(frozen=True, slots=True)
class Options:
    data_dir: Path
    kubeconfig: Path
    port: int
    ready_file: Path | None
    manifests: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()
    operator: bool = True
    operator_flags: tuple[str, ...] = ()

    @property
    def files(self) -> Files:
        return Files(self.kubeconfig, self.ready_file)

    def planned_providers(self) -> tuple[Supervised, ...]:
        """Those that the command line names, and those that start on demand: without an operator nobody calls them."""
        folder = self.data_dir / "providers"
        pinned = plan(list(self.providers), folder)
        return (*pinned, *plan_others(pinned, folder)) if self.operator else pinned


async def serve(options: Options) -> int:
    """Run until a signal; the exit code says whether it started."""
    stop = asyncio.Event()
    providers: tuple[Supervised, ...] = ()
    try:
        kube = LocalKube(options.data_dir, port=options.port)
        providers = options.planned_providers()
        site = Site(options, kube, providers, stop)
        site.check_options()
        await run(kube, site.objects(), options.files, announce=typer.echo, company=site.company, stop=stop)
    except (StartError, ProviderNameError, SettingsError, OSError, ExceptionGroup) as problem:
        typer.echo(f"eso up: {_said(problem, options)}", err=True)
        return 1
    finally:
        for provider in providers:
            provider.release()
    return 0


def _said(problem: Exception, options: Options) -> str:
    """What is wrong, and which option helps."""
    if isinstance(problem, ExceptionGroup):  # of the tasks that run beside the server
        return _said(problem.exceptions[0], options)
    cause = problem.__cause__ or problem
    if isinstance(cause, OSError):
        if cause.errno == errno.EADDRINUSE:
            return f"port {options.port} is in use; choose another one with --port"
        where = cause.filename or options.data_dir
        return f"{where}: {cause.strerror}; choose other places with --data-dir, --kubeconfig and --ready-file"
    if isinstance(problem, (StartError, ProviderNameError, SettingsError)):
        return str(problem)
    return f"stopped by a defect of its own: {seat(problem)}"


@dataclass(frozen=True, slots=True)
class _Running:
    """What a provider that starts later needs: who runs its process, and who owns its tasks."""

    start: Callable[[Component], None]
    tasks: TaskGroup
    client: Client
    demand: Demand
    owned: list[asyncio.Task[None]] = field(default_factory=list)

    def own(self, *work: Coroutine[None, None, None]) -> None:
        self.owned.extend(self.tasks.create_task(one) for one in work)


class Site:
    """Everything that runs beside the API server."""

    def __init__(
        self, options: Options, kube: LocalKube, providers: tuple[Supervised, ...], stop: asyncio.Event
    ) -> None:
        self._options = options
        self._kube = kube
        self._providers = {provider.name: provider for provider in providers}
        self._started = [provider for provider in providers if not provider.on_demand]
        self._clock: Clock = SystemClock()
        self._live_port = free_port()
        self._stop = stop
        self._announced = self._said_loopback = False

    def check_options(self) -> None:
        """What cannot work is refused before anything runs."""
        if (place := missing(self._options.manifests)) is not None:
            raise StartError(f"{place}: no such file or folder; --file names manifests")
        if self._options.operator:
            parse(self._operator_flags(self._options.kubeconfig), os.environ)
        elif self._options.operator_flags:
            raise StartError(f"no operator runs that could take {self._options.operator_flags[0]}; leave it out")

    def objects(self) -> Iterator[JsonObject]:
        """What the API holds from the start."""
        for kind in installed_kinds():
            yield kind.crd()
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CORE_NAMESPACE}}
        for provider in self._started:
            yield from provider.objects()

    @asynccontextmanager
    async def company(self, kubeconfig: Path) -> AsyncIterator[JsonObject]:
        """Run operator, providers and manifests for as long as the server runs."""
        folder = Folder(self._options.manifests, self._kube.cluster, Voice(_complain, _tell))
        client = Client(AiohttpTransport(config.load(kubeconfig)))
        pinned = [provider.name for provider in self._started]
        waiting = [name for name in self._providers if name not in pinned]
        demand = Demand(self._kube.cluster, pinned, waiting, warn=_complain)
        for provider in self._providers.values():
            provider.ready_file.unlink(missing_ok=True)  # of a process that was killed
        try:
            async with supervised(self._components(kubeconfig), self._clock, _emit) as start, TaskGroup() as tasks:
                running = _Running(start, tasks, client, demand)
                with demand.following():
                    yield await self._begin(running, folder)
                for task in running.owned:
                    task.cancel()
        finally:
            await client.close()

    async def _begin(self, running: _Running, folder: Folder) -> JsonObject:
        """Start what is needed now and follow what will be; what the ready file says about it, once it serves."""
        for provider in self._started:
            running.own(keep_certificates(provider, running.client, self._clock, warn=_complain))
        await folder.apply_changes()
        running.own(folder.follow(self._clock))
        if self._options.operator:
            await self._start_needed(running)
            await self._remove_leftovers()
            running.own(self._follow_needs(running))
        await self._until_ready()
        self._announced = True
        return self._named_providers()

    # --- providers on demand ------------------------------------------------------------------------------------------

    async def _follow_needs(self, running: _Running) -> None:
        while not running.demand.is_met:
            await running.demand.changed()
            await self._start_needed(running)

    async def _start_needed(self, running: _Running) -> None:
        for name, who in (await running.demand.look()).items():
            _tell(f"starting provider {name}: {who} needs it")
            provider = self._providers[name]
            self._started.append(provider)
            provider.release()
            running.start(self._component(provider))
            running.own(self._attend(provider, running.client), self._announce_again(provider))

    async def _attend(self, provider: Supervised, client: Client) -> None:
        """Have the operator know the provider, and the provider its certificates."""
        said = ""
        while True:
            try:
                await install(self._kube.cluster, provider.objects())
                break
            except ManifestError as problem:  # say, somebody deleted the namespace
                if str(problem) != said:
                    _complain(f"provider {provider.name}: {problem}; it is tried again until it works")
                said = str(problem)
                await self._clock.sleep(_AGAIN_SECONDS)
        await keep_certificates(provider, client, self._clock, warn=_complain)

    async def _announce_again(self, provider: Supervised) -> None:
        """Name a provider in the ready file once it serves."""
        while not (self._announced and provider.ready_file.exists()):
            await self._clock.sleep(_LATE_SECONDS)
        try:
            write_ready(self._kube, self._options.files, self._named_providers())
        except OSError as problem:
            _complain(f"{problem.filename}: {problem.strerror}; provider {provider.name} is not named there")

    def _named_providers(self) -> JsonObject:
        serving = (provider for provider in self._started if provider.ready_file.exists())
        return {"providers": {provider.name: provider.address for provider in serving}}

    async def _remove_leftovers(self) -> None:
        """Remove the Services of an earlier run whose providers nobody needs now."""
        (label,) = STARTED_HERE.items()
        kept = ",".join(f"metadata.name!={provider.service.name}" for provider in self._started)
        query = ListQuery(CORE_NAMESPACE, label_selector="=".join(label), field_selector=kept)
        await remove(self._kube.cluster, "v1", "Service", query)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _components(self, kubeconfig: Path) -> list[Component]:
        components = [self._component(provider) for provider in self._started]
        if self._options.operator:
            command = [sys.executable, "-m", "eso_operator", *self._operator_flags(kubeconfig)]
            components.append(Component("operator", command, _environment()))
        return components

    def _component(self, provider: Supervised) -> Component:
        # Backends of people who try things out are on this machine; elsewhere an administrator has to allow that.
        environment = {_ALLOW_ADDRESS: "loopback", **_environment()}
        if not self._said_loopback and _ALLOW_ADDRESS not in os.environ:
            self._said_loopback = True
            _tell(f"providers may call loopback addresses of this machine; set {_ALLOW_ADDRESS} to change that")
        return Component(f"provider-{provider.name}", provider.command, environment)

    def _operator_flags(self, kubeconfig: Path) -> list[str]:
        flags = ["--kubeconfig", str(kubeconfig), "--core-namespace", CORE_NAMESPACE]
        flags += ["--live-addr", f"127.0.0.1:{self._live_port}", "--metrics-addr", "0"]
        return [*flags, *(provider.trust for provider in self._providers.values()), *self._options.operator_flags]

    @property
    def readiness(self) -> str:
        """Where the operator says that it is ready, which flags for it may have moved."""
        live = parse(self._operator_flags(self._options.kubeconfig), os.environ).live
        host = f"[{live.host}]" if ":" in live.host else live.host or "127.0.0.1"
        return f"http://{host}:{live.port}/readyz"

    async def _until_ready(self) -> None:
        """Wait for the operator and the providers, but not for ever: what does not start is seen in the log."""
        if not self._options.operator:
            return
        readiness = self.readiness
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not self._stop.is_set() and not await self._ready(readiness):
                    await self._clock.sleep(_POLL_SECONDS)
        except TimeoutError:
            _complain(f"not everything is ready after {_READY_SECONDS:.0f} s")

    async def _ready(self, readiness: str) -> bool:
        if not all(provider.ready_file.exists() for provider in self._started):
            return False
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            try:
                async with session.get(readiness) as answer:
                    return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False


def _environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "GRPC_VERBOSITY": "ERROR"}


def _emit(line: str) -> None:
    typer.echo(line, err=True)


def _complain(text: str) -> None:
    _emit(json.dumps({"component": "up", "level": "warning", "event": text}))


def _tell(text: str) -> None:
    _emit(json.dumps({"component": "up", "level": "info", "event": text}))
