"""Replicas that share the objects: how fast shards move, what that costs, and what a second replica adds.

Everything runs on this machine, so a second replica competes with the API server for its processors: the time for new
objects says what shards cost here, and not what they give on machines of their own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from report import Row, shown
from samples import OBJECTS, TEAMS, create_store, external_secret
from stage import CORE, ES, Served, Stage, operator, provider, until

from kubebase.meta import ObjectKey, Resource, key_of, raw
from kubebase.testing.servers import ServerFailedError
from kuberun.errors import NotFound
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets

LEASES = raw(Resource("coordination.k8s.io", "v1", "leases", "Lease"))
SHARDS = 2
FLAGS = ("--enable-leader-election", f"--shards={SHARDS}", "--leader-election-id=bench")
WATCHED_SECONDS = 20.0


def measure() -> list[Row]:
    try:
        assets = find_assets()
    except ServerFailedError:
        return [shown("shards", "not measured: run `make test-cluster` once")]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "kube").mkdir()
        kube = KubeApiserver(home / "kube", assets, controllers="")
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
                alone = await _first_sync(stage, "alone")
            with _replica(stage, served, 0), ExitStack() as second:
                await _shared_by(stage, 1)
                pid = second.enter_context(_replica(stage, served, 1))
                joined = await _shared_by(stage, 2)
                requests = await _lease_requests(stage)
                shared = await _first_sync(stage, "shared")
                os.kill(pid, signal.SIGKILL)
                taken_over = await _shared_by(stage, 1, synced="after")
            return [
                shown("a replica starts and gets its shard: seconds", f"{joined:.1f}"),
                Row(
                    "a replica is killed, until new objects of its shard are Ready: seconds",
                    f"{taken_over:.1f}",
                    "<= 25",
                    taken_over <= 25,
                ),
                shown("requests for Leases in a second, two replicas and two shards", f"{requests:.1f}"),
                shown("1,000 new objects until all are Ready, one replica: seconds", f"{alone:.1f}"),
                shown("the same with two replicas on the same two processors", f"{shared:.1f}"),
            ]
    finally:
        await stage.client.close()


@contextmanager
def _replica(stage: Stage, served: Served, number: int) -> Iterator[int]:
    with suppress(RuntimeError), operator(stage, served, flags=FLAGS, number=number) as pid:  # one of them is killed
        yield pid


async def _first_sync(stage: Stage, prefix: str) -> float:
    objects = [external_secret(number, prefix=prefix) for number in range(OBJECTS)]
    async with stage.readiness() as readiness:
        started = time.perf_counter()
        await stage.create([(ES, obj) for obj in objects])
        await readiness.of_all([key_of(obj) for obj in objects])
        return time.perf_counter() - started


async def _shared_by(stage: Stage, replicas: int, synced: str = "") -> float:
    """Return the seconds until so many replicas hold the shards, and a new object of each namespace is Ready."""
    started = time.perf_counter()

    async def shared() -> bool:
        return len(await _holders(stage)) == replicas

    if synced:
        async with stage.readiness() as readiness:
            objects = [external_secret(number, prefix=synced) for number in range(len(TEAMS))]
            await stage.create([(ES, obj) for obj in objects])
            await readiness.of_all([key_of(obj) for obj in objects])
    await until(shared, "the shards do not move")
    return time.perf_counter() - started


async def _holders(stage: Stage) -> set[str]:
    found = set()
    for number in range(SHARDS):
        try:
            lease = await stage.client.get(LEASES, ObjectKey(CORE, f"bench-shard-{number}"))
        except NotFound:
            return set()
        found.add(str(lease["spec"].get("holderIdentity") or f"free {number}"))
    return found


async def _lease_requests(stage: Stage) -> float:
    def count() -> int:
        return sum(count for (_, what), count in stage.requests().items() if what == "leases")

    before = count()
    await asyncio.sleep(WATCHED_SECONDS)
    return (count() - before) / WATCHED_SECONDS
