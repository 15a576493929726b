"""The manager: order of start, draining, crashes, signals, leadership."""

import asyncio
import errno
import gc
import os
import signal
from collections.abc import Iterator

import aiohttp
import pytest

from kubebase.clock import SystemClock
from kubebase.meta import Object, ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.controller import Controller, Done, Reconcile, ReconcileContext, Result
from kuberun.errors import Unreachable
from kuberun.health import HealthServer
from kuberun.informer import Informer
from kuberun.manager import ComponentFailedError, Manager
from kuberun.testing.source import FakeCollection
from kuberun.triggers import itself
from kuberun.workqueue import ReconcileRequest


class World:
    """A manager with one informer and one controller, and a diary of events."""

    def __init__(self, reconcile: Reconcile | None = None) -> None:
        self.clock = VirtualClock()
        self.collection = FakeCollection()
        self.diary: list[str] = []
        self.informer: Informer[Object] = Informer(self.collection, clock=self.clock, name="things")
        self.controller = Controller("things", reconcile or self._note, clock=self.clock)
        self.controller.watch(self.informer, itself())

    async def _note(self, key: ObjectKey, _: ReconcileContext) -> Result:
        self.diary.append(f"reconciled {key.name}")
        return Done()

    def manager(self, election: "FakeElection | None" = None, *, drain: float = 25.0) -> Manager:
        manager = Manager(clock=self.clock, drain=drain, election=election)
        manager.add_controller(self.controller)
        return manager


class FakeElection:
    def __init__(self, diary: list[str]) -> None:
        self._diary = diary
        self._won = asyncio.Event()
        self._lost = asyncio.Event()
        self.leading = False

    def win(self) -> None:
        self._won.set()
        self.leading = True

    def lose(self) -> None:
        self._lost.set()

    async def run(self) -> None:
        await self._lost.wait()
        raise RuntimeError("the lease is lost")

    async def wait_acquired(self) -> None:
        await self._won.wait()

    async def release(self) -> None:
        self.leading = False
        self._diary.append("released")


async def test_controllers_start_when_the_caches_are_synced_and_not_before() -> None:
    world = World()
    world.collection.put("a")
    world.collection.refusals.append(Unreachable("not yet"))
    running = asyncio.ensure_future(world.manager().run())

    await world.clock.settle()
    assert world.diary == []
    await world.clock.advance(10)

    assert world.diary == ["reconciled a"]
    running.cancel()
    await asyncio.wait({running})


async def test_stopping_lets_running_work_finish_and_then_ends_everything() -> None:
    world = World()

    async def slow(key: ObjectKey, _: ReconcileContext) -> Result:
        await world.clock.sleep(10)
        world.diary.append(f"finished {key.name}")
        return Done()

    world.controller = Controller("things", slow, clock=world.clock)
    world.controller.watch(world.informer, itself())
    world.collection.put("a")
    manager = world.manager()
    running = asyncio.ensure_future(manager.run())
    await world.clock.advance(1)

    manager.stop()
    await world.clock.advance(1)
    assert not running.done()
    await world.clock.advance(10)

    await running
    assert world.diary == ["finished a"]
    assert world.collection.streams == 0


@pytest.mark.parametrize("how", ["deadline", "second stop"])
async def test_draining_ends_at_its_deadline_or_when_stopped_twice(how: str) -> None:
    world = World()

    async def stuck(_: ObjectKey, __: ReconcileContext) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            world.diary.append("cancelled")
        return Done()

    world.controller = Controller("things", stuck, clock=world.clock)
    world.controller.watch(world.informer, itself())
    world.collection.put("a")
    manager = world.manager(drain=25)
    running = asyncio.ensure_future(manager.run())
    await world.clock.advance(1)
    manager.stop()
    await world.clock.advance(24)
    assert (running.done(), world.diary) == (False, [])

    if how == "deadline":
        await world.clock.advance(1)
    else:
        manager.stop()
        await world.clock.settle()

    await running
    assert world.diary == ["cancelled"]


async def test_stopping_before_the_caches_are_synced_ends_at_once() -> None:
    world = World()
    world.collection.refusals.extend(Unreachable("never") for _ in range(1000))
    manager = world.manager()
    running = asyncio.ensure_future(manager.run())
    await world.clock.advance(60)

    manager.stop()
    await world.clock.settle()

    await running
    assert world.diary == []


async def test_a_standby_keeps_its_caches_warm_and_works_when_it_leads() -> None:
    world = World()
    world.collection.put("a")
    election = FakeElection(world.diary)
    running = asyncio.ensure_future(world.manager(election).run())
    await world.clock.settle()
    assert (world.informer.synced, world.diary) == (True, [])

    election.win()
    await world.clock.settle()

    assert world.diary == ["reconciled a"]
    running.cancel()
    await asyncio.wait({running})


