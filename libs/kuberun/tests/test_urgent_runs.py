"""New objects and changed specs do not wait for refreshes, whether these are queued, running or about to resume."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kubebase.meta import ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.controller import Controller, Done, Reconcile, ReconcileContext, Result, parked
from kuberun.loopscheduler import LoopScheduler
from kuberun.workqueue import Lane, ReconcileRequest, WorkQueue

STEP = 0.0001
"""Seconds that each step of a reconcile takes, on every machine."""


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


@asynccontextmanager
async def controlling(reconcile: Reconcile, *, workers: int) -> AsyncIterator[Controller]:
    seconds = itertools.count(step=STEP)
    scheduler = LoopScheduler(lambda: next(seconds))
    controller = Controller("things", reconcile, clock=VirtualClock(), workers=workers, scheduler=scheduler)
    running = asyncio.ensure_future(controller.run())
    try:
        yield controller
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - runs of the loop are all that is waited for
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("lane", "overtakes"),
    [
        pytest.param(Lane.FIRST_SYNC, True, id="a new object finds a worker that is kept for it"),
        pytest.param(Lane.SPEC_CHANGE, True, id="a changed spec, too"),
        pytest.param(Lane.EVENT, False, id="other events wait for a worker"),
        pytest.param(Lane.REFRESH, False, id="refreshes wait for a worker"),
    ],
)
async def test_some_workers_are_kept_for_urgent_runs(lane: Lane, overtakes: bool) -> None:
    slow, begun = asyncio.Event(), []

    async def reconcile(name: ObjectKey, _: ReconcileContext) -> Result:
        begun.append(name.name)
        await slow.wait()
        return Done()

    async with controlling(reconcile, workers=8) as controller:
        for number in range(100):
            controller.queue.add(ReconcileRequest(key(str(number)), lane=Lane.REFRESH))
        await _until(lambda: len(begun) == 6)
        controller.queue.add(ReconcileRequest(key("other"), lane=lane))
        await asyncio.sleep(0.01)

        assert ("other" in begun) is overtakes
        slow.set()
        await _until(lambda: len(begun) == 101)


async def test_an_urgent_run_that_resumes_overtakes_all_others_that_resume() -> None:
    responded, resumed, most, at_work = asyncio.Event(), [], 0, 0

    async def reconcile(name: ObjectKey, _: ReconcileContext) -> Result:
        nonlocal most, at_work
        async with parked():
            await responded.wait()
        at_work += 1
        most = max(most, at_work)
        resumed.append(name.name)
        await asyncio.sleep(0)
        at_work -= 1
        return Done()

    async with controlling(reconcile, workers=4) as controller:
        for number in range(200):
            controller.queue.add(ReconcileRequest(ObjectKey(f"team-{number}", "old"), lane=Lane.REFRESH))
        await _until(lambda: len(controller.queue.running()) == 200)
        controller.queue.add(ReconcileRequest(ObjectKey("newcomers", "new"), lane=Lane.FIRST_SYNC))
        await _until(lambda: len(controller.queue.running()) == 201)
        responded.set()
        await _until(lambda: len(resumed) == 201)

    assert resumed.index("new") < 10
    assert most == 4


async def test_urgent_runs_use_all_workers() -> None:
    slow, begun = asyncio.Event(), []

    async def reconcile(name: ObjectKey, _: ReconcileContext) -> Result:
        begun.append(name.name)
        await slow.wait()
        return Done()

    async with controlling(reconcile, workers=8) as controller:
        for number in range(20):
            controller.queue.add(ReconcileRequest(key(str(number)), lane=Lane.FIRST_SYNC))
        await _until(lambda: len(begun) == 8)
        slow.set()
        await _until(lambda: len(begun) == 20)


def test_an_urgent_take_leaves_all_other_requests() -> None:
    queue = WorkQueue(VirtualClock())
    for lane in (Lane.REFRESH, Lane.EVENT, Lane.SPEC_CHANGE, Lane.FIRST_SYNC):
        queue.add(ReconcileRequest(key(lane.name), lane=lane))

    taken = [queue.take_urgent() for _ in range(3)]

    assert [request.key.name if request else "" for request in taken] == ["FIRST_SYNC", "SPEC_CHANGE", ""]
    assert set(queue.waiting()) == {key("EVENT"), key("REFRESH")}


def test_while_all_places_are_taken_no_request_is_taken() -> None:
    queue = WorkQueue(VirtualClock(), max_running=2)
    for name in "abc":
        queue.add(ReconcileRequest(ObjectKey(name, name), lane=Lane.FIRST_SYNC))
    running = [queue.take_now(), queue.take_now()]

    assert None not in running
    assert (queue.take_now(), queue.take_urgent()) == (None, None)
    queue.done(ObjectKey("a", "a"))
    assert queue.take_urgent() is not None
