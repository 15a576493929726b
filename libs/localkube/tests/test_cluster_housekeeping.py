"""Periodic work, and controllers whose writes fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubebase.testing.clock import VirtualClock
from localkube.cluster import Cluster
from localkube.cluster.background import Background
from localkube.errors import conflict, internal
from localkube.storage import HistoryLimits, Key
from localkube.testing.verbs import Verbs, config_map


def event(name: str, **fields: Any) -> dict[str, Any]:
    involved = {"kind": "ConfigMap", "namespace": "default", "name": "a"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": involved,
        "reason": "Tested",
        **fields,
    }


async def test_recorded_events_live_for_an_hour_after_they_were_last_seen() -> None:
    clock = VirtualClock()
    async with Cluster(None, clock=clock) as cluster:
        verbs = Verbs(cluster)
        await verbs.create("events", event("once"))
        await verbs.create("events", event("again"))
        await clock.advance(1800)
        await verbs.patch("events", "again", {"count": 2, "lastTimestamp": "2030-01-01T00:30:00Z"})

        await clock.advance(1900)
        await verbs.until_gone("events", "once")
        left = await verbs.names("events")
        await clock.advance(1800)
        await verbs.until_gone("events", "again")

        assert left == ["again"]


async def test_old_history_is_compacted_by_the_clock() -> None:
    clock = VirtualClock()
    async with Cluster(None, clock=clock, limits=HistoryLimits(age=60)) as cluster:
        verbs = Verbs(cluster)
        await verbs.create("configmaps", config_map("a"))
        await verbs.until_idle()
        newest = cluster.store.revision

        await clock.advance(120)

        async def is_compacted() -> bool:
            return cluster.store.compacted == newest

        await verbs.until(is_compacted)
        assert await verbs.exists("configmaps", "a")


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(conflict("configmaps", "a", "changed"), id="a conflict"),
        pytest.param(internal("disk full"), id="a failed commit"),
        pytest.param(RuntimeError("broken"), id="a bug"),
    ],
)
async def test_background_work_is_tried_again(failure: Exception) -> None:
    clock = VirtualClock()
    background = Background(clock)
    failures = [failure]
    done: list[Key] = []

    async def job(key: Key) -> None:
        if failures:
            raise failures.pop()
        done.append(key)

    tasks = [asyncio.ensure_future(background.work()), asyncio.ensure_future(background.retry())]
    background.queue(job, Key("configmaps", "default", "a"))
    await clock.advance(0.5)
    first = list(done)
    await clock.advance(1)

    assert first == []
    assert done == [Key("configmaps", "default", "a")]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_queueing_twice_is_the_same_as_once() -> None:
    clock = VirtualClock()
    background = Background(clock)
    runs: list[Key] = []

    async def job(key: Key) -> None:
        runs.append(key)

    for _ in range(3):
        background.queue(job, Key("configmaps", "default", "a"))
    task = asyncio.ensure_future(background.work())
    await clock.settle()

    assert len(runs) == 1
    assert background.is_idle
    task.cancel()
    await asyncio.wait([task])
