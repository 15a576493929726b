"""The controller: outcomes, failures, deadlines, feeds, draining."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext

import pytest
from structlog.testing import capture_logs

from kubebase.backoff import ExponentialBackoff
from kubebase.meta import Malformed, Object, ObjectKey, meta_of
from kubebase.testing.clock import VirtualClock
from kuberun.cache import Cache, Change
from kuberun.controller import Backoff, Controller, Done, Reconcile, ReconcileContext, Requeue, Result, parked
from kuberun.informer import Informer
from kuberun.permit import permitted
from kuberun.testing.source import FakeCollection
from kuberun.triggers import itself
from kuberun.workqueue import Lane, ReconcileRequest


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


class Recorder:
    """A reconcile that does what the test says and records when it was called."""

    def __init__(self, clock: VirtualClock, *outcomes: Result | BaseException) -> None:
        self._clock = clock
        self._outcomes = iter(outcomes)
        self.runs: list[tuple[str, float]] = []

    async def reconcile(self, name: ObjectKey, _: ReconcileContext) -> Result:
        self.runs.append((name.name, self._clock.monotonic()))
        outcome = next(self._outcomes, Done())
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@asynccontextmanager
async def controlling(
    clock: VirtualClock,
    reconcile: Reconcile,
    *,
    workers: int = 2,
    deadline: float = 300,
) -> AsyncIterator[Controller]:
    controller = Controller(
        "things",
        reconcile,
        clock=clock,
        workers=workers,
        deadline=deadline,
        backoff=ExponentialBackoff(first=1, cap=60, jitter=0),
    )
    running = asyncio.ensure_future(controller.run())
    try:
        yield controller
    finally:
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()


@pytest.mark.parametrize(
    ("outcomes", "times"),
    [
        pytest.param([Done()], [0], id="done: not again"),
        pytest.param([Requeue(90), Done()], [0, 90], id="after: again when the time has come"),
        pytest.param([Backoff("x"), Backoff("x"), Backoff("x"), Done()], [0, 1, 3, 7], id="retry: backs off"),
        pytest.param([Backoff("x", retry_after=30), Done()], [0, 30], id="retry: not before it was told"),
        pytest.param([Backoff("x"), Requeue(5), Backoff("x"), Done()], [0, 1, 6, 7], id="after: forgets the failures"),
        pytest.param([ValueError("x"), ValueError("x"), Done()], [0, 1, 3], id="an exception backs off, too"),
        pytest.param([asyncio.CancelledError(), Done()], [0, 1], id="even an unrequested cancellation"),
    ],
)
async def test_outcomes(outcomes: list[Result | BaseException], times: list[float]) -> None:
    clock = VirtualClock()
    recorder = Recorder(clock, *outcomes)

    async with controlling(clock, recorder.reconcile) as controller:
        controller.queue.add(ReconcileRequest(key("a")))
        await clock.advance(1000)

    assert recorder.runs == [("a", time) for time in times]


async def test_a_changed_spec_starts_with_a_short_back_off_again() -> None:
    clock = VirtualClock()
    recorder = Recorder(clock, *[Backoff("x")] * 6, Done())

    async with controlling(clock, recorder.reconcile) as controller:
        controller.queue.add(ReconcileRequest(key("a")))
        await clock.advance(16)  # runs at 0, 1, 3, 7 and 15
        controller.queue.add(ReconcileRequest(key("a"), "changed", Lane.SPEC_CHANGE))
        await clock.advance(100)

    assert [time for _, time in recorder.runs] == [0, 1, 3, 7, 15, 16, 17]


async def test_a_reconcile_knows_how_long_its_object_waits_if_it_fails() -> None:
    clock = VirtualClock()
    waits: list[float] = []

    async def reconcile(_: ObjectKey, ctx: ReconcileContext) -> Result:
        waits.append(ctx.longest_wait(0.0))
        return Backoff("x")

    async with controlling(clock, reconcile) as controller:
        controller.queue.add(ReconcileRequest(key("a")))
        await clock.advance(4)  # runs at 0, 1 and 3
        controller.queue.add(ReconcileRequest(key("a"), "changed", Lane.SPEC_CHANGE))
        await clock.advance(0)

    assert waits == [1, 2, 4, 1]


async def test_a_reconcile_that_runs_when_the_permit_ends_may_change_nothing_more() -> None:
    """A suspended leader wakes up in the middle of a reconcile, and another process holds its lease."""
    clock, leading, seen = VirtualClock(), [True], list[bool]()

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        seen.append(permitted())
        leading[0] = False
        seen.append(permitted())
        return Done()

    controller = Controller("test", reconcile, clock=clock)
    running = asyncio.ensure_future(controller.run(lambda: leading[0]))
    controller.queue.add(ReconcileRequest(key("a")))
    await clock.settle()
    controller.stop()
    await running

    assert seen == [True, False]
    assert permitted()


async def test_a_failure_is_logged_by_type_and_place_and_never_by_its_text() -> None:
    clock = VirtualClock()
    recorder = Recorder(clock, ValueError("password=CANARY"))

    with capture_logs() as logs:
        async with controlling(clock, recorder.reconcile) as controller:
            controller.queue.add(ReconcileRequest(key("a"), "store became ready"))
            await clock.settle()

    [failure] = [entry for entry in logs if entry["event"] == "reconcile failed"]
    assert failure["error"] == "ValueError"
    assert failure["place"].startswith("test_controller.py:")
    assert "CANARY" not in repr(logs)


async def test_a_reconcile_that_returns_no_outcome_is_a_failure_of_that_key_only() -> None:
    clock = VirtualClock()
    runs = []

    async def forgetful(name: ObjectKey, _: ReconcileContext) -> Result:
        runs.append(name.name)
        return None  # type: ignore[return-value] # the mistake under test

    async with controlling(clock, forgetful) as controller:
        controller.queue.add(ReconcileRequest(key("a")))
        controller.queue.add(ReconcileRequest(key("b")))
        await clock.advance(1)

    assert runs == ["a", "b", "a", "b"]


async def test_a_reconcile_that_takes_too_long_is_cancelled_and_retried() -> None:
    clock = VirtualClock()
    started = []

    async def stuck(_: ObjectKey, __: ReconcileContext) -> Result:
        started.append(clock.monotonic())
        if len(started) == 1:
            await asyncio.Event().wait()
        return Done()

    async with controlling(clock, stuck, deadline=30) as controller:
        controller.queue.add(ReconcileRequest(key("a")))
        await clock.advance(100)

    assert started == [0, 31]


async def test_as_many_run_at_a_time_as_there_are_workers_and_never_two_of_a_key() -> None:
    clock = VirtualClock()
    running: list[str] = []
    most = 0

    async def slow(name: ObjectKey, _: ReconcileContext) -> Result:
        nonlocal most
        assert name.name not in running
        running.append(name.name)
        most = max(most, len(running))
        await clock.sleep(1)
        running.remove(name.name)
        return Done()

    async with controlling(clock, slow, workers=3) as controller:
        for _ in range(5):
            for name in "abcdef":
                controller.queue.add(ReconcileRequest(key(name)))
            await clock.advance(0.7)
        await clock.advance(100)

    assert most == 3
    assert running == []


async def test_stopping_finishes_what_runs_and_starts_nothing_more() -> None:
    clock = VirtualClock()
    finished = []

    async def slow(name: ObjectKey, _: ReconcileContext) -> Result:
        await clock.sleep(10)
        finished.append(name.name)
        return Done()

    controller = Controller("things", slow, clock=clock, workers=2)
    running = asyncio.ensure_future(controller.run())
    for name in "abcd":
        controller.queue.add(ReconcileRequest(key(name)))
    await clock.advance(1)

    controller.stop()
    await clock.advance(60)

    assert running.done()
    assert finished == ["a", "b"]


async def test_overdue_keys_are_reported_the_worst_first() -> None:
    clock = VirtualClock()

    async def stuck(_: ObjectKey, __: ReconcileContext) -> Result:
        await asyncio.Event().wait()
        return Done()

    async with controlling(clock, stuck, workers=1) as controller:
        controller.queue.add(ReconcileRequest(key("running")))
        await clock.advance(5)
        controller.queue.add(ReconcileRequest(key("waiting")))
        await clock.advance(20)

        late = controller.overdue(limit=10)

    assert [(overdue.key.name, overdue.seconds, overdue.running) for overdue in late] == [
        ("running", 25, True),
        ("waiting", 20, False),
    ]


async def test_no_key_is_overdue_in_a_long_queue_that_moves() -> None:
    """A liveness probe must not restart an operator that works through 50,000 objects."""
    clock = VirtualClock()

    async def slow(_: ObjectKey, __: ReconcileContext) -> Result:
        await clock.sleep(9)
        return Done()

    async with controlling(clock, slow, workers=1) as controller:
        for number in range(10):
            controller.queue.add(ReconcileRequest(key(str(number))))
        await clock.advance(50)

        assert max(controller.queue.waiting().values()) == 50
        assert controller.overdue(limit=10) == []


async def test_changes_reach_the_queue_through_the_mapping_and_a_mapping_that_fails_is_tried_again() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    informer = Informer(collection, clock=clock, name="things")
    recorder = Recorder(clock)
    broken = {"bad"}

    def mapping(change: Change[Object]) -> Iterable[ReconcileRequest]:
        if change.key.name in broken:
            raise KeyError(change.key.name)
        return [ReconcileRequest(change.key)]

    informing = asyncio.ensure_future(informer.run())
    controller = Controller("things", recorder.reconcile, clock=clock)
    controller.watch(informer, mapping)
    running = asyncio.ensure_future(controller.run())
    for name in ("good", "bad", "better"):
        collection.put(name)
    await clock.advance(1)
    assert [name for name, _ in recorder.runs] == ["good", "better"]

    broken.clear()
    await clock.advance(60)

    assert [name for name, _ in recorder.runs] == ["good", "better", "bad"]
    for task in (running, informing):
        task.cancel()
    await asyncio.wait({running, informing})


async def test_an_object_that_changes_while_its_mapping_fails_is_mapped_once_when_it_works_again() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    informer = Informer(collection, clock=clock, name="things")
    requested: list[tuple[object, str]] = []
    broken = True

    def mapping(change: Change[Object]) -> Iterable[ReconcileRequest]:
        requested.append((change.old, meta_of(change.last).labels["turn"]))
        if broken:
            raise KeyError(change.key.name)
        return [ReconcileRequest(change.key)]

    controller = Controller("things", Recorder(clock).reconcile, clock=clock)
    controller.watch(informer, mapping)
    tasks = {asyncio.ensure_future(informer.run()), asyncio.ensure_future(controller.run())}
    for turn in "123":
        collection.put("bad", labels={"turn": turn})
        await clock.settle()
    broken = False
    await clock.advance(60)

    assert requested == [(None, turn) for turn in "1233"]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_controller_sees_the_effect_of_its_own_writes_and_comes_to_rest() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    class Labeller:
        def __init__(self, things: Cache[Object]) -> None:
            self._things = things

        async def reconcile(self, name: ObjectKey, _: ReconcileContext) -> Result:
            match self._things.get(name):
                case None:
                    return Done()
                case Malformed(error=error):
                    return Backoff(error)
                case thing if thing.metadata.labels.get("seen") == "true":
                    return Done()
                case _:
                    collection.put(name.name, labels={"seen": "true"})
                    return Done()

    informer = Informer(collection, clock=clock, name="things")
    controller = Controller("labeller", Labeller(informer.cache).reconcile, clock=clock)
    controller.watch(informer, itself())

    collection.put("before")
    tasks = {asyncio.ensure_future(informer.run()), asyncio.ensure_future(controller.run())}
    await clock.settle()
    collection.put("after")
    await clock.settle()

    labels = {obj.key.name: obj.metadata.labels for obj in informer.cache.objects()}
    assert labels == {"before": {"seen": "true"}, "after": {"seen": "true"}}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# --- waiting without a worker
# -------------------------------------------------------------------------------------------


async def test_a_parked_run_holds_no_worker() -> None:
    silence = asyncio.Event()
    through: list[str] = []

    async def reconcile(name: ObjectKey, _: ReconcileContext) -> Result:
        if name.namespace == "silent":
            async with parked():
                await silence.wait()
        through.append(name.name)
        return Done()

    async with controlling(VirtualClock(), reconcile, workers=1) as controller:
        for number in range(64):
            controller.queue.add(ReconcileRequest(ObjectKey("silent", str(number))))
        controller.queue.add(ReconcileRequest(ObjectKey("neighbour", "n")))
        await _until(lambda: through == ["n"])
        silence.set()
        await _until(lambda: len(through) == 65)


async def test_those_who_come_back_from_waiting_need_a_worker_again() -> None:
    silence, running, most = asyncio.Event(), 0, 0

    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        nonlocal running, most
        async with parked():
            await silence.wait()
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Done()

    async with controlling(VirtualClock(), reconcile, workers=3) as controller:
        for number in range(20):
            controller.queue.add(ReconcileRequest(key(str(number))))
        await _until(lambda: len(controller.queue.running()) == 20)
        silence.set()
        await _until(lambda: not controller.queue.running())
    assert most == 3


async def test_a_run_that_was_parked_twice_at_a_time_has_one_worker_afterwards() -> None:
    async def reconcile(_: ObjectKey, __: ReconcileContext) -> Result:
        async def wait() -> None:
            async with parked():
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for _number in range(5):
                group.create_task(wait())
        return Done()

    async with controlling(VirtualClock(), reconcile, workers=2) as controller:
        for number in range(20):
            controller.queue.add(ReconcileRequest(key(str(number))))
        await _until(lambda: not controller.queue.running() and not controller.queue.waiting())
        assert controller._workers.taken == 0


async def test_a_run_whose_object_is_gone_does_not_wait_any_longer() -> None:
    ended: list[str] = []

    async def reconcile(name: ObjectKey, _: ReconcileContext) -> Result:
        try:
            async with parked(cancel_if_deleted=True):
                await asyncio.Event().wait()
        finally:
            ended.append(name.name)
        return Done()

    controller = Controller("things", reconcile, clock=VirtualClock())
    mapped = controller._cancelling_runs(itself())
    running = asyncio.ensure_future(controller.run())
    controller.queue.add(ReconcileRequest(key("gone")))
    await _until(lambda: controller.queue.running() != {})
    list(mapped(Change(key("gone"), Object(), None)))
    await _until(lambda: ended == ["gone"] and not controller.queue.running())
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize("waits", [pytest.param(False, id="works"), pytest.param(True, id="waits for a write")])
async def test_a_run_is_not_ended_in_the_middle_of_something_when_its_object_is_gone(waits: bool) -> None:
    ended: list[str] = []
    going = asyncio.Event()

    async def reconcile(name: ObjectKey, _: ReconcileContext) -> Result:
        async with parked() if waits else nullcontext():
            await going.wait()
        ended.append(name.name)
        return Done()

    controller = Controller("things", reconcile, clock=VirtualClock())
    running = asyncio.ensure_future(controller.run())
    controller.queue.add(ReconcileRequest(key("gone")))
    await _until(lambda: controller.queue.running() != {})
    list(controller._cancelling_runs(itself())(Change(key("gone"), Object(), None)))
    going.set()
    await _until(lambda: ended == ["gone"])
    running.cancel()
    await asyncio.wait({running})


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.001)
