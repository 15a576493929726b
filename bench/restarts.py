"""What restarts cost on a real kube-apiserver: of the API server itself, of the operator, of a provider.

    outage   kube-apiserver is down for 20 s and for 3 s with ESO_RESTARTS_SIZE objects (300): seconds from its return
             (/readyz) until a new ExternalSecret is Ready. A kube-apiserver that is ready still fills its caches; it
             refuses watches of a kind with many objects meanwhile, so a bare client tries to watch, too
    start    the operator starts with ESO_RESTARTS_SYNCED synced objects (2,000), and is observed for 30 s
    return   the provider is away for ESO_RESTARTS_AWAY seconds (30) while ESO_RESTARTS_WAITING ExternalSecrets
             (200) are created; ESO_RESTARTS_SYNCED other objects are synced and not due. Then it is back, and the
             operator is observed for as long as it would need to read all objects again
    events   a burst of 1,000 new ExternalSecrets in 50 namespaces, with 50 broken ones between them: the lag from
             status to event, and the time of the burst with and without events (ESO_RESTARTS_ROUNDS, 2 of each)

ESO_RESTARTS names the scenarios (all of them). Requests are counted by the API server: differences of
`apiserver_request_total`. All objects use one ClusterSecretStore and an interval of 1 h.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from statistics import median

from report import Row, ratio, shown
from samples import NAMESPACES, TEAMS, create_store, external_secret
from seeding import copies, seed, synced_pairs
from stage import (
    CORE,
    ES,
    PATIENCE,
    Requests,
    Served,
    Stage,
    cpu_seconds,
    is_ready,
    operator,
    operator_is_ready,
    operator_metric,
    parallel,
    provider,
    until,
)

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Kind, ObjectKey, Resource, key_of, raw
from kubebase.testing.servers import ServerFailedError
from kuberun.errors import AlreadyExists, ApiError
from kuberun.informer import Informer
from kuberun.requests import Selection
from kuberun.source import ResourceSource
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets

SCENARIOS = os.environ.get("ESO_RESTARTS", "outage,start,return,events").split(",")
SIZE = int(os.environ.get("ESO_RESTARTS_SIZE", "300"))
SYNCED = int(os.environ.get("ESO_RESTARTS_SYNCED", "2000"))
AWAY = float(os.environ.get("ESO_RESTARTS_AWAY", "30"))
WAITING = int(os.environ.get("ESO_RESTARTS_WAITING", "200"))
FIRST = 200
"""Objects that the operator syncs itself; the others are copies of them."""
START_SECONDS = 30.0
OUTAGES = tuple(map(float, os.environ.get("ESO_RESTARTS_OUTAGES", "20,3").split(",")))
BACK_WITHIN = 5.0
NEWCOMERS = 3
ROUNDS = int(os.environ.get("ESO_RESTARTS_ROUNDS", "2"))
BURST, BROKEN = 1000, 50
LAG_SECONDS = 30.0
"""An event that is not there so long after the burst counts as lost."""
EVENTS = raw(Resource("", "v1", "events", "Event"))
READS_PER_SECOND = 50
"""Objects that the operator reads again in a second when a stream of changes could not be resumed."""
CALM_SECONDS = 3.0

OWN_READS = 5
"""Secrets with certificates that the operator reads at its start."""
OWN_EVENTS = 3
"""Events about the store and the classes of a provider that is away."""
STATUS_WRITES = (("PATCH", "externalsecrets/status"), ("PUT", "externalsecrets/status"))
SECRET_READS = (("GET", "secrets"),)
WRITES = (("POST", "externalsecrets"), ("APPLY", "secrets"), *STATUS_WRITES, ("POST", "events"))
EVENT_WRITES = (("POST", "events"), ("PATCH", "events"))


def measure() -> list[Row]:
    try:
        assets = find_assets()
    except ServerFailedError:
        return [shown("restarts", "not measured: run `make test-cluster` once")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "kube").mkdir()
        kube = KubeApiserver(home / "kube", assets, controllers="")
        try:
            return asyncio.run(_measured(Stage(kube, home), kube))
        finally:
            kube.stop()


async def _measured(stage: Stage, kube: KubeApiserver) -> list[Row]:
    rows: list[Row] = []
    try:
        await stage.install(TEAMS)
        await create_store(stage)
        with ExitStack() as providers:
            fake = providers.enter_context(provider(stage))
            await _sync(stage, fake)
            if "outage" in SCENARIOS:
                await _copy(stage, range(FIRST, SIZE))
                rows += await _outages(stage, kube, fake)
            await _copy(stage, range(SIZE if "outage" in SCENARIOS else FIRST, SYNCED))
            if "start" in SCENARIOS:
                rows += await _start(stage, fake)
            if "return" in SCENARIOS:
                rows += await _return(stage, fake, providers)
            if "events" in SCENARIOS:
                rows += await _events(stage, fake)
    finally:
        await stage.client.close()
    return rows


async def _sync(stage: Stage, fake: Served) -> None:
    """Let an operator sync some objects."""
    objects = [external_secret(number, prefix="first") for number in range(FIRST)]
    with operator(stage, fake):
        await until(stage.store_is_ready, "the store does not become ready")
        async with stage.readiness() as readiness:
            await stage.create([(ES, obj) for obj in objects])
            await readiness.of_all([key_of(obj) for obj in objects])
        await _calm()


async def _copy(stage: Stage, numbers: range) -> None:
    """Add copies of synced objects."""
    names = ((TEAMS[number % NAMESPACES], f"copy-{number}") for number in numbers)
    now = f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}"
    await seed(stage, copies(await synced_pairs(stage, FIRST), names, repeat(now)))


async def _calm(metric: str = "controller_runtime_reconcile_total") -> None:
    """Wait until the operator reconciles nothing for some seconds, or another of its counters stays the same."""
    before, deadline = -1.0, time.monotonic() + PATIENCE
    while before != (now := operator_metric(metric)):
        if time.monotonic() > deadline:
            raise TimeoutError("the operator does not come to rest")
        before = now
        await asyncio.sleep(CALM_SECONDS)


# --- what was spent ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spent:
    """Requests to the API server, calls to providers and CPU seconds of the operator."""

    requests: Requests
    calls: float
    cpu: float

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.requests - before.requests, self.calls - before.calls, self.cpu - before.cpu)

    def of(self, which: Iterable[tuple[str, str]]) -> int:
        return sum(self.requests[each] for each in which)

    def of_verb(self, verb: str) -> int:
        return sum(number for each, number in self.requests.items() if each[0] == verb)

    def show(self, when: str) -> None:
        """Print all requests by verb and resource, without those that others cause."""
        kinds = Counter({each: number for each, number in self.requests.items() if each[1] not in ("", "leases")})
        print(f"    {when}: {self.cpu:.1f} CPU s, {self.calls:.0f} calls, load average {os.getloadavg()[0]:.1f}")
        print("      " + ", ".join(f"{number} {verb} {what}" for (verb, what), number in kinds.most_common(14)))


def _spent(stage: Stage, pid: int) -> Spent:
    return Spent(stage.requests(), operator_metric("eso_grpc_client_handled_total"), cpu_seconds(pid))


def _at_most(name: str, value: float, goal: float, digits: int = 0) -> Row:
    return Row(name, f"{value:,.{digits}f}", f"<= {goal:,.3g}" if goal % 1 else f"<= {goal:,.0f}", value <= goal)


# --- an outage of the API server --------------------------------------------------------------------------------------


async def _outages(stage: Stage, kube: KubeApiserver, fake: Served) -> list[Row]:
    rows: list[Row] = []
    with operator(stage, fake) as pid:
        await operator_is_ready()
        await _calm()
        for seconds in OUTAGES:
            rows += await _outage(stage, kube, pid, seconds)
            await _calm()
    return rows


async def _outage(stage: Stage, kube: KubeApiserver, pid: int, seconds: float) -> list[Row]:
    cpu = cpu_seconds(pid)
    await asyncio.to_thread(kube.stop_apiserver)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(kube.start_apiserver)
    back = time.perf_counter()
    newcomers = [external_secret(number, prefix=f"new-{seconds:g}") for number in range(NEWCOMERS)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_arrive(stage, obj)) for obj in newcomers]
        watching = group.create_task(_watch(stage))
    watched = watching.result() - back
    created, ready = (max(moments) - back for moments in zip(*(task.result() for task in tasks), strict=True))
    lists = _list_seconds(stage)
    await asyncio.sleep(BACK_WITHIN)
    spent = Spent(stage.requests(), operator_metric("eso_grpc_client_handled_total"), cpu_seconds(pid) - cpu)
    spent.show(f"back after {seconds:g} s")
    goal = watched + BACK_WITHIN + lists
    where = f"API server away for {seconds:g} s, {SIZE:,} objects"
    return [
        shown(f"{where}: seconds until it takes new objects; watches", f"{created:.1f}; {watched:.1f}"),
        _at_most(f"{where}: seconds until they are Ready", ready, goal, 1),
        shown(f"{where}: seconds of the lists of ExternalSecrets and Secrets", f"{lists:.1f}"),
        shown(
            f"{where}: LISTs; WATCHes; GETs", "; ".join(str(spent.of_verb(verb)) for verb in ("LIST", "WATCH", "GET"))
        ),
        shown(f"{where}: CPU seconds", f"{spent.cpu:.1f}"),
    ]


async def _arrive(stage: Stage, obj: JsonObject) -> tuple[float, float]:
    """Create an object as soon as the API server takes it; return when that was, and when the object was Ready."""
    deadline, created = time.monotonic() + PATIENCE, 0.0
    while time.monotonic() < deadline:
        try:
            if not created:
                with suppress(AlreadyExists):  # its answer was lost
                    await stage.client.create(ES, obj)
                created = time.perf_counter()
            if is_ready(await stage.client.get(ES, key_of(obj))):
                return created, time.perf_counter()
        except ApiError:
            pass  # it starts
        await asyncio.sleep(0.1)
    raise TimeoutError("a new object does not become Ready")


async def _watch(stage: Stage) -> float:
    """Return when the API server accepts a watch of ExternalSecrets, of a namespace without any."""
    source, deadline = ResourceSource(stage.transport, ES, Selection(CORE)), time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            async with source.watch(resource_version="0", timeout_seconds=5, allow_bookmarks=False):
                return time.perf_counter()
        except ApiError:
            await asyncio.sleep(0.2)
    raise TimeoutError("ExternalSecrets cannot be watched")


def _list_seconds(stage: Stage) -> float:
    """Return the seconds that kube-apiserver needed since its start for lists of the kinds with many objects."""
    pattern = r"^apiserver_request_duration_seconds_sum\{(.*?)\} (\S+)$"
    return sum(
        float(value)
        for labels, value in re.findall(pattern, stage.metrics(), re.MULTILINE)
        if 'verb="LIST"' in labels and re.search(r'resource="(externalsecrets|secrets)"', labels)
    )


# --- start ------------------------------------------------------------------------------------------------------------


async def _start(stage: Stage, fake: Served) -> list[Row]:
    requests = stage.requests()
    with operator(stage, fake) as pid:
        await operator_is_ready()
        await asyncio.sleep(START_SECONDS)
        spent = _spent(stage, pid) - Spent(requests, 0, 0)
    spent.show("start")
    where = f"start with {SYNCED:,} synced objects"
    return [
        _at_most(f"{where}: GETs of Secrets", spent.of(SECRET_READS), OWN_READS),
        _at_most(f"{where}: status writes", spent.of(STATUS_WRITES), 0),
        shown(
            f"{where}: LISTs, all kinds; of Secrets", f"{spent.of_verb('LIST')}; {spent.requests['LIST', 'secrets']}"
        ),
        shown(f"{where}: CPU seconds", f"{spent.cpu:.1f}"),
    ]


# --- a provider's return ----------------------------------------------------------------------------------------------


async def _return(stage: Stage, fake: Served, providers: ExitStack) -> list[Row]:
    waiting = [external_secret(number, prefix="waiting") for number in range(WAITING)]
    with operator(stage, fake) as pid:
        await operator_is_ready()
        await _calm()
        before = _spent(stage, pid)
        providers.close()
        async with stage.readiness() as readiness:
            await stage.create([(ES, obj) for obj in waiting])
            await asyncio.sleep(AWAY)
            gone = _spent(stage, pid)
            began = time.perf_counter()
            providers.enter_context(provider(stage, "fake", fake.address))
            await readiness.of_all([key_of(obj) for obj in waiting])
            ready = time.perf_counter() - began
        await asyncio.sleep((SYNCED + WAITING) / READS_PER_SECOND + CALM_SECONDS)
        back = _spent(stage, pid) - gone
    away = gone - before
    away.show("away")
    back.show("back")
    where = f"away for {AWAY:g} s, {WAITING} objects wait"
    after = f"back, {WAITING} objects waited, {SYNCED:,} were synced"
    return [
        _at_most(f"{where}: status writes for each", away.of(STATUS_WRITES) / WAITING, 1, 2),
        _at_most(f"{where}: events for each", (away.of(EVENT_WRITES) - OWN_EVENTS) / WAITING, 1, 2),
        _at_most(f"{where}: GETs of Secrets", away.of(SECRET_READS), 0),
        _at_most(f"{after}: GETs of Secrets", back.of(SECRET_READS), 0),
        _at_most(f"{after}: status writes", back.of(STATUS_WRITES), WAITING),
        shown(f"{after}: calls to the provider; CPU seconds", f"{back.calls:.0f}; {back.cpu:.1f}"),
        shown(f"{after}: seconds until those that waited are Ready", f"{ready:.1f}"),
    ]


# --- events of a burst ------------------------------------------------------------------------------------------------


async def _events(stage: Stage, fake: Served) -> list[Row]:
    program = (str(Path(__file__).with_name("muted_operator.py")),)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with operator(stage, fake, program=program) as pid:
        await operator_is_ready()
        await _calm()
        rows = await _lags(stage)
        written = True
        for number in range(2 * ROUNDS):
            if number % 2:  # with, without, without, with, ...
                os.kill(pid, signal.SIGUSR1)
                written = not written
            seconds[written].append(await _burst(stage, f"burst-{number}"))
            print(f"    burst, {'with' if written else 'without'} events: {seconds[written][-1]:.2f} s", flush=True)
    return [*rows, ratio("burst: with events / without", median(seconds[True]) / median(seconds[False]), at_most=1.03)]


async def _burst(stage: Stage, prefix: str) -> float:
    """Return the seconds from the first create to the last Ready; then wait until all events are written."""
    good, broken = _objects(prefix)
    async with stage.readiness() as readiness:
        started = time.perf_counter()
        await stage.create([(ES, obj) for obj in _between(good, broken)])
        await readiness.of_all([key_of(obj) for obj in good])
        seconds = max(readiness.since[key_of(obj)] for obj in good) - started
    await parallel([stage.client.delete(ES, key_of(obj)) for obj in broken])
    await _calm("eso_events_total")
    return seconds


async def _lags(stage: Stage) -> list[Row]:
    good, broken = _objects("lag")
    keys = {"Warning": {key_of(obj) for obj in broken}, "Normal": {key_of(obj) for obj in good}}
    wanted, requests = keys["Warning"] | keys["Normal"], stage.requests()
    async with _first_seen(stage, ES, _with_status) as statuses, _first_seen(stage, EVENTS, _subject) as events:
        await stage.create([(ES, obj) for obj in _between(good, broken)])
        await _wait(lambda: wanted <= statuses.keys(), PATIENCE)
        during = stage.requests() - requests
        await _wait(lambda: wanted <= events.keys(), LAG_SECONDS)
    spent = stage.requests() - requests
    await parallel([stage.client.delete(ES, key_of(obj)) for obj in broken])
    rows = []
    for name, goal in (("Warning", 1.0), ("Normal", 5.0)):
        lags = sorted(events[key] - statuses[key] for key in keys[name] if key in events)
        lost = len(keys[name]) - len(lags)
        if lags:
            rows.append(_at_most(f"burst: {name} events, longest lag in seconds", lags[-1], goal, 1))
            rows.append(shown(f"burst: {name} events, median lag in seconds", f"{median(lags):.1f}"))
        rows.append(_at_most(f"burst: {name} events lost of {len(keys[name])}", lost, 0))
    writes = f"{spent['POST', 'events']}; {spent['PATCH', 'events']}"
    rows.append(shown("burst: events created; counted up", writes))
    share = during["POST", "events"] / sum(during[each] for each in WRITES)
    rows.append(shown("burst: events in percent of all writes until the last status", f"{100 * share:.0f}"))
    print(*(f"    {row.name}: {row.value}" for row in rows), sep="\n", flush=True)
    return rows


async def _wait(holds: Callable[[], bool], seconds: float) -> None:
    """Wait until it holds, or until the time is over."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(0.1)


