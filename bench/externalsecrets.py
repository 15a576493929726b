"""A whole operator on a real kube-apiserver, compared with a bare client that makes the same writes.

1,000 ExternalSecrets of 3 keys in 50 namespaces on 20 remote keys, on a fresh cluster:

- `arrivals.py`: the operator runs, then the objects are created. Time from the first create to the last Ready.
- The objects exist, then the operator starts. Time until all are Ready divided by the time that a bare client needs for
  as many Secret and status writes; requests and provider reads per object; CPU and memory of operator and provider.
- A settled operator: an idle period, and the latency of one new object while 10,000 refreshes are queued.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from arrivals import created_while_it_runs
from report import Row, ratio, shown
from samples import OBJECTS, REMOTE_KEYS, TEAMS, create_store, external_secret, remove, write_bare
from stage import (
    ES,
    Readiness,
    Requests,
    Served,
    Stage,
    operator,
    operator_is_ready,
    operator_metric,
    parallel,
    provider,
    until,
    usage,
)

from kubebase.meta import key_of
from kubebase.testing.servers import ServerFailedError
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets

ROUNDS = 3
IDLE_SECONDS = 60.0
QUEUED = 10_000
NEWCOMERS = 50

WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
NOT_COUNTED = {"leases", "events"}
"""The API server renews its own lease. Events have their own recorder and their own row."""


def measure() -> list[Row]:
    try:
        assets = find_assets()
    except ServerFailedError:
        return [shown("ExternalSecrets", "not measured: run `make test-cluster` once")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "kube").mkdir()
        kube = KubeApiserver(home / "kube", assets, controllers="")  # their requests would count as the operator's
        try:
            return asyncio.run(_measured(Stage(kube, home)))
        finally:
            kube.stop()


async def _measured(stage: Stage) -> list[Row]:
    try:
        await stage.install(TEAMS)
        await create_store(stage)
        with provider(stage) as served:
            with operator(stage, served):
                await until(stage.store_is_ready, "the store does not become ready")
            arrivals = await created_while_it_runs(stage, served)
            bare = [await _bare_writes(stage)]
            rounds = []
            for number in range(ROUNDS):
                rounds.append(await _from_nothing(stage, served, f"round-{number}"))
                bare.append(await _bare_writes(stage))
            return [
                *arrivals,
                *_speed(bare, rounds),
                *_cost(min(rounds, key=lambda each: each.seconds)),
                *await _over_time(stage, served),
            ]
    finally:
        await stage.client.close()


@dataclass(frozen=True, slots=True)
class Round:
    """All objects exist and the operator starts: the cost until all are Ready."""

    starting: float
    """Seconds until the caches were full."""
    seconds: float
    """Seconds from then until all were Ready."""
    requests: Requests
    logical_reads: float
    operator: str
    provider: str


async def _from_nothing(stage: Stage, served: Served, prefix: str) -> Round:
    """Start from an empty cluster. Names are never reused: an API server cache may hold the old object as Ready."""
    objects = [external_secret(number, prefix=prefix) for number in range(OBJECTS)]
    await stage.create([(ES, obj) for obj in objects])
    async with stage.readiness() as readiness:
        before, started = stage.requests(), time.perf_counter()
        with operator(stage, served) as pid:
            await operator_is_ready()
            starting = time.perf_counter() - started
            await readiness.of_all([key_of(obj) for obj in objects])
            took = time.perf_counter() - started - starting
            reads = operator_metric("eso_provider_read_batch_items_sum")
            round_ = Round(starting, took, stage.requests() - before, reads, usage(pid), usage(served.pid))
    await remove(stage, objects)
    return round_


async def _bare_writes(stage: Stage) -> float:
    """Return the seconds for the same Secrets and statuses, written by a loop that does nothing else."""
    await stage.create([(ES, external_secret(number, prefix="bare")) for number in range(OBJECTS)])
    listed = await stage.client.list(ES)
    objects = [obj for obj in listed.items if isinstance(obj, dict)]
    started = time.perf_counter()
    await parallel([write_bare(stage, obj) for obj in objects])
    took = time.perf_counter() - started
    await remove(stage, objects)
    return took


def _speed(bare: list[float], rounds: list[Round]) -> list[Row]:
    """Compare each round with the bare client's runs right before and after it; the median ratio counts."""
    ratios = [
        each.seconds / ((before + after) / 2) for each, before, after in zip(rounds, bare, bare[1:], strict=False)
    ]
    return [
        shown("a bare client: seconds for 1,000 Secrets and statuses", _seconds(bare)),
        shown("operator: seconds until its caches are full", _seconds([each.starting for each in rounds])),
        shown("operator: seconds from then until all are Ready", _seconds([each.seconds for each in rounds])),
        ratio("until all are Ready / bare client", sorted(ratios)[len(ratios) // 2], at_most=1.5),
    ]


def _seconds(measured: list[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in measured)


def _cost(best: Round) -> list[Row]:
    spent = {
        key: count for key, count in best.requests.items() if key[1].split("/")[0] in ("secrets", ES.resource.plural)
    }
    writes = sum(count for (verb, _), count in spent.items() if verb in WRITES) / OBJECTS
    reads = sum(count for (verb, _), count in spent.items() if verb == "GET") / OBJECTS
    events = sum(count for (_, what), count in best.requests.items() if what == "events")
    logical = best.logical_reads
    return [
        Row("API writes for each object", f"{writes:.2f}", "<= 2", writes <= 2.01),
        Row("API reads for each object", f"{reads:.2f}", "0", reads <= 0.01),
        shown("events written meanwhile", str(events)),
        Row("remote values read for 3,000 keys on 20 remote keys", f"{logical:.0f}", "<= 20", logical <= REMOTE_KEYS),
        shown("operator: CPU seconds, peak memory", best.operator),
        shown("provider: CPU seconds, peak memory (all rounds so far)", best.provider),
    ]


async def _over_time(stage: Stage, served: Served) -> list[Row]:
    """Measure a settled operator: when idle, and under a very high load."""
    objects = [external_secret(number, prefix="settled") for number in range(OBJECTS)]
    await stage.create([(ES, obj) for obj in objects])
    with operator(stage, served) as pid:
        async with stage.readiness() as readiness:
            await readiness.of_all([key_of(obj) for obj in objects])
            idle = await _idle(stage)
            return [idle, *await _latency(stage, readiness, pid)]


async def _idle(stage: Stage) -> Row:
    await asyncio.sleep(30.0)  # the recorder has written the events of the start
    before = stage.requests()
    await asyncio.sleep(IDLE_SECONDS)
    spent = stage.requests() - before
    writes = sum(count for (verb, what), count in spent.items() if verb in WRITES and what not in NOT_COUNTED)
    return Row(f"writes in {IDLE_SECONDS:.0f} idle seconds", str(writes), "0", writes == 0)


async def _latency(stage: Stage, readiness: Readiness, pid: int) -> list[Row]:
    """Measure the latency of a new object while all others are due for a refresh, again and again."""
    busy = [external_secret(number, prefix="busy", refreshInterval="1s") for number in range(QUEUED + QUEUED // 10)]
    await stage.create([(ES, obj) for obj in busy])
    await readiness.of_all([key_of(obj) for obj in busy])
    took, depths = [], []
    for number in range(NEWCOMERS):
        obj = external_secret(number, prefix="new")
        depths.append(operator_metric("workqueue_depth"))
        began = time.perf_counter()
        await stage.client.create(ES, obj)
        await readiness.of_all([key_of(obj)])
        took.append(time.perf_counter() - began)
    took.sort()
    return [
        shown(
            f"p99 of {NEWCOMERS} new objects among 10,000 queued refreshes",
            f"{took[round(0.99 * len(took)) - 1]:.2f} s",
        ),
        shown("their median; refreshes queued at the time (least)", f"{took[len(took) // 2]:.2f} s; {min(depths):.0f}"),
        shown("operator with 12,000 objects: CPU seconds, peak memory", usage(pid)),
    ]
