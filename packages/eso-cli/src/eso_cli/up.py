"""`eso up`: the embedded API server with our CRDs, the operator and the required providers, as one command.

The API server runs in this process. The operator, the dashboard and the providers are child processes and are restarted
when they exit. Providers on the command line start at once; any other installed provider starts with the first object
that needs it. With `--shared-providers` one child runs all of them, and starts each when its certificates are written.
Log lines of the children go to a file in the data directory; those that report an error, or all with `--verbose`, also
to the standard error of this process, with the name of the component.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
import sys
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eso_api.crd import crds
from eso_api.kinds import installed_kinds
from eso_cli.demand import Demand
from eso_cli.folder import Folder, FolderLog, empty
from eso_cli.loglines import LogFile, LogFormat, LogLines, Shown
from eso_cli.progress import Progress
from eso_cli.providers import ReservedPort, Supervised, keep_certificates, plan, plan_others, shared_command
from eso_cli.supervisor import Component, supervised
from eso_operator.flags import parse
from eso_operator.settings import Settings, SettingsError
from eso_operator.telemetry.settings import Listener, TimeEncoding
from eso_sdk.installed import ProviderNameError, unloadable
from eso_sdk.redaction import seat
from eso_tools.dashboard import settings as dashboard
from eso_tools.manifests import missing, without_manifests
from eso_tools.providers import CORE_NAMESPACE, STARTED_HERE
from kubebase.clock import Clock, SystemClock
from kubebase.meta import JsonObject
from kuberun import config
from kuberun.client import Client
from kuberun.transport import AiohttpTransport
from localkube.manifests import ManifestError, install, remove
from localkube.model import ListQuery
from localkube.process import Files, Prepare, StartError, run, write_ready
from localkube.server import LocalKube
from localkube.traces import log_lines_to

_READY_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 5.0
_COMPONENT: Final = "up"
_API_SERVER: Final = "apiserver"
_ALLOW_ADDRESS: Final = "ESO_PROVIDER_ALLOW_ADDRESS"
_AMBIENT_IDENTITY: Final = "ESO_PROVIDER_AMBIENT_IDENTITY"


@dataclass(frozen=True, slots=True)
class UpOptions:
    data_dir: Path
    kubeconfig: Path
    port: int
    ready_file: Path | None
    manifests: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()
    operator: bool = True
    operator_flags: tuple[str, ...] = ()
    log_format: LogFormat = LogFormat.AUTO
    shown: Shown = Shown.USUAL
    shared_providers: bool = False
    """Run all providers in one process."""

    @property
    def files(self) -> Files:
        return Files(self.kubeconfig, self.ready_file)

    @property
    def log_file(self) -> Path:
        return self.data_dir / "eso.log"

    def planned_providers(self) -> tuple[Supervised, ...]:
        """Return the providers of the command line and, if an operator runs, those that start on demand."""
        folder = self.data_dir / "providers"
        pinned = plan(list(self.providers), folder)
        return (*pinned, *plan_others(pinned, folder)) if self.operator else pinned


async def serve(options: UpOptions) -> int:
    """Run until a signal arrives; return 0, or 1 if the start failed or a task ended with an error."""
    stop, progress = asyncio.Event(), Progress()
    held = ExitStack()
    try:
        kube = LocalKube(options.data_dir, port=options.port)
        site = Site(options, kube, options.planned_providers(), stop, progress)
        held.callback(site.end)
        site.check_options()
        held.enter_context(log_lines_to(lambda line: site.log.passed_on(_API_SERVER, line), SystemClock()))
        progress.show("starting the API server, the operator and the providers")
        await run(kube, site.objects(), options.files, announce=site.announce, company=site.company, stop=stop)
        site.info("stopped")
    except (StartError, ProviderNameError, SettingsError, OSError, ExceptionGroup) as problem:
        progress.echo(f"eso up: {_problem_text(problem, options)}", err=True)
        return 1
    finally:
        held.close()
    return 0


def _log_lines(options: UpOptions, progress: Progress, log_file: LogFile) -> LogLines:
    """Write to standard error: for people on a terminal, as JSON into a file or pipe."""
    terminal = sys.stderr.isatty()
    text = terminal if options.log_format is LogFormat.AUTO else options.log_format is LogFormat.TEXT
    colour = terminal and "NO_COLOR" not in os.environ

    def write(line: str) -> None:
        progress.echo(line, err=True)

    return LogLines(write, SystemClock(), text=text, colour=colour, shown=options.shown, keep=log_file.write)


def _problem_text(problem: Exception, options: UpOptions) -> str:
    """Describe the problem and the option that solves it."""
    if isinstance(problem, ExceptionGroup):  # of the tasks that run beside the server
        return _problem_text(problem.exceptions[0], options)
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
    """The process supervisor, task group and client that a provider needs when it starts later."""

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
        self,
        options: UpOptions,
        kube: LocalKube,
        providers: tuple[Supervised, ...],
        stop: asyncio.Event,
        progress: Progress | None = None,
    ) -> None:
        self._options = options
        self._kube = kube
        self._providers = {provider.name: provider for provider in providers}
        self._started = [provider for provider in providers if not provider.on_demand]
        self._clock: Clock = SystemClock()
        self._live_port, self._metrics_port, self._dashboard_port = ReservedPort(), ReservedPort(), ReservedPort()
        self._stop = stop
        self._progress = progress or Progress()
        self._log_file = LogFile(options.log_file)
        self.log = _log_lines(options, self._progress, self._log_file)
        self._announced = self._loopback_noted = False

    def end(self) -> None:
        """Release the ports and the log file."""
        self._log_file.close()
        own = (self._live_port, self._metrics_port, self._dashboard_port)
        for reserved in (*own, *(provider.reserved for provider in self._providers.values())):
            reserved.release()

    def check_options(self) -> None:
        """Check the options before anything starts. Raises an error for options that cannot work."""
        if (place := missing(self._options.manifests)) is not None:
            raise StartError(f"{place}: no such file or folder; --file names manifests")
        if (place := empty(self._options.manifests)) is not None:
            raise StartError(without_manifests(place))
        if self._options.operator:
            dashboard.parse(self._dashboard_flags(self._options.kubeconfig))
            if self._operator_settings.live.disabled:
                raise StartError(
                    "--live-addr: give an address; `eso up` asks the operator's probes whether it is ready"
                )
        elif self._options.operator_flags:
            raise StartError(f"no operator runs that could take {self._options.operator_flags[0]}; leave it out")

    def objects(self) -> Iterator[JsonObject]:
        """Yield the objects that are installed before the server is ready."""
        yield from crds(installed_kinds(lambda name, problem: self._warn(unloadable(name, problem))))
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CORE_NAMESPACE}}
        for provider in self._started:
            yield from provider.objects()

    @asynccontextmanager
    async def company(self, kubeconfig: Path, prepare: Prepare) -> AsyncIterator[JsonObject]:
        """Run the operator and the providers, and apply the manifests, while the server runs.

        The processes start before the server has the CRDs: they load their modules meanwhile. Their requests wait.
        """
        client = Client(AiohttpTransport(config.load(kubeconfig)))
        for provider in self._providers.values():
            provider.ready_file.unlink(missing_ok=True)  # of a process that was killed
            if self._options.shared_providers:  # certificates of an earlier run would start providers without need
                shutil.rmtree(provider.tls_folder, ignore_errors=True)
        try:
            async with supervised(self._components(kubeconfig), self._clock, self.log) as start, TaskGroup() as tasks:
                await prepare()
                demand = self._demand()
                running = _Running(start, tasks, client, demand)
                with demand.following():
                    yield await self._begin(running, self._folder(running))
                for task in running.owned:
                    task.cancel()
        finally:
            await client.close()

    def announce(self, ready: str) -> None:
        """Print how to reach everything, and the next command. `ready` names the kubeconfig."""
        if self._options.shown is Shown.QUIET:
            return
        if not self._options.operator:
            self._progress.echo(ready)
            return
        if self.dashboard:
            self._progress.echo(f"dashboard {self.dashboard}")
        self._progress.echo(f"log {self._options.log_file.absolute()}")
        self._progress.echo(ready)
        kubeconfig = shlex.quote(str(self._options.kubeconfig.absolute()))
        self._progress.echo(f"next: export KUBECONFIG={kubeconfig}; eso status -A")

    def _folder(self, running: _Running) -> Folder:
        async def before(objects: Sequence[JsonObject]) -> None:
            """Make the providers known first: without one, an object would be reported as having none."""
            if self._options.operator:
                await running.demand.expect(objects)
                await self._start_needed(running)

        return Folder(self._options.manifests, self._kube.cluster, FolderLog(self._warn, self.info), before)

    def _demand(self) -> Demand:
        pinned = [provider.name for provider in self._started]
        waiting = [name for name in self._providers if name not in pinned]
        return Demand(self._kube.cluster, pinned, waiting, warn=self._warn)

    async def _begin(self, running: _Running, folder: Folder) -> JsonObject:
        """Start the providers needed now, follow later needs, and return the ready file's entry on providers."""
        for provider in self._started:
            running.own(
                keep_certificates(provider.name, provider.tls_folder, running.client, self._clock, warn=self._warn)
            )
        await folder.apply_changes()
        running.own(folder.follow(self._clock))
        if self._options.operator:
            await self._start_needed(running)
            await self._remove_leftovers()
            running.own(self._follow_needs(running))
        await self._until_ready()
        self._announced = True
        return self._additions()

    # --- providers on demand ------------------------------------------------------------------------------------------

    async def _follow_needs(self, running: _Running) -> None:
        while not running.demand.is_met:
            await running.demand.changed()
            await self._start_needed(running)

    async def _start_needed(self, running: _Running) -> None:
        for name, who in (await running.demand.take_needed()).items():
            self.info(f"starting provider {name}: {who} needs it")
            provider = self._providers[name]
            self._started.append(provider)
            if not self._options.shared_providers:
                running.start(self._component(provider))
            problem = await self._install_service(provider, "")
            running.own(self._attend(provider, running.client, problem), self._announce_again(provider))

    async def _install_service(self, provider: Supervised, reported: str) -> str:
        """Install the provider's Service, so that the operator finds it; return the problem, empty if there is none.

        `said` is the problem that was reported before.
        """
        try:
            await install(self._kube.cluster, provider.objects())
        except ManifestError as problem:  # for example, the namespace was deleted
            if str(problem) != reported:
                self._warn(f"provider {provider.name}: {problem}; it is tried again until it works")
            return str(problem)
        return ""

    async def _attend(self, provider: Supervised, client: Client, problem: str) -> None:
        """Retry the provider's Service if it could not be installed, and keep its certificates up to date."""
        while problem:
            await self._clock.sleep(_AGAIN_SECONDS)
            problem = await self._install_service(provider, problem)
        await keep_certificates(provider.name, provider.tls_folder, client, self._clock, warn=self._warn)

    async def _announce_again(self, provider: Supervised) -> None:
        """Add a provider to the ready file as soon as it serves."""
        while not (self._announced and provider.ready_file.exists()):
            await self._clock.sleep(_LATE_SECONDS)
        try:
            write_ready(self._kube, self._options.files, self._additions())
        except OSError as problem:
            self._warn(f"{problem.filename}: {problem.strerror}; provider {provider.name} is not named there")

    def _additions(self) -> JsonObject:
        """Return what the ready file says besides how to reach the API server."""
        serving = (provider for provider in self._started if provider.ready_file.exists())
        named = {"providers": {provider.name: provider.address for provider in serving}}
        return {**named, "dashboard": self.dashboard} if self._options.operator and self.dashboard else named

    async def _remove_leftovers(self) -> None:
        """Remove the Services of an earlier run whose providers are not needed now."""
        (label,) = STARTED_HERE.items()
        log_file = ",".join(f"metadata.name!={provider.service.name}" for provider in self._started)
        query = ListQuery(CORE_NAMESPACE, label_selector="=".join(label), field_selector=log_file)
        await remove(self._kube.cluster, "v1", "Service", query)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _components(self, kubeconfig: Path) -> list[Component]:
        components = self._provider_components()
        if self._options.operator:
            for reserved in (self._live_port, self._metrics_port, self._dashboard_port):
                reserved.hand_over()
            command = [sys.executable, "-m", "eso_operator", *self._operator_flags(kubeconfig)]
            components.append(Component("operator", command, _environment()))
            if self.dashboard:
                command = [sys.executable, "-m", "eso_tools.dashboard.process", *self._dashboard_flags(kubeconfig)]
                components.append(Component("dashboard", command, _environment()))
        return components

    def _provider_components(self) -> list[Component]:
        """Return the processes that run from the start: one for each provider, or one for all of them."""
        if not self._options.shared_providers:
            return [self._component(provider) for provider in self._started]
        if not self._providers:
            return []
        self._note_loopback()
        return [shared_component(self._providers.values())]

    def _component(self, provider: Supervised) -> Component:
        self._note_loopback()
        return provider_component(provider)

    def _note_loopback(self) -> None:
        if not self._loopback_noted and _ALLOW_ADDRESS not in os.environ:
            self._loopback_noted = True
            self.info(f"providers may call loopback addresses of this machine; set {_ALLOW_ADDRESS} to change that")

    def _operator_flags(self, kubeconfig: Path) -> list[str]:
        flags = ["--kubeconfig", str(kubeconfig), "--core-namespace", CORE_NAMESPACE]
        flags += ["--live-addr", f"127.0.0.1:{self._live_port.number}"]
        flags += ["--metrics-addr", f"127.0.0.1:{self._metrics_port.number}"]
        flags += ["--zap-time-encoding", TimeEncoding.ISO8601]  # as the other processes do
        _, given = dashboard.split_flags(self._options.operator_flags)
        return [*flags, *(provider.trust for provider in self._providers.values()), *given]

    def _dashboard_flags(self, kubeconfig: Path) -> list[str]:
        flags = ["--kubeconfig", str(kubeconfig), "--core-namespace", CORE_NAMESPACE]
        flags += ["--dashboard-addr", f"127.0.0.1:{self._dashboard_port.number}"]
        flags += ["--zap-time-encoding", TimeEncoding.ISO8601]
        metrics = self._operator_settings.metrics
        if not (metrics.listen.disabled or metrics.secure):
            flags += ["--metrics-url", f"http://{_local_address(metrics.listen)}/metrics"]
        given, _ = dashboard.split_flags(self._options.operator_flags)
        return [*flags, *given]

    @property
    def _operator_settings(self) -> Settings:
        return parse(self._operator_flags(self._options.kubeconfig), os.environ)

    @property
    def readiness(self) -> str:
        """Return the URL of the operator's readiness probe, as its flags set it."""
        return f"http://{_local_address(self._operator_settings.live)}/readyz"

    @property
    def dashboard(self) -> str:
        """Return the URL of the dashboard, as its flags set it; empty if it is off."""
        return dashboard.parse(self._dashboard_flags(self._options.kubeconfig)).url

    async def _until_ready(self) -> None:
        """Wait until the operator and the providers are ready; after a timeout, log a warning and go on."""
        if not self._options.operator:
            return
        probes = [self.readiness, *([f"{self.dashboard}healthz"] if self.dashboard else [])]
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not self._stop.is_set() and not await self._ready(probes):
                    await self._clock.sleep(_POLL_SECONDS)
        except TimeoutError:
            self._warn(f"not everything is ready after {_READY_SECONDS:.0f} s")

    async def _ready(self, probes: Sequence[str]) -> bool:
        if not all(provider.ready_file.exists() for provider in self._started):
            return False
        import aiohttp  # here, because localkube imports it first, without the system's authorities

        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            try:
                for probe in probes:
                    async with session.get(
                        probe, ssl=False
                    ) as response:  # of this machine, with a certificate of its own
                        if response.status != 200:
                            return False
            except (aiohttp.ClientError, TimeoutError):
                return False
        return True

    def info(self, text: str) -> None:
        self.log.info(_COMPONENT, text)

    def _warn(self, text: str) -> None:
        self.log.warning(_COMPONENT, text)


def _local_address(listen: Listener) -> str:
    """Return host and port at which a process of this machine reaches the listener."""
    host = f"[{listen.host}]" if ":" in listen.host else listen.host or "127.0.0.1"
    return f"{host}:{listen.port}"


def provider_component(provider: Supervised) -> Component:
    """Return the process of a provider, which may listen on its port from now on."""
    provider.reserved.hand_over()
    return Component(f"provider-{provider.name}", provider.command, _provider_environment())


def shared_component(providers: Collection[Supervised]) -> Component:
    """Return the process of all providers, which may listen on their ports from now on."""
    for provider in providers:
        provider.reserved.hand_over()
    return Component("providers", shared_command(providers), _provider_environment())


def _provider_environment() -> Mapping[str, str]:
    # In a trial, backends run on this machine, and its user is the administrator of the providers. On a cluster, an
    # administrator has to permit loopback addresses, and stores of namespaces to use the identity of a provider.
    return {_ALLOW_ADDRESS: "loopback", _AMBIENT_IDENTITY: "namespaced", **_environment()}


def _environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "GRPC_VERBOSITY": "ERROR"}
