"""R145: many ExternalSecrets over fifty namespaces: all become ready, and what it took is on record.

`make nightly` runs a thousand of them; a quarter has the same paths to go.

Figures are printed, not judged: how fast a machine is says nothing about a change. The test only checks that every
ExternalSecret becomes ready. `make bench` measures the same on a real kube-apiserver, as ratios.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kuberun.testing.builders import NAMESPACES, document

OBJECTS = int(os.environ.get("ESO_SCALE_OBJECTS", "250"))
SPREAD = 50
AT_ONCE = 16
PATIENCE = 240.0
EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
STORES = CLUSTER_SECRET_STORE.resource()
STORE = "scale"


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 120)
async def test_many_objects_in_fifty_namespaces_become_ready(world: Any) -> None:
    clock, api = SystemClock(), world.bench.api
    names = [f"{world.bench.namespace}-{number}" for number in range(SPREAD)]
    await every(names, lambda name: api.post(NAMESPACES.path(), {"metadata": {"name": name}}))
    try:
        async with world.operator():
            await world.bench.create(STORES, STORE, spec={"provider": {"fake": {"data": []}}})
            await world.bench.ready(STORES, STORE, lambda condition: condition.status == "True")
            begun, cpu = clock.monotonic(), used()
            await every(range(OBJECTS), lambda number: created(api, names[number % SPREAD], number))
            applied = clock.monotonic() - begun

            ready = await until_ready(world, names)

            took, spent = clock.monotonic() - begun, used() - cpu
            reads = sum(len(batch) for batch in world.bench.host.provider.requests)
    finally:  # operators of other tests would go on with them
        await world.bench.delete(STORES, STORE)
        await every(names, lambda name: api.delete(EXTERNAL_SECRETS.path(name)))
        await every(names, lambda name: api.delete(NAMESPACES.path("", name)))

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(
        f"{OBJECTS} objects in {SPREAD} namespaces: applied in {applied:.1f} s, all ready after {took:.1f} s;"
        f" {reads} values read; {spent:.1f} CPU seconds and {peak} MiB of test, operator and provider together\n"
    )
    assert ready == OBJECTS


async def every(items: Any, act: Any) -> None:
    """A few at once, as a pipeline would."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> None:
        async with turns:
            answer = await act(item)
            assert answer.status in (200, 201), answer.body

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))


async def created(api: Any, namespace: str, number: int) -> Any:
    spec: JsonObject = {
        "refreshInterval": "1h",
        "secretStoreRef": {"kind": "ClusterSecretStore", "name": STORE},
        "data": [{"secretKey": "password", "remoteRef": {"key": f"remote-{number % 10}"}}],
    }
    return await api.post(
        EXTERNAL_SECRETS.path(namespace), document(EXTERNAL_SECRETS, f"one-{number}", namespace, spec=spec)
    )


async def until_ready(world: Any, names: list[str]) -> int:
    """Return how many are ready in the end."""
    clock = SystemClock()
    end = clock.monotonic() + PATIENCE
    while True:
        listed = await world.bench.api.get(EXTERNAL_SECRETS.path())
        ready = sum(is_ready(one) for one in listed.body["items"] if one["metadata"]["namespace"] in names)
        if ready == OBJECTS or clock.monotonic() > end:
            return ready
        await clock.sleep(0.5)


def is_ready(found: JsonObject) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
