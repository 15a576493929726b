"""The effect of an attack from one namespace on another namespace.

The attack: silent backends, thousands of entries, slow templates, large values, large answers of generators, expensive
properties, long passwords, an interval of a millisecond. The other namespace only needs Secrets of its own store, whose
provider has to answer the expensive properties, too. Measured: how long it waits for a new Secret, before and during
the attack; how long the operator's /healthz takes; and the peak memory of the operator and of the webhook provider.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any, ClassVar

from apart import apart
from report import Row, ratio, shown
from stage import ES, NAMESPACES, PATIENCE, STORES, STORES_OF_NAMESPACE, is_ready, parallel, read

from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Kind, ObjectKey, Resource, raw
from kuberun import config
from kuberun.client import Client
from kuberun.transport import AiohttpTransport

SYNCS, SILENT, MANY, SLOW, LARGE, MADE, LONG, BUSY, EXPENSIVE = 500, 64, 6, 10, 10, 4, 20, 20, 5
ANSWERS = 10
"""The generators that each object of `MADE` calls."""
ENTRIES = 2000
MEBIBYTES = 512
"""The memory limit of the chart."""
PROVIDER_MEBIBYTES = 256
"""The memory limit of the chart for a provider."""
CROWD, NEIGHBOUR = "crowd", "neighbour"
PASSWORDS = raw(Resource("generators.external-secrets.io", "v1alpha1", "passwords", "Password"))
WEBHOOKS = raw(Resource("generators.external-secrets.io", "v1alpha1", "webhooks", "Webhook"))
TEMPLATE = '{{ regexReplaceAll "(a|aa)*b" (repeat 100000 "a") "x" }}{{ randAlphaNum 4000000 }}{{ .value }}'
PROPERTIES = [f"{'|'.join(['@pretty|@ugly'] * 15)}|x{number}" for number in range(200)]
"""Paths that read the whole value 30 times each."""
CLOCK = SystemClock()


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, apart(backend) as port, up_running(Path(folder)) as up:

        async def run() -> list[Row]:
            client = Client(AiohttpTransport(config.load(up.kubeconfig)))
            try:
                return await Street(client, up, port).measured()
            finally:
                await client.close()

        return asyncio.run(run())


class Backend(BaseHTTPRequestHandler):
    """A backend that never responds, or responds with a lot."""

    over: ClassVar[Event] = Event()

    def do_GET(self) -> None:
        if self.path == "/silent":
            self.over.wait(600)
            return
        value = b'"' + b"x" * (8 if self.path == "/small" else 4_000_000) + b'"'
        body = b'{"value":' + value + b"}" if self.path == "/generated" else value
        with suppress(ConnectionError):  # a provider that holds too much does not read on
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: lines cost time."""


