"""One operator with many ExternalSecrets, and what happens to new ones meanwhile.

ESO_WIDTH sets the number of objects (5,000; the product is designed for 50,000), ESO_WIDTH_FIRST how many of them the
operator syncs for the first time (1,000; the others are copies, see `seeding.py`), ESO_WIDTH_SECONDS the length of a
scenario (20), ESO_WIDTH_SERVERS the API servers (`localkube,kube`). All objects use one ClusterSecretStore and an
interval of 1 h; a part of them is due at every moment, as if they had been created over an hour. In each scenario two
new ExternalSecrets arrive every second, by turns in a namespace of their own and in a busy one. /metrics is scraped
every few seconds, because Prometheus does so, too.

    from nothing         the objects exist, the operator starts: all become Ready
    start-up             the objects are Ready, the operator starts: all are looked at
    steady state         refreshes are due, ESO_WIDTH / 3600 in a second
    store changes        the spec of the store that all use is edited
    provider gone        its process is killed; newcomers use another provider
    provider back        it listens again: all are Ready again
    API server restarts  killed and started again with the same objects
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from newcomers import Make, Newcomers, arriving
from report import Row, shown
from seeding import copies, seed, synced_pairs
from stage import (
    ES,
    METRICS_PORT,
    PATIENCE,
    STORES,
    Served,
    Stage,
    operator,
    operator_is_ready,
    provider,
    read,
    until,
)

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kubebase.testing.servers import ApiServer, ServerFailedError
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.localserver import LocalServer

SIZE = int(os.environ.get("ESO_WIDTH", "5000"))
SECONDS = float(os.environ.get("ESO_WIDTH_SECONDS", "20"))
FIRST = min(SIZE, int(os.environ.get("ESO_WIDTH_FIRST", "1000")))
SERVERS = os.environ.get("ESO_WIDTH_SERVERS", "localkube,kube").split(",")
NAMESPACES, OWN, REMOTE_KEYS, KEYS = 100, 10, 1000, 3
HOUR = 3600
SCRAPE_SECONDS = 5.0
TEAMS = [f"team-{number}" for number in range(NAMESPACES)]
PLACES = [f"own-{number}" for number in range(OWN)]
GENERATORS = raw(
    Resource("generators.external-secrets.io", "v1alpha1", "clustergenerators", "ClusterGenerator", namespaced=False)
)
"""What was found with 50,000 objects."""


def measure() -> list[Row]:
    return [row for name in SERVERS for row in _measure_on(name)]


def _measure_on(name: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "kube").mkdir()
        try:
            server: ApiServer = (
                LocalServer(home / "kube")
                if name == "localkube"
                else KubeApiserver(home / "kube", find_assets(), controllers="")
            )
        except ServerFailedError:
            return [shown(f"width on {name}", "not measured: run `make test-cluster` once")]
        with _scraper() as scraper:
            try:
                found = asyncio.run(_measured(Stage(server, home), scraper))
            finally:
                server.stop()
    return [row for scenario in found for row in scenario.rows(name)]


# --- one scenario -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scenario:
    """The cost of one scenario to the operator, and the newcomers in it."""

    name: str
    newcomers: Newcomers = field(default_factory=Newcomers)
    seconds: float = 0.0
    cpu: float = 0.0
    resident: int = 0
    peak: int = 0
    spent: Counter[str] = field(default_factory=Counter)
    logged: int = 0

    def rows(self, server: str) -> list[Row]:
        where, spent = f"{server}, {self.name}", self.spent
        requests = ", ".join(f"{spent[verb]:.0f} {verb}" for verb in ("GET", "POST", "PATCH", "PUT", "DELETE"))
        calm = self.newcomers.within(1.0)
        return [
            shown(f"{where}: seconds; CPU seconds; MB, peak", f"{self.seconds:.1f}; {self.cpu:.1f}; {self._memory}"),
            shown(f"{where}: API requests", requests),
            shown(f"{where}: reconciles; provider calls; kB logged", self._work),
            Row(f"{where}: newcomers p50 / p99 / longest", self.newcomers.text, "p99 < 1 s", calm),
        ]

    @property
    def _memory(self) -> str:
        return f"{self.resident}, {self.peak}"

    @property
    def _work(self) -> str:
        return f"{self.spent['reconciles']:.0f}; {self.spent['calls']:.0f}; {self.logged // 1000}"


@dataclass(frozen=True, slots=True)
class Bench:
    """A running operator, observed from outside."""

    stage: Stage
    scraper: ProcessPoolExecutor
    pid: int

    async def scrape(self) -> Counter[str]:
        """Read the metrics in another process: parsing them here would delay the newcomers."""
        return await asyncio.get_running_loop().run_in_executor(self.scraper, scraped)

    async def until(self, holds: Callable[[Counter[str]], bool], otherwise: str) -> None:
        deadline = time.monotonic() + 3 * PATIENCE
        while not holds(await self.scrape()):
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            await asyncio.sleep(SCRAPE_SECONDS if SIZE > 10_000 else 1.0)

    @asynccontextmanager
    async def scenario(self, name: str, make: Make) -> AsyncIterator[Scenario]:
        """Measure what happens in the block."""
        found = Scenario(name)
        log = self.stage.home / "operator-0.log"
        async with arriving(self.stage, make) as found.newcomers:
            _reset_peak(self.pid)
            before, logged, cpu, began = await self.scrape(), log.stat().st_size, _cpu(self.pid), time.perf_counter()
            yield found
            found.seconds = time.perf_counter() - began
            found.cpu, found.logged = _cpu(self.pid) - cpu, log.stat().st_size - logged
            found.resident, found.peak = _megabytes(self.pid, "VmRSS"), _megabytes(self.pid, "VmHWM")
            found.spent = await self.scrape() - before
        print(f"    load average {os.getloadavg()[0]:.1f}")
        print(*(f"    {row.name}: {row.value}" for row in found.rows(self.stage.kube.name)), sep="\n", flush=True)


@contextmanager
def _scraper() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as made:
        yield made


def scraped() -> Counter[str]:
    """Return the sums of the operator's metrics that this benchmark needs."""
    text = read(f"http://127.0.0.1:{os.environ['ESO_WIDTH_METRICS']}/metrics")
    found: Counter[str] = Counter()
    for verb, value in re.findall(r'^rest_client_requests_total\{.*method="(\w+)".*\} (\S+)$', text, re.MULTILINE):
        found[verb] += int(float(value))
    for name, pattern in _PATTERNS.items():
        found[name] = int(sum(map(float, re.findall(pattern, text, re.MULTILINE))))
    found["ready"] = len(re.findall(_READY, text, re.MULTILINE))
    return found