def _objects(prefix: str) -> tuple[list[JsonObject], list[JsonObject]]:
    missing = [{"secretKey": "key", "remoteRef": {"key": "missing"}}]
    good = [external_secret(number, prefix=prefix) for number in range(BURST)]
    return good, [external_secret(number, prefix=f"{prefix}-broken", data=missing) for number in range(BROKEN)]


def _between(good: list[JsonObject], broken: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield the good objects in order, and the broken ones at equal distances between them."""
    others = iter(broken)
    for number, obj in enumerate(good):
        if number % (BURST // BROKEN) == 0:
            yield next(others)
        yield obj


@asynccontextmanager
async def _first_seen(
    stage: Stage, kind: Kind[JsonObject], about: Callable[[JsonObject], ObjectKey | None]
) -> AsyncIterator[dict[ObjectKey, float]]:
    """Follow a kind; say for each object that an object is `about` when that was first seen."""
    informer = Informer(ResourceSource(stage.transport, kind), clock=SystemClock(), name="bench")
    subscription, seen = informer.subscribe(), dict[ObjectKey, float]()

    async def follow() -> None:
        while True:
            for change in await subscription.take():
                if isinstance(change.new, dict) and (key := about(change.new)) is not None:
                    seen.setdefault(key, time.perf_counter())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()), group.create_task(follow())]
        await informer.wait_synced()
        yield seen
        for task in tasks:
            task.cancel()


def _with_status(obj: JsonObject) -> ObjectKey | None:
    return key_of(obj) if obj.get("status", {}).get("conditions") else None


def _subject(event: JsonObject) -> ObjectKey | None:
    about = event["involvedObject"]
    return ObjectKey(about.get("namespace", ""), about["name"]) if about["kind"] == "ExternalSecret" else None
