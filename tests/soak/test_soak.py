"""Faults of every kind for a while; then everything has converged, and nothing was lost."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubebase.testing.waiting import eventually
from kuberun.health import Healthy, no_overdue_keys

SECONDS = float(os.environ.get("ESO_SOAK_SECONDS", "10"))
OBJECTS = 60
FLAT_MIB = 48.0
FLAT_TASKS = 5 * OBJECTS  # some are reconciling while it is counted, each with a few tasks
OVERDUE = 5.0


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
async def test_all_objects_converge_after_trouble_of_every_kind(world: Any) -> None:
    async with world.operator() as operator:
        for number in range(OBJECTS):
            await world.add(f"one-{number}")
        assert await world.settles() == []
        before = footprint()

        async with asyncio.TaskGroup() as group:
            people = group.create_task(busy_people(world))
            await trouble(world)
            people.cancel()
        world.proxy.cut(everything=True)
        world.clock.offset = timedelta()  # a clock that is hours behind rightly rejects every certificate
        wrong = await world.settles()
        after = footprint()
        await eventually(lambda: caught_up(operator), f"keys stay overdue by more than {OVERDUE:g} s")

    measured = f"memory {before[0]:.1f} -> {after[0]:.1f} MiB, tasks {before[1]} -> {after[1]}"
    sys.stdout.write(f"soak of {SECONDS:g} s: {measured}\n")
    assert wrong == []
    assert after[0] - before[0] < FLAT_MIB
    assert after[1] - before[1] < FLAT_TASKS


async def caught_up(operator: Any) -> bool:
    return isinstance(await no_overdue_keys(operator.manager._controllers, OVERDUE)(), Healthy)


async def trouble(world: Any) -> None:
    """Something breaks every half second; the API server is compacted and restarted once in every round."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    rare = [world.server.compact, world.server.restart]
    turn = 0
    while loop.time() < end:
        await asyncio.sleep(world.chance.random())
        turn += 1
        match world.chance.randrange(6):
            case 0:
                world.proxy.freeze()
            case 1:
                async with world.proxy.blackout():
                    await asyncio.sleep(world.chance.random())
            case 2:
                await outage(world)
            case 3:
                world.clock.offset = timedelta(minutes=world.chance.choice([-120, -5, 0, 5, 120]))
            case _:
                world.proxy.cut()
        if turn % 6 == 0:
            await asyncio.to_thread(rare[turn // 6 % 2])


async def outage(world: Any) -> None:
    """The provider is killed, and back after a while as another instance."""
    host = world.bench.host
    await host.stop()
    await asyncio.sleep(2 * world.chance.random())
    host.provider.instance_id += "+"
    await host.start()


async def busy_people(world: Any) -> None:
    """They do not stop for an outage."""
    count = OBJECTS
    while True:
        await asyncio.sleep(0.05)
        match world.chance.randrange(5):
            case 0:
                count += 1
                name = world.one()
                await world.remove(name)
                await world.add(f"one-{count}")
            case 1:
                await world.repoint(world.one())
            case 2:
                await world.meddle(world.one())
            case _:
                world.rotate()


def footprint() -> tuple[float, int]:
    """Resident memory of this process in MiB, and its tasks except those of the proxy."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    tasks = [name for name in names if not name.startswith(("Proxy.", "_Connection."))]
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(tasks)
