"""What restarts cost on a real kube-apiserver: the operator starts, and a provider is away and returns.

    start    the operator starts with ESO_RESTARTS_SYNCED synced objects (2,000), and is observed for 30 s
    return   the provider is away for ESO_RESTARTS_AWAY seconds (30) while ESO_RESTARTS_WAITING ExternalSecrets
             (200) are created; ESO_RESTARTS_SYNCED other objects are synced and not due. Then it is back, and the
             operator is observed for as long as it would need to read all objects again

ESO_RESTARTS names the scenarios (`start,return`). Requests are counted by the API server: differences of
`apiserver_request_total`. All objects use one ClusterSecretStore and an interval of 1 h.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from report import Row, shown
from samples import NAMESPACES, TEAMS, create_store, external_secret
from seeding import copies, seed, synced_pairs
from stage import (
    ES,
    PATIENCE,
    Requests,
    Served,
    Stage,
    cpu_seconds,
    operator,
    operator_is_ready,
    operator_metric,
    provider,
    until,
)

from kubebase.clock import SystemClock
from kubebase.meta import key_of
from kubebase.testing.servers import ServerFailedError
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets

SCENARIOS = os.environ.get("ESO_RESTARTS", "start,return").split(",")
SYNCED = int(os.environ.get("ESO_RESTARTS_SYNCED", "2000"))
AWAY = float(os.environ.get("ESO_RESTARTS_AWAY", "30"))
WAITING = int(os.environ.get("ESO_RESTARTS_WAITING", "200"))
FIRST = 200
"""Objects that the operator syncs itself; the others are copies of them."""
START_SECONDS = 30.0
READS_PER_SECOND = 50
"""Objects that the operator reads again in a second when a stream of changes could not be resumed."""
CALM_SECONDS = 3.0

STATUS_WRITES = (("PATCH", "externalsecrets/status"), ("PUT", "externalsecrets/status"))
SECRET_READS = (("GET", "secrets"),)
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
            return asyncio.run(_measured(Stage(kube, home)))
        finally:
            kube.stop()


async def _measured(stage: Stage) -> list[Row]:
    rows: list[Row] = []
    try:
        await stage.install(TEAMS)
        await create_store(stage)
        with ExitStack() as providers:
            fake = providers.enter_context(provider(stage))
            await _sync(stage, fake, SYNCED)
            if "start" in SCENARIOS:
                rows += await _start(stage, fake)
            if "return" in SCENARIOS:
                rows += await _return(stage, fake, providers)
    finally:
        await stage.client.close()
    return rows


async def _sync(stage: Stage, fake: Served, size: int) -> None:
    """Let an operator sync some objects, and copy them until there are `size`."""
    objects = [external_secret(number, prefix="first") for number in range(FIRST)]
    with operator(stage, fake):
        await until(stage.store_is_ready, "the store does not become ready")
        async with stage.readiness() as readiness:
            await stage.create([(ES, obj) for obj in objects])
            await readiness.of_all([key_of(obj) for obj in objects])
        await _calm()
    names = ((TEAMS[number % NAMESPACES], f"copy-{number}") for number in range(FIRST, size))
    now = f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}"
    await seed(stage, copies(await synced_pairs(stage, FIRST), names, repeat(now)))


async def _calm() -> None:
    """Wait until the operator reconciles nothing for some seconds."""
    before, deadline = -1.0, time.monotonic() + PATIENCE
    while before != (now := operator_metric("controller_runtime_reconcile_total")):
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

    def show(self, when: str) -> None:
        """Print all requests by verb and resource, without those that others cause."""
        kinds = Counter({each: number for each, number in self.requests.items() if each[1] not in ("", "leases")})
        print(f"    {when}: {self.cpu:.1f} CPU s, {self.calls:.0f} calls, load average {os.getloadavg()[0]:.1f}")
        print("      " + ", ".join(f"{number} {verb} {what}" for (verb, what), number in kinds.most_common(14)))


def _spent(stage: Stage, pid: int) -> Spent:
    return Spent(stage.requests(), operator_metric("eso_grpc_client_handled_total"), cpu_seconds(pid))


def _at_most(name: str, value: float, goal: float, digits: int = 0) -> Row:
    return Row(name, f"{value:,.{digits}f}", f"<= {goal:,g}", value <= goal)


# --- start ------------------------------------------------------------------------------------------------------------


async def _start(stage: Stage, fake: Served) -> list[Row]:
    requests = stage.requests()
    with operator(stage, fake) as pid:
        await operator_is_ready()
        await asyncio.sleep(START_SECONDS)
        spent = _spent(stage, pid) - Spent(requests, 0, 0)
    spent.show("start")
    lists = sum(number for (verb, _), number in spent.requests.items() if verb == "LIST")
    where = f"start with {SYNCED:,} synced objects"
    return [
        _at_most(f"{where}: GETs of Secrets", spent.of(SECRET_READS), 0),
        _at_most(f"{where}: status writes", spent.of(STATUS_WRITES), 0),
        shown(f"{where}: LISTs, all kinds; of Secrets", f"{lists}; {spent.requests['LIST', 'secrets']}"),
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
        _at_most(f"{where}: events for each", away.of(EVENT_WRITES) / WAITING, 1, 2),
        _at_most(f"{where}: GETs of Secrets", away.of(SECRET_READS), 0),
        _at_most(f"{after}: GETs of Secrets", back.of(SECRET_READS), 0),
        _at_most(f"{after}: status writes", back.of(STATUS_WRITES), WAITING),
        shown(f"{after}: calls to the provider; CPU seconds", f"{back.calls:.0f}; {back.cpu:.1f}"),
        shown(f"{after}: seconds until those that waited are Ready", f"{ready:.1f}"),
    ]
