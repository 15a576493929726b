"""What a run has read is freed with the run."""

import asyncio
import gc
import weakref
from contextvars import ContextVar

from kubebase.meta import ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.controller import Controller, Done, ReconcileContext, Result
from kuberun.workqueue import ReconcileRequest


class Read:
    """A value that a reconcile has read."""


READ: ContextVar[Read] = ContextVar("read")


async def test_what_a_run_has_read_is_freed_when_it_ends_and_not_by_the_garbage_collector() -> None:
    clock = VirtualClock()
    left: list[weakref.ref[Read]] = []

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        READ.set(Read())
        left.append(weakref.ref(READ.get()))
        await asyncio.sleep(0)
        return Done()

    controller = Controller("things", reconcile, clock=clock)
    gc.disable()
    running = asyncio.ensure_future(controller.run())
    try:
        controller.queue.add(ReconcileRequest(ObjectKey("default", "a")))
        await clock.advance(1)

        assert [each() for each in left] == [None]
    finally:
        gc.enable()
        running.cancel()
        await asyncio.wait({running})
