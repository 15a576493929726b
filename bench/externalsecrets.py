"""A whole operator on a real kube-apiserver, against a bare client that does the same writes.

1,000 ExternalSecrets of 3 keys in 50 namespaces on 20 remote keys, on a fresh cluster: time until all are Ready divided
by the time a bare client needs for as many Secret and status writes; requests and provider reads for each object; CPU
and memory of operator and provider; an idle time; and how long one new object takes while 10,000 refreshes are queued.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from report import Row, ratio, shown

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import installed_kinds
from eso_operator.certs.bundle import Lifetimes
from eso_operator.certs.local import maintain
from eso_operator.certs.settings import CertificateSettings, identity_of
from eso_operator.stores.target import ServiceKey
from kuberun import config
from kuberun.client import Client
from kuberun.clock import SystemClock
from kuberun.errors import ApiError
from kuberun.meta import JsonObject, Resource, raw
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.servers import ServerFailedError
from kuberun.transport import AiohttpTransport

OBJECTS, NAMESPACES, REMOTE_KEYS, KEYS = 1000, 50, 20, 3
PARALLEL = 32
IDLE_SECONDS = 30.0
NEWCOMERS = 20
PATIENCE = 300.0
CORE = "external-secrets"
METRICS_PORT = 18080

WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
NOT_OURS = {"leases", "events"}
"""The API server renews its own lease; events go through a recorder of their own."""

CRDS = raw(
    Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
)
NAMESPACE_KIND = raw(Resource("", "v1", "namespaces", "Namespace", namespaced=False))
SERVICES = raw(Resource("", "v1", "services", "Service"))
SECRETS = raw(Resource("", "v1", "secrets", "Secret"))
STORES = raw(Resource("external-secrets.io", "v1", "clustersecretstores", "ClusterSecretStore", namespaced=False))
ES = raw(EXTERNAL_SECRET.resource())


def measure() -> list[Row]:
    try:
        assets = find_assets()
    except ServerFailedError:
        return [shown("ExternalSecrets", "not measured: run `make test-cluster` once")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "kube").mkdir()
        kube = KubeApiserver(home / "kube", assets)
        try:
            return asyncio.run(Bench(kube, home).run())
        finally:
            kube.stop()


class Bench:
    """One fresh cluster, measured once."""

    def __init__(self, kube: KubeApiserver, home: Path) -> None:
        self._kube = kube
        self._home = home
        self._client = Client(AiohttpTransport(config.load(kube.kubeconfig)))

    async def run(self) -> list[Row]:
        try:
            await self._install()
            bare = await self._bare_writes()
            await self._store()
            with provider(self._home) as served:
                with operator(self._home, self._kube, served):
                    await self._until(self._store_ready, "the store does not become ready")
                await self._create_all(range(OBJECTS))
                requests = self._requests()
                started = time.perf_counter()
                with operator(self._home, self._kube, served) as running:
                    await self._all_ready(OBJECTS)
                    took = time.perf_counter() - started
                    return await self._rows(bare, took, requests, Processes(served.pid, running.pid))
        finally:
            await self._client.close()

    async def _rows(
        self, bare: float, took: float, requests: Counter[tuple[str, str]], processes: Processes
    ) -> list[Row]:
        return [
            shown("a bare client: seconds for 1,000 Secrets and statuses", f"{bare:.1f}"),
            shown("operator: seconds from its start until all are Ready", f"{took:.1f}"),
            ratio("from its start until all Ready / bare client", took / bare, at_most=1.5),
            *_per_object(self._requests() - requests),
            _logical(logical_reads()),
            shown("operator: CPU seconds, peak memory", _usage(processes.operator)),
            shown("provider: CPU seconds, peak memory", _usage(processes.provider)),
            await self._idle(),
            await self._latency(),
        ]

    async def _idle(self) -> Row:
        await asyncio.sleep(5.0)  # events and the last statuses are out
        before = self._requests()
        await asyncio.sleep(IDLE_SECONDS)
        spent = self._requests() - before
        writes = sum(count for (verb, what), count in spent.items() if verb in WRITES and what not in NOT_OURS)
        return Row(f"writes in {IDLE_SECONDS:.0f} idle seconds", str(writes), "0", writes == 0)

    async def _latency(self) -> Row:
        """How long a new object takes while every other one is made to refresh, over and over."""
        stop = asyncio.Event()
        refreshing = asyncio.create_task(self._keep_refreshing(stop))
        took: list[float] = []
        for number in range(OBJECTS, OBJECTS + NEWCOMERS):
            began = time.perf_counter()
            obj = external_secret(number)
            await self._client.create(ES, obj)
            await self._until(partial(self._one_ready, obj), "a new object does not become ready", pause=0.02)
            took.append(time.perf_counter() - began)
        stop.set()
        refreshed = await refreshing
        worst = sorted(took)[max(0, round(len(took) * 0.99) - 1)]
        return shown(f"p99 of a new object, {refreshed} refreshes forced meanwhile", f"{worst:.2f} s")

    async def _one_ready(self, obj: JsonObject) -> bool:
        return _is_ready(await self._client.get(ES, _key(obj)))

    async def _keep_refreshing(self, stop: asyncio.Event) -> int:
        """Force a sync of all objects again and again: what is asked for piles up in the queue."""
        count = 0
        while not stop.is_set():
            note = {"metadata": {"annotations": {"force-sync": str(count)}}}
            await _parallel([self._client.merge_patch(ES, _key(external_secret(n)), note) for n in range(OBJECTS)])
            count += OBJECTS
        return count

    # --- the cluster --------------------------------------------------------------------------------------------------

    async def _install(self) -> None:
        await self._each([(CRDS, kind.crd()) for kind in installed_kinds()])
        names = [CORE, *(f"team-{number}" for number in range(NAMESPACES))]
        await self._each([(NAMESPACE_KIND, {"metadata": {"name": name}}) for name in names])
        port = {"name": "grpc", "port": 8080}
        metadata = {"name": "provider-fake", "namespace": CORE, "labels": {"external-secrets.io/provider": "true"}}
        await self._each([(SERVICES, {"metadata": metadata, "spec": {"ports": [port]}})])
        await self._until(self._served, "the CRDs are not served")

    async def _served(self) -> bool:
        try:
            await self._client.list(ES)
        except ApiError:
            return False
        return True

    async def _store(self) -> None:
        data = [{"key": f"remote-{number}", "value": f"value-{number}"} for number in range(REMOTE_KEYS)]
        await self._client.create(
            STORES, {"metadata": {"name": "bench"}, "spec": {"provider": {"fake": {"data": data}}}}
        )

    async def _store_ready(self) -> bool:
        stores = await self._client.list(STORES)
        return any(_is_ready(store) for store in stores.items if isinstance(store, dict))

    async def _create_all(self, numbers: range) -> None:
        await self._each([(ES, external_secret(number)) for number in numbers])

    async def _all_ready(self, count: int) -> None:
        async def ready() -> bool:
            objects = await self._client.list(ES)
            return sum(_is_ready(obj) for obj in objects.items if isinstance(obj, dict)) >= count

        await self._until(ready, "not all ExternalSecrets become ready")

    async def _bare_writes(self) -> float:
        """Seconds for the same Secrets and statuses, written by a loop that does nothing else."""
        names = [f"bare-{number}" for number in range(OBJECTS)]
        objects = [external_secret(number) | {} for number in range(OBJECTS)]
        for name, obj in zip(names, objects, strict=True):
            obj["metadata"] = {**obj["metadata"], "name": name}
        await self._each([(ES, obj) for obj in objects])
        started = time.perf_counter()
        await _parallel(
            [self._bare(name, obj["metadata"]["namespace"]) for name, obj in zip(names, objects, strict=True)]
        )
        took = time.perf_counter() - started
        await _parallel([self._client.delete(ES, _key(obj)) for obj in objects])
        await _parallel([self._client.delete(SECRETS, _key(obj)) for obj in objects])
        return took

    async def _bare(self, name: str, namespace: str) -> None:
        data = {f"key-{number}": "dmFsdWU=" for number in range(KEYS)}
        metadata = {"name": name, "namespace": namespace, "labels": {"reconcile.external-secrets.io/managed": "true"}}
        await self._client.apply(SECRETS, {"metadata": metadata, "data": data}, field_manager="bench")
        condition = {"type": "Ready", "status": "True", "reason": "SecretSynced", "message": "secret synced"}
        status = {"conditions": [condition], "syncedResourceVersion": "1-x", "binding": {"name": name}}
        await self._client.merge_patch(ES, _key({"metadata": metadata}), {"status": status}, subresource="status")

    async def _each(self, wanted: list[tuple[Any, JsonObject]]) -> None:
        await _parallel([self._client.create(kind, obj) for kind, obj in wanted])

    async def _until(self, holds: Any, otherwise: str, pause: float = 0.1) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await holds():
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            await asyncio.sleep(pause)

    def _requests(self) -> Counter[tuple[str, str]]:
        """What the API server was asked for, by verb and resource, except by this benchmark and events."""
        context = ssl.create_default_context(cafile=str(self._kube.ca_file))
        text = _read(f"{self._kube.url}/metrics", context, Authorization=f"Bearer {self._kube.token}")
        found: Counter[tuple[str, str]] = Counter()
        for labels, value in re.findall(r"^apiserver_request_total\{(.*?)\} (\S+)$", text, re.MULTILINE):
            named = dict(re.findall(r'(\w+)="(.*?)"', labels))
            found[named["verb"], "/".join(filter(None, (named["resource"], named["subresource"])))] += int(float(value))
        return found


def _per_object(spent: Counter[tuple[str, str]]) -> list[Row]:
    """Requests about Secrets and ExternalSecrets; creating the ExternalSecrets was ours."""
    ours = Counter(
        {key: count for key, count in spent.items() if key[1].split("/")[0] in ("secrets", "externalsecrets")}
    )
    ours["POST", "externalsecrets"] -= OBJECTS
    writes = sum(count for (verb, _), count in ours.items() if verb in WRITES) / OBJECTS
    reads = sum(count for (verb, _), count in ours.items() if verb == "GET") / OBJECTS
    return [
        Row("API writes for each object", f"{writes:.2f}", "<= 2", writes <= 2.01),
        Row("API reads for each object", f"{reads:.2f}", "0", reads <= 0.01),
    ]


def _logical(reads: float) -> Row:
    return Row("remote values read for 3,000 keys of 20 remote keys", f"{reads:.0f}", "<= 20", reads <= REMOTE_KEYS)


def external_secret(number: int) -> JsonObject:
    data = [
        {"secretKey": f"key-{each}", "remoteRef": {"key": f"remote-{(number * KEYS + each) % REMOTE_KEYS}"}}
        for each in range(KEYS)
    ]
    metadata = {"name": f"es-{number}", "namespace": f"team-{number % NAMESPACES}"}
    return {
        "metadata": metadata,
        "spec": {"secretStoreRef": {"kind": "ClusterSecretStore", "name": "bench"}, "data": data},
    }


async def _parallel(calls: list[Any]) -> None:
    pending = iter(calls)

    async def worker() -> None:
        for call in pending:
            await call

    async with asyncio.TaskGroup() as group:
        for _ in range(PARALLEL):
            group.create_task(worker())


def _is_ready(obj: JsonObject) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _key(obj: JsonObject) -> Any:
    from kuberun.meta import key_of

    return key_of(obj)


# --- the processes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Processes:
    provider: int
    operator: int


@dataclass(frozen=True, slots=True)
class Served:
    """A provider that runs."""

    address: str
    metrics: str
    pid: int
    client_folder: Path


@contextmanager
def provider(home: Path) -> Iterator[Served]:
    identity = identity_of(
        ServiceKey(CORE, "provider-fake"), CertificateSettings(core_namespace=CORE), local=("127.0.0.1",)
    )
    made = maintain(home / "tls", identity, SystemClock().now(), Lifetimes())
    ready = home / "provider.json"
    command = [sys.executable, "-m", "eso_cli.main", "provider", "serve", "fake", "--listen", "127.0.0.1:0"]
    command += ["--tls-dir", str(made.server), "--ready-file", str(ready), "--metrics", "127.0.0.1:0"]
    command += ["--allowed-client", f"spiffe://cluster.local/ns/{CORE}/sa/external-secrets"]
    with _process(command, home / "provider.log") as process:
        _wait(ready.exists, process)
        said = json.loads(ready.read_text())
        yield Served(said["address"], said["metrics"], process.pid, made.client)


@contextmanager
def operator(home: Path, kube: KubeApiserver, served: Served) -> Iterator[subprocess.Popen[bytes]]:
    service = f"{CORE}/provider-fake"
    command = [sys.executable, "-m", "eso_operator", "--kubeconfig", str(kube.kubeconfig), "--core-namespace", CORE]
    command += [
        f"--trusted-provider={service}={served.address}",
        f"--trusted-provider-tls={service}={served.client_folder}",
    ]
    command += ["--metrics-addr", f"127.0.0.1:{METRICS_PORT}", "--live-addr", "127.0.0.1:0", "--loglevel", "warn"]
    with _process(command, home / "operator.log") as process:
        yield process


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


def _wait(holds: Any, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("a process does not start")
        time.sleep(0.05)


def logical_reads() -> float:
    """Values that providers were asked for, after merging."""
    text = _read(f"http://127.0.0.1:{METRICS_PORT}/metrics")
    return sum(
        float(value) for value in re.findall(r"^eso_provider_read_batch_items_sum\{.*?\} (\S+)$", text, re.MULTILINE)
    )


def _read(url: str, context: ssl.SSLContext | None = None, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own servers on loopback
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310 - the same
        text: str = answer.read().decode()
        return text


def _usage(pid: int) -> str:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / ticks
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return f"{seconds:.1f} s, {int(peak[1]) // 1024 if peak else 0} MB"