async def test_the_lease_is_released_after_the_last_work_is_done() -> None:
    world = World()

    async def slow(_: ObjectKey, __: ReconcileContext) -> Result:
        await world.clock.sleep(5)
        world.diary.append("finished")
        return Done()

    world.controller = Controller("things", slow, clock=world.clock)
    world.controller.watch(world.informer, itself())
    world.collection.put("a")
    election = FakeElection(world.diary)
    election.win()
    manager = world.manager(election)
    running = asyncio.ensure_future(manager.run())
    await world.clock.advance(1)

    manager.stop()
    await world.clock.advance(10)

    await running
    assert world.diary == ["finished", "released"]


async def test_a_lost_lease_stops_all_work_at_once_and_is_named() -> None:
    world = World()

    async def stuck(_: ObjectKey, __: ReconcileContext) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            world.diary.append("cancelled")
        return Done()

    world.controller = Controller("things", stuck, clock=world.clock)
    world.controller.watch(world.informer, itself())
    world.collection.put("a")
    election = FakeElection(world.diary)
    election.win()
    running = asyncio.ensure_future(world.manager(election).run())
    await world.clock.settle()

    election.lose()
    await world.clock.settle()

    with pytest.raises(ComponentFailedError, match="leader election failed: RuntimeError at test_manager"):
        await running
    assert world.diary[0] == "cancelled"


async def test_nothing_starts_once_the_lease_may_be_lost_even_before_the_election_notices() -> None:
    world = World()
    election = FakeElection(world.diary)
    election.win()
    running = asyncio.ensure_future(world.manager(election).run())
    await world.clock.settle()

    election.leading = False  # a suspended process wakes up
    world.collection.put("a")
    await world.clock.advance(60)

    assert world.diary == []
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        pytest.param("raises", "service mailer failed: ValueError at test_manager.py", id="a service that raises"),
        pytest.param(
            "listens", r"service mailer failed: OSError \(Address already in use\)", id="a service whose port is taken"
        ),
        pytest.param("returns", "service mailer ended by itself", id="a service that returns"),
    ],
)
async def test_a_component_that_breaks_brings_everything_down_and_is_named(ends: str, message: str) -> None:
    world = World()
    manager = world.manager()

    async def breaking() -> None:
        await world.clock.sleep(5)
        if ends == "raises":
            raise ValueError("password=CANARY")
        if ends == "listens":
            raise OSError(errno.EADDRINUSE, "CANARY")

    manager.add_service("service mailer", breaking)
    running = asyncio.ensure_future(manager.run())
    await world.clock.advance(10)

    with pytest.raises(ComponentFailedError, match=message) as failure:
        await running
    assert "CANARY" not in str(failure.value)
    assert world.collection.streams == 0


async def test_probes_tell_when_the_caches_are_there() -> None:
    world = World()
    world.collection.refusals.append(Unreachable("not yet"))
    health = HealthServer(clock=world.clock, host="127.0.0.1", port=0)
    manager = Manager(clock=world.clock, health=health)
    manager.add_controller(world.controller)
    manager.add_watchdogs()
    running = asyncio.ensure_future(manager.run())
    port = await health.wait_listening()

    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        before = [(await session.get(path)).status for path in ("/livez", "/readyz")]
        await world.clock.advance(10)
        after = [(await session.get(path)).status for path in ("/livez", "/readyz")]

    assert (before, after) == ([200, 503], [200, 200])
    manager.stop()
    await running


async def test_a_failing_reconcile_does_not_bring_the_process_down() -> None:
    world = World()

    async def failing(_: ObjectKey, __: ReconcileContext) -> Result:
        raise ValueError("bad")

    world.controller = Controller("things", failing, clock=world.clock)
    manager = world.manager()
    running = asyncio.ensure_future(manager.run())
    world.controller.queue.add(ReconcileRequest(ObjectKey("default", "a")))

    await world.clock.advance(600)

    assert not running.done()
    manager.stop()
    await world.clock.settle()
    await running


@pytest.fixture
def collector_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("collector_as_before")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_signal_stops_the_process_in_good_order(number: signal.Signals) -> None:
    clock = SystemClock()
    reconciled = asyncio.Event()

    async def note(_: ObjectKey, __: ReconcileContext) -> Result:
        reconciled.set()
        return Done()

    controller = Controller("things", note, clock=clock)
    collection = FakeCollection()
    collection.put("a")
    controller.watch(Informer(collection, clock=clock, name="things"), itself())
    manager = Manager(clock=clock)
    manager.add_controller(controller)
    running = asyncio.ensure_future(manager.run_until_signalled())
    await reconciled.wait()

    os.kill(os.getpid(), number)

    await running
    assert collection.streams == 0