def backend(connection: Connection) -> None:
    """Serve in a process of its own, with what the others leave of the processors: it stands for another machine."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        connection.send(server.server_port)
        connection.recv()
        Backend.over.set()
        server.shutdown()


@dataclass(slots=True)
class Street:
    """Two namespaces of one cluster."""

    client: Client
    up: UpProcess
    port: int

    async def measured(self) -> list[Row]:
        for namespace in (CROWD, NEIGHBOUR):
            await self._put(NAMESPACES, "", namespace)
        await self._put(STORES_OF_NAMESPACE, NEIGHBOUR, "store", spec=fake({"key": "value"}))
        await self._first_sync("warm")
        await self._start_providers()
        quiet = [await self._first_sync(f"quiet-{number}") for number in range(SYNCS)]
        await self._attack()
        looks: list[float] = []
        looking = asyncio.create_task(self._look(looks))
        loud = [await self._first_sync(f"loud-{number}") for number in range(SYNCS)]
        looking.cancel()
        memory, provider = (self._peak(name) for name in ("eso_operator", "webhook"))
        return [
            shown("a neighbour's first sync, quiet: p50, p99", f"{_ms(quiet, 50)}, {_ms(quiet, 99)}"),
            shown("during the attack: p50, p99", f"{_ms(loud, 50)}, {_ms(loud, 99)}"),
            ratio("p99 during the attack / quiet", _part(loud, 99) / _part(quiet, 99), at_most=3.0),
            Row("longest /healthz during the attack", f"{max(looks):.2f} s", "< 1 s", max(looks) < 1.0),
            Row("operator during the attack, peak", f"{memory:.0f} MiB", f"<= {MEBIBYTES} MiB", memory <= MEBIBYTES),
            Row(
                "webhook provider, peak",
                f"{provider:.0f} MiB",
                f"<= {PROVIDER_MEBIBYTES} MiB",
                provider <= PROVIDER_MEBIBYTES,
            ),
        ]

    async def _start_providers(self) -> None:
        """Let `eso up` start the providers of the attack: on a cluster they run before a tenant uses them."""
        small = webhook(f"http://127.0.0.1:{self.port}/small")
        await parallel(self._of_store("small", small))
        await self._put(PASSWORDS, CROWD, "short", spec={"length": 8})
        made = {"refreshInterval": "0", "dataFrom": [generated_by("Password", "short")]}
        await self._external("short", made)
        for name in ("small", "short"):
            await self._ready(CROWD, name)

    async def _attack(self) -> None:
        many = {f"k{number}": "v" for number in range(ENTRIES)}
        await self._put(STORES, "", "many", spec=fake(many))
        await self._put(STORES_OF_NAMESPACE, CROWD, "store", spec=fake({"key": "value"}))
        calls = []
        for number in range(SILENT):
            calls += self._of_store(f"silent-{number}", webhook(f"http://127.0.0.1:{self.port}/silent"))
        for number in range(LARGE):
            calls += self._of_store(f"large-{number}", webhook(f"http://127.0.0.1:{self.port}/large?{number}"))
        entries = [{"secretKey": key, "remoteRef": {"key": key}} for key in many]
        shared = {"name": "many", "kind": "ClusterSecretStore"}
        calls += [self._external(f"many-{n}", {"secretStoreRef": shared, "data": entries}) for n in range(MANY)]
        template = {"template": {"data": {"slow": TEMPLATE}}}
        calls += [self._external(f"slow-{n}", {**one_value(), "target": template}) for n in range(SLOW)]
        calls += [self._external(f"busy-{n}", {**one_value(), "refreshInterval": "1ms"}) for n in range(BUSY)]
        await self._put(STORES_OF_NAMESPACE, CROWD, "document", spec=fake({"key": f'{{"a":"{"x" * 800_000}"}}'}))
        paths = [
            {"secretKey": f"k{n}", "remoteRef": {"key": "key", "property": path}} for n, path in enumerate(PROPERTIES)
        ]
        costly = {"refreshInterval": "1s", "secretStoreRef": {"name": "document"}, "data": paths}
        calls += [self._external(f"costly-{n}", costly) for n in range(EXPENSIVE)]
        await self._put(PASSWORDS, CROWD, "long", spec={"length": 65536, "allowRepeat": True, "noUpper": False})
        made = {"refreshInterval": "1s", "dataFrom": [generated_by("Password", "long")]}
        calls += [self._external(f"long-{n}", made) for n in range(LONG)]
        hook = {"url": f"http://127.0.0.1:{self.port}/generated", "result": {"jsonPath": "$"}}
        await self._put(WEBHOOKS, CROWD, "large", spec=hook)
        large = {"refreshInterval": "1s", "dataFrom": [generated_by("Webhook", "large")] * ANSWERS}
        calls += [self._external(f"generated-{n}", large) for n in range(MADE)]
        await parallel(calls)
        await CLOCK.sleep(3.0)  # until the attack has started

    def _of_store(self, name: str, spec: JsonObject) -> list[Any]:
        wanted = {"refreshInterval": "1s", "secretStoreRef": {"name": name}, **_data("key")}
        return [self._put(STORES_OF_NAMESPACE, CROWD, name, spec=spec), self._external(name, wanted)]

    async def _external(self, name: str, spec: JsonObject) -> None:
        await self._put(ES, CROWD, name, spec=spec)

    async def _put(self, kind: Kind[Any], namespace: str, name: str, **fields: Any) -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        await self.client.create(kind, {"metadata": metadata, **fields})

    async def _first_sync(self, name: str) -> float:
        begun = CLOCK.monotonic()
        await self._put(ES, NEIGHBOUR, name, spec=one_value())
        await self._ready(NEIGHBOUR, name)
        return CLOCK.monotonic() - begun

    async def _ready(self, namespace: str, name: str) -> None:
        begun = CLOCK.monotonic()
        while not is_ready(await self.client.get(ES, ObjectKey(namespace, name))):
            await CLOCK.sleep(0.02)
            if CLOCK.monotonic() - begun > PATIENCE:
                raise TimeoutError(f"{name} does not become ready")

    async def _look(self, looks: list[float]) -> None:
        while True:
            begun = CLOCK.monotonic()
            await asyncio.to_thread(read, f"http://{self._live()}/healthz")
            looks.append(CLOCK.monotonic() - begun)
            await CLOCK.sleep(0.2)

    def _operator(self) -> int:
        return int(self.up.component("eso_operator"))

    def _live(self) -> str:
        command = Path(f"/proc/{self._operator()}/cmdline").read_text()
        found = re.search(r"--live-addr[=\0]([^\0]+)", command)
        return found[1] if found else ""

    def _peak(self, component: str) -> float:
        """Return the most mebibytes that a process of `eso up` has held."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.up.component(component)}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


def fake(values: dict[str, str]) -> JsonObject:
    return {"provider": {"fake": {"data": [{"key": key, "value": value} for key, value in values.items()]}}}


def webhook(url: str) -> JsonObject:
    return {"provider": {"webhook": {"url": url, "timeout": "120s", "result": {"jsonPath": "$"}}}}


def generated_by(kind: str, name: str) -> JsonObject:
    api = "generators.external-secrets.io/v1alpha1"
    return {"sourceRef": {"generatorRef": {"apiVersion": api, "kind": kind, "name": name}}}


def one_value() -> JsonObject:
    return {"refreshInterval": "1h", "secretStoreRef": {"name": "store"}, **_data("key")}


def _data(key: str) -> JsonObject:
    return {"data": [{"secretKey": "value", "remoteRef": {"key": key}}]}


def _part(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1]


def _ms(times: list[float], percent: int) -> str:
    return f"{_part(times, percent) * 1000:.0f} ms"
