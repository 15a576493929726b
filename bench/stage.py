"""The stage of whole-system benchmarks: a fresh kube-apiserver with CRDs and namespaces, a provider, operators."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import installed_kinds
from eso_operator.certificates.local import maintain
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Lifetimes
from eso_operator.stores.resolved import ServiceKey
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Kind, ObjectKey, Resource, raw
from kubebase.testing.servers import ApiServer, free_ports
from kuberun import config
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.source import ResourceSource
from kuberun.transport import AiohttpTransport

PARALLEL = 32
PATIENCE = 600.0
CORE = "external-secrets"
METRICS_PORT, HEALTH_PORT = free_ports(2)

CRDS = raw(
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
)
NAMESPACES = raw(Resource("", "v1", "namespaces", "Namespace", namespaced=False))
SERVICES = raw(Resource("", "v1", "services", "Service"))
SECRETS = raw(Resource("", "v1", "secrets", "Secret"))
STORES = raw(Resource("external-secrets.io", "v1", "clustersecretstores", "ClusterSecretStore", namespaced=False))
STORES_OF_NAMESPACE = raw(Resource("external-secrets.io", "v1", "secretstores", "SecretStore"))
ES = raw(EXTERNAL_SECRET.resource())

Requests = Counter[tuple[str, str]]
"""The requests to the API server: by verb, and by resource with its subresource."""


class Stage:
    """One fresh cluster, with a provider for `fake` stores announced by its Service."""

    def __init__(self, kube: ApiServer, home: Path) -> None:
        self.home = home
        self.kube = kube
        self.transport = AiohttpTransport(config.load(kube.kubeconfig))
        self.client = Client(self.transport)

    async def install(self, namespaces: Sequence[str]) -> None:
        await self.create([(CRDS, kind.crd()) for kind in installed_kinds()])
        await self.create([(NAMESPACES, {"metadata": {"name": name}}) for name in (CORE, *namespaces)])
        await self.announce("fake")
        await until(self._served, "the CRDs are not served")

    async def announce(self, name: str) -> None:
        """Create the Service of a provider."""
        metadata = {"name": f"provider-{name}", "namespace": CORE, "labels": {"external-secrets.io/provider": "true"}}
        await self.create([(SERVICES, {"metadata": metadata, "spec": {"ports": [{"name": "grpc", "port": 8080}]}})])

    async def create(self, wanted: Sequence[tuple[Kind[Any], JsonObject]]) -> None:
        await parallel([self.client.create(kind, obj) for kind, obj in wanted])

    async def store_is_ready(self) -> bool:
        stores = await self.client.list(STORES)
        return any(is_ready(store) for store in stores.items if isinstance(store, dict))

    @asynccontextmanager
    async def readiness(self) -> AsyncIterator[Readiness]:
        """Follow the ExternalSecrets by a watch: repeated lists would load the server."""
        informer = Informer(ResourceSource(self.transport, ES), clock=SystemClock(), name="bench")
        readiness = Readiness(informer)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()), group.create_task(readiness.follow())]
            yield readiness
            for task in tasks:
                task.cancel()

    def requests(self) -> Requests:
        found: Requests = Counter()
        for labels, value in re.findall(r"^apiserver_request_total\{(.*?)\} (\S+)$", self.metrics(), re.MULTILINE):
            named = dict(re.findall(r'(\w+)="(.*?)"', labels))
            found[named["verb"], "/".join(filter(None, (named["resource"], named["subresource"])))] += int(float(value))
        return found

    def metrics(self) -> str:
        """Return the metrics of the API server."""
        context = ssl.create_default_context(cafile=str(self.kube.ca_file))
        return read(f"{self.kube.url}/metrics", context, Authorization=f"Bearer {self.kube.token}")

    async def _served(self) -> bool:
        try:
            for kind in (ES, STORES):
                await self.client.list(kind)
        except ApiError:
            return False
        return True


class Readiness:
    """The ExternalSecrets that are Ready."""

    def __init__(self, informer: Informer[JsonObject]) -> None:
        self._subscription = informer.subscribe()
        self._ready: set[ObjectKey] = set()
        self._changed = asyncio.Condition()
        self.since: dict[ObjectKey, float] = {}
        """When each object was first seen Ready, by `time.perf_counter`."""

    async def follow(self) -> None:
        while True:
            for change in await self._subscription.take():
                if isinstance(change.new, dict) and is_ready(change.new):
                    self._ready.add(change.key)
                    self.since.setdefault(change.key, time.perf_counter())
                else:
                    self._ready.discard(change.key)
            async with self._changed:
                self._changed.notify_all()

    async def of_all(self, keys: Sequence[ObjectKey]) -> None:
        """Wait until all are Ready."""
        wanted = set(keys)
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: wanted <= self._ready)


def is_ready(obj: JsonObject) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def parallel(calls: Sequence[Coroutine[Any, Any, object]]) -> None:
    pending = iter(calls)

    async def worker() -> None:
        for call in pending:
            await call

    async with asyncio.TaskGroup() as group:
        for _ in range(PARALLEL):
            group.create_task(worker())


async def until(holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        await asyncio.sleep(0.1)


# --- processes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Served:
    """A running provider."""

    name: str
    address: str
    pid: int
    client_folder: Path


@contextmanager
def provider(stage: Stage, name: str = "fake", listen: str = "127.0.0.1:0") -> Iterator[Served]:
    service = ServiceKey(CORE, f"provider-{name}")
    identity = identity_of(service, IssuerSettings(core_namespace=CORE), local=("127.0.0.1",))
    made = maintain(stage.home / f"tls-{name}", identity, SystemClock().now(), Lifetimes())
    ready = stage.home / f"provider-{name}.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "eso_cli.main", "provider", "serve", name, "--listen", listen]
    command += ["--tls-dir", str(made.server), "--ready-file", str(ready), "--metrics", "127.0.0.1:0"]
    command += ["--allowed-client", f"spiffe://cluster.local/ns/{CORE}/sa/external-secrets"]
    with _process(command, stage.home / f"provider-{name}.log") as process:
        _wait(ready.exists, process)
        yield Served(name, json.loads(ready.read_text())["address"], process.pid, made.client)


@contextmanager
def operator(
    stage: Stage,
    *providers: Served,
    loglevel: str = "warn",
    flags: Sequence[str] = (),
    number: int = 0,
    program: Sequence[str] = ("-m", "eso_operator"),
) -> Iterator[int]:
    """Return the process id of an operator that has just been started. `number` tells replicas apart."""
    command = [sys.executable, *program, "--kubeconfig", str(stage.kube.kubeconfig)]
    command += [f"--core-namespace={CORE}"]
    for served in providers:
        service = f"{CORE}/provider-{served.name}"
        command += [f"--trusted-provider={service}={served.address}"]
        command += [f"--trusted-provider-tls={service}={served.client_folder}"]
    command += ["--metrics-addr", f"127.0.0.1:{METRICS_PORT + 10 * number}", "--loglevel", loglevel]
    command += ["--live-addr", f"127.0.0.1:{HEALTH_PORT + 10 * number}", *flags]
    with _process(command, stage.home / f"operator-{number}.log") as process:
        yield process.pid


async def operator_is_ready() -> None:
    """Wait until its caches are full; it reconciles from then on."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            await asyncio.to_thread(read, f"http://127.0.0.1:{HEALTH_PORT}/readyz")
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return
    raise TimeoutError("the operator does not become ready")


def operator_metric(name: str) -> float:
    """Return the sum of one of the operator's metrics over all labels."""
    text = read(f"http://127.0.0.1:{METRICS_PORT}/metrics")
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*?\}})? (\S+)$", text, re.MULTILINE))


def usage(pid: int) -> str:
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return f"{cpu_seconds(pid):.1f} s, {int(peak[1]) // 1024 if peak else 0} MB"


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read(url: str, context: ssl.SSLContext | None = None, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own servers on loopback
    with urllib.request.urlopen(request, context=context, timeout=60) as answer:  # noqa: S310 - the same
        text: str = answer.read().decode()
        return text


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "GRPC_VERBOSITY": "ERROR"})
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{command[2]} ended with {process.returncode}: {log.read_text()[-2000:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("a process does not start")
        time.sleep(0.05)