_PATTERNS = {
    "reconciles": r'^controller_runtime_reconcile_total\{controller="externalsecret".*\} (\S+)$',
    "calls": r"^eso_grpc_client_handled_total\{.*\} (\S+)$",
    "depth": r'^workqueue_depth\{controller="externalsecret".*\} (\S+)$',
}
_READY = r'^externalsecret_status_condition\{condition="Ready".*status="True"\} 1\.0$'


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reset_peak(pid: int) -> None:
    """Let VmHWM be the peak from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _megabytes(pid: int, what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


# --- all scenarios ----------------------------------------------------------------------------------------------------


async def _measured(stage: Stage, scraper: ProcessPoolExecutor) -> list[Scenario]:
    os.environ["ESO_WIDTH_METRICS"] = str(METRICS_PORT)
    objects = [external_secret(f"all-{number}", number, TEAMS[number % NAMESPACES]) for number in range(FIRST)]
    try:
        await _prepare(stage)
        with provider(stage, "generators") as generators, ExitStack() as fakes:
            fake = fakes.enter_context(provider(stage))
            with operator(stage, fake, generators):
                await until(stage.store_is_ready, "the store does not become ready")
            await _create(stage, objects)
            first = await _from_nothing(stage, scraper, (fake, generators))
            await _seed(stage)
            with operator(stage, fake, generators, loglevel="info") as pid:
                return [first, *await _running(Bench(stage, scraper, pid), fake, fakes)]
    finally:
        await stage.client.close()


async def _prepare(stage: Stage) -> None:
    await stage.install([*TEAMS, *PLACES])
    await stage.announce("generators")
    await stage.create([(STORES, {"metadata": {"name": "bench"}, "spec": _store("value")})])
    made = {"kind": "Password", "generator": {"passwordSpec": {"length": 16}}}
    await stage.create([(GENERATORS, {"metadata": {"name": "bench"}, "spec": made})])


async def _create(stage: Stage, objects: list[JsonObject]) -> None:
    began = time.perf_counter()
    await stage.create([(ES, obj) for obj in objects])
    print(f"    {stage.kube.name}: {len(objects)} objects created in {time.perf_counter() - began:.0f} s", flush=True)


async def _from_nothing(stage: Stage, scraper: ProcessPoolExecutor, served: tuple[Served, ...]) -> Scenario:
    with operator(stage, *served, loglevel="info") as pid:
        await operator_is_ready()
        bench = Bench(stage, scraper, pid)
        async with bench.scenario("from nothing", _of_store) as found:
            await bench.until(lambda now: now["ready"] >= FIRST, "not all become Ready")
        return found


async def _seed(stage: Stage) -> None:
    """Copy synced objects until there are SIZE. Each is due at its own moment of the hour that begins soon."""
    pairs, number = await synced_pairs(stage, FIRST), SIZE - FIRST
    began, start = time.perf_counter(), SystemClock().now() - timedelta(seconds=HOUR - 60 - SIZE / 500)
    names = ((TEAMS[each % NAMESPACES], f"copy-{each}") for each in range(number))
    times = (f"{start + timedelta(seconds=HOUR * each / SIZE):%Y-%m-%dT%H:%M:%SZ}" for each in range(number))
    await seed(stage, copies(pairs, names, times))
    print(f"    {stage.kube.name}: {number} objects stored in {time.perf_counter() - began:.0f} s", flush=True)


async def _running(bench: Bench, fake: Served, fakes: ExitStack) -> list[Scenario]:
    """Measure one operator from its start through everything that happens to it."""
    found = [await _start_up(bench), await _steady(bench), await _store_change(bench), await _restart(bench)]
    async with bench.scenario("provider gone", _of_generator) as gone:
        fakes.close()
        await asyncio.sleep(SECONDS)
    async with bench.scenario("provider back", _of_generator) as back:
        fakes.enter_context(provider(bench.stage, "fake", fake.address))
        await _all_ready(bench)
    return [*found, gone, back]  # all objects are then read once more, which would disturb a later scenario


async def _start_up(bench: Bench) -> Scenario:
    began = time.perf_counter()
    await operator_is_ready()
    print(f"    caches full after {time.perf_counter() - began:.1f} s", flush=True)
    async with bench.scenario("start-up", _of_store) as found:
        await bench.until(lambda now: now["reconciles"] >= SIZE, "not all are looked at")
    found.cpu, found.seconds = _cpu(bench.pid), time.perf_counter() - began
    return found


async def _steady(bench: Bench) -> Scenario:
    async with bench.scenario("steady state", _of_store) as found:
        ending = time.monotonic() + SECONDS
        while time.monotonic() < ending:
            await asyncio.sleep(SCRAPE_SECONDS * 3)
            await bench.scrape()
    return found


async def _store_change(bench: Bench) -> Scenario:
    async with bench.scenario("store changes", _of_store) as found:
        before = await bench.scrape()
        await bench.stage.client.merge_patch(STORES, ObjectKey("", "bench"), {"spec": _store("other")})
        await bench.until(lambda now: now["reconciles"] - before["reconciles"] >= SIZE, "not all are looked at")
    return found


async def _all_ready(bench: Bench) -> None:
    """Wait until every object is Ready, after the spread of all wakes.

    The provider lost its place in the stream of changes, so all objects are read once more, 50 in a second. That goes
    on in the background, and is not waited for.
    """
    await asyncio.sleep(20.0)
    await bench.until(lambda now: now["ready"] >= SIZE, "not all are Ready again")


async def _restart(bench: Bench) -> Scenario:
    async with bench.scenario("API server restarts", _of_store) as found:
        before = await bench.scrape()
        began = time.perf_counter()
        await asyncio.to_thread(bench.stage.kube.restart)
        print(f"    API server back after {time.perf_counter() - began:.1f} s", flush=True)
        await asyncio.sleep(max(SECONDS, 30.0))
        spent = await bench.scrape() - before
        print(f"    reconciles after it: {spent['reconciles']}", flush=True)
    return found


def _of_store(number: int) -> JsonObject:
    namespace = PLACES[number // 2 % OWN] if number % 2 else TEAMS[number // 2 % NAMESPACES]
    return external_secret(f"new-{number}", number, namespace)


def _of_generator(number: int) -> JsonObject:
    made = _of_store(number)
    ref = {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "ClusterGenerator", "name": "bench"}
    return {"metadata": made["metadata"], "spec": {"dataFrom": [{"sourceRef": {"generatorRef": ref}}]}}


def _store(value: str) -> JsonObject:
    data = [{"key": f"remote-{number}", "value": f"{value}-{number}"} for number in range(REMOTE_KEYS)]
    return {"provider": {"fake": {"data": data}}}


def external_secret(name: str, number: int, namespace: str) -> JsonObject:
    data = [
        {"secretKey": f"key-{each}", "remoteRef": {"key": f"remote-{(number * KEYS + each) % REMOTE_KEYS}"}}
        for each in range(KEYS)
    ]
    store = {"kind": "ClusterSecretStore", "name": "bench"}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"refreshInterval": "1h", "secretStoreRef": store, "data": data},
    }
