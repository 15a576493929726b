"""R142: no races in what reconciles. Everybody at once, asyncio's debug mode, every warning an error."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from typing import Any

import pytest

from kubebase.meta import ObjectKey
from kuberun.controller import Controller, ReconcileContext, Result

OBJECTS = 40
PEOPLE = 6
DEEDS = 40


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_many_people_at_once_never_make_one_key_run_twice(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 60.0  # how long something takes says nothing on a busy machine
    async with world.operator() as operator:
        watch = [Exclusive(controller) for controller in operator.manager._controllers]
        for number in range(OBJECTS):
            await world.add(f"one-{number}")

        async with asyncio.TaskGroup() as group:
            for number in range(PEOPLE):
                group.create_task(person(world, number))
        wrong = await world.settles()
    gc.collect()  # what was never awaited says so when it goes

    assert wrong == []
    assert [one.problems for one in watch if one.problems] == []
    assert sum(one.runs for one in watch) > OBJECTS
    complaints = [entry.getMessage() for entry in caplog.records if entry.name == "asyncio"]
    assert [text for text in complaints if not text.startswith("Using selector")] == []


async def person(world: Any, number: int) -> None:
    """Act without regard to the others; a missing object is not an error."""
    mine = [f"of-{number}-{index}" for index in range(3)]
    for name in mine:
        await world.add(name)
    for deed in range(DEEDS):
        match deed % 5:
            case 0:
                world.rotate()
            case 1:
                await world.meddle(world.one())
            case 2:
                await world.remove(mine[0])
                await world.add(mine[0])
            case _:
                await world.repoint(mine[deed % 3])


class Exclusive:
    """Stands between a controller and its reconciler, and sees whether one key is ever at work twice."""

    def __init__(self, controller: Controller) -> None:
        self._inner = controller._reconcile
        self._running: Counter[ObjectKey] = Counter()
        self._thread = threading.get_ident()
        self.problems: list[str] = []
        self.runs = 0
        controller._reconcile = self.reconcile

    async def reconcile(self, key: ObjectKey, ctx: ReconcileContext) -> Result:
        self.runs += 1
        self._running[key] += 1
        if self._running[key] > 1:
            self.problems.append(f"{key} runs twice")
        if threading.get_ident() != self._thread:
            self.problems.append(f"{key} runs in another thread")
        try:
            return await self._inner(key, ctx)
        finally:
            self._running[key] -= 1
