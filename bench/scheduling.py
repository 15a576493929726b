"""What the loop scheduler and the reserved workers of `kuberun` give to a new object while a namespace is busy.

One controller without an API server: 2,000 refreshes of one namespace, each with three steps of 20 ms (as those of an
ExternalSecret with thousands of entries), and ten objects that are requested one after the other, with steps of 0.4 ms.
The same object requested as an event uses neither the reserved workers nor the precedence of urgent steps.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Coroutine, Hashable
from typing import Any, TypeVar

from report import Row, ratio, shown

from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey
from kuberun.controller import Controller, Done, ReconcileContext, Result, parked
from kuberun.loopscheduler import LoopScheduler
from kuberun.workqueue import Lane, ReconcileRequest

WORKERS, REFRESHES, OBJECTS, PAUSE = 32, 2000, 10, 0.2
HEAVY, LIGHT, WAIT = 0.02, 0.0004, 0.005

T = TypeVar("T")


class _Unscheduled(LoopScheduler):
    async def take(self, share: Hashable, work: Coroutine[Any, Any, T], *, urgent: bool = False) -> T:  # noqa: ARG002 - it keeps the signature
        return await work


def measure() -> list[Row]:
    urgent = asyncio.run(_median(LoopScheduler(), "other", Lane.FIRST_SYNC))
    unscheduled = asyncio.run(_median(_Unscheduled(), "other", Lane.FIRST_SYNC))
    own = asyncio.run(_median(LoopScheduler(), "busy", Lane.FIRST_SYNC))
    event = asyncio.run(_median(LoopScheduler(), "busy", Lane.EVENT))
    return [
        shown(
            "a new object of another namespace: median; without the loop scheduler",
            f"{urgent:.2f} s; {unscheduled:.2f} s",
        ),
        ratio("without the loop scheduler / with it", unscheduled / urgent, at_least=2),
        shown("a new object of the busy namespace: median; as an event", f"{own:.2f} s; {event:.2f} s"),
        ratio("as an event / as an urgent request", event / own, at_least=1.5),
    ]


async def _median(scheduler: LoopScheduler, namespace: str, lane: Lane) -> float:
    """Return the median of the seconds from the request for an object to the end of its reconcile."""
    requested: dict[ObjectKey, float] = {}
    took: list[float] = []

    async def reconcile(key: ObjectKey, _: ReconcileContext) -> Result:
        step = LIGHT if key in requested else HEAVY
        _compute(step)
        async with parked():  # a call to a provider
            await asyncio.sleep(WAIT)
        _compute(step)
        await asyncio.sleep(WAIT)  # a write
        _compute(step)
        if key in requested:
            took.append(time.perf_counter() - requested[key])
        return Done()

    controller = Controller("things", reconcile, clock=SystemClock(), workers=WORKERS, scheduler=scheduler)
    for number in range(REFRESHES):
        controller.queue.add(ReconcileRequest(ObjectKey("busy", str(number)), lane=Lane.REFRESH))
    running = asyncio.ensure_future(controller.run())
    await asyncio.sleep(0.5)
    for number in range(OBJECTS):
        key = ObjectKey(namespace, f"new-{number}")
        requested[key] = time.perf_counter()
        controller.queue.add(ReconcileRequest(key, lane=lane))
        await asyncio.sleep(PAUSE)
    while len(took) < OBJECTS:  # noqa: ASYNC110 - the reconciles need the loop meanwhile
        await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.wait({running})
    return statistics.median(took)


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
