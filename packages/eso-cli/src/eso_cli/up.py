"""`eso up`: the embedded API server with our CRDs, the operator and the chosen providers, as one command.

The API server runs in this process; the operator and each provider are children, restarted when they end. Their logs
come out of this process' standard error with the name of the component.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import typer

from eso_api.kinds import installed_kinds
from eso_cli.folder import Folder, Voice, missing
from eso_cli.providers import CORE_NAMESPACE, ProviderNameError, Supervised, free_port, keep_certificates, plan
from eso_cli.supervisor import Component, supervised
from eso_operator.flags import parse
from eso_operator.settings import SettingsError
from eso_sdk.redaction import seat
from kuberun import config
from kuberun.client import Client
from kuberun.clock import Clock, SystemClock
from kuberun.meta import JsonObject
from kuberun.transport import AiohttpTransport
from localkube.process import Files, StartError, run
from localkube.server import LocalKube

_READY_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.05


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


async def serve(options: Options) -> int:
    """Run until a signal; the exit code says whether it started."""
    files = Files(options.kubeconfig, options.ready_file)
    stop = asyncio.Event()
    try:
        kube = LocalKube(options.data_dir, port=options.port)
        site = Site(options, kube, plan(list(options.providers), options.data_dir / "providers"), stop)
        site.check_options()
        await run(kube, site.objects(), files, announce=typer.echo, company=site.company, stop=stop)
    except (StartError, ProviderNameError, SettingsError, OSError, ExceptionGroup) as problem:
        typer.echo(f"eso up: {_said(problem, options)}", err=True)
        return 1
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


class Site:
    """Everything that runs beside the API server."""

    def __init__(
        self, options: Options, kube: LocalKube, providers: tuple[Supervised, ...], stop: asyncio.Event
    ) -> None:
        self._options = options
        self._kube = kube
        self._providers = providers
        self._clock: Clock = SystemClock()
        self._live_port = free_port()
        self._stop = stop

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
        for provider in self._providers:
            yield from provider.objects()

    @asynccontextmanager
    async def company(self, kubeconfig: Path) -> AsyncIterator[None]:
        """Operator, providers and manifests, for as long as the server runs."""
        folder = Folder(self._options.manifests, self._kube.cluster, Voice(_complain, _tell))
        client = Client(AiohttpTransport(config.load(kubeconfig)))
        for provider in self._providers:
            provider.ready_file.unlink(missing_ok=True)  # of a process that was killed
        try:
            async with supervised(self._components(kubeconfig), self._clock, _emit), asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(keep_certificates(one, client, self._clock, warn=_complain))
                    for one in self._providers
                ]
                await folder.apply_changes()
                running.append(tasks.create_task(folder.follow(self._clock)))
                await self._until_ready()
                yield
                for task in running:
                    task.cancel()
        finally:
            await client.close()

    def _components(self, kubeconfig: Path) -> list[Component]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "GRPC_VERBOSITY": "ERROR"}
        components = [Component(f"provider-{one.name}", one.command, environment) for one in self._providers]
        if self._options.operator:
            command = [sys.executable, "-m", "eso_operator", *self._operator_flags(kubeconfig)]
            components.append(Component("operator", command, environment))
        return components

    def _operator_flags(self, kubeconfig: Path) -> list[str]:
        flags = ["--kubeconfig", str(kubeconfig), "--core-namespace", CORE_NAMESPACE]
        flags += ["--live-addr", f"127.0.0.1:{self._live_port}", "--metrics-addr", "0"]
        return [*flags, *(provider.trust for provider in self._providers), *self._options.operator_flags]

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
        if not all(provider.ready_file.exists() for provider in self._providers):
            return False
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            try:
                async with session.get(readiness) as answer:
                    return answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False


def _emit(line: str) -> None:
    typer.echo(line, err=True)


def _complain(text: str) -> None:
    _emit(json.dumps({"component": "up", "level": "warning", "event": text}))


def _tell(text: str) -> None:
    _emit(json.dumps({"component": "up", "level": "info", "event": text}))
