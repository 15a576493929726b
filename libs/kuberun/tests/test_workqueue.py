"""The work queue: order, dedupe, delays, lanes, back-off."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubebase.backoff import ExponentialBackoff
from kubebase.meta import ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.workqueue import (
    FAIR_SHARE,
    Lane,
    LazyHeap,
    QueueClosedError,
    ReconcileRequest,
    WorkQueue,
    phase,
    until_phase,
)


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def request(name: str, lane: Lane = Lane.EVENT, reason: str = "") -> ReconcileRequest:
    return ReconcileRequest(key(name), reason, lane)


def queue_on(clock: VirtualClock) -> WorkQueue:
    return WorkQueue(clock, backoff=ExponentialBackoff(first=1, cap=60, jitter=0), draw=lambda: 0.0)


async def served(queue: WorkQueue, count: int) -> list[str]:
    names = []
    for _ in range(count):
        taken = await queue.take()
        queue.done(taken.key)
        names.append(taken.key.name)
    return names


def test_two_requests_for_a_key_are_the_same_whatever_their_reason() -> None:
    assert request("a", reason="store became ready") == request("a", Lane.REFRESH, reason="due")
    assert len({request("a", reason="x"), request("a", reason="y")}) == 1


async def test_requests_of_a_lane_are_served_in_order_of_arrival() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    for name in "abc":
        queue.add(request(name))
        await clock.advance(1)

    assert await served(queue, 3) == ["a", "b", "c"]


async def test_a_key_added_many_times_is_served_once() -> None:
    queue = queue_on(VirtualClock())
    for reason in ("", "one", "two", "one"):
        queue.add(request("a", reason=reason))

    taken = await queue.take()

    assert taken.reason == "one; two"
    assert queue.stats().depth[Lane.EVENT] == 0


async def test_a_key_that_waits_for_its_time_keeps_the_reasons_of_later_times() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("a", reason="retry"), after=1)
    queue.add(request("a", reason="store became ready"), after=2)
    await clock.advance(1)

    taken = await queue.take()

    assert taken.reason == "retry; store became ready"


async def test_reasons_are_bounded() -> None:
    queue = queue_on(VirtualClock())
    for number in range(1000):
        queue.add(request("a", reason=f"reason {number}"))

    taken = await queue.take()

    assert 200 < len(taken.reason) < 220


async def test_a_key_added_while_it_runs_is_served_again_afterwards_and_never_at_the_same_time() -> None:
    queue = queue_on(VirtualClock())
    queue.add(request("a"))
    running = await queue.take()
    queue.add(request("a", reason="changed meanwhile"))
    queue.add(request("b"))

    other = await queue.take()
    queue.done(running.key)
    again = await queue.take()

    assert other.key == key("b")
    assert again == running
    assert again.reason == "changed meanwhile"


async def test_take_waits_until_something_is_added() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    taking = asyncio.ensure_future(queue.take())
    await clock.settle()
    assert not taking.done()

    queue.add(request("a"))

    assert (await taking).key == key("a")


async def test_several_takers_each_get_another_key() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    takers = [asyncio.ensure_future(queue.take()) for _ in range(3)]
    await clock.settle()

    for name in "abc":
        queue.add(request(name))

    assert {taken.key.name for taken in await asyncio.gather(*takers)} == {"a", "b", "c"}


async def test_a_delayed_request_is_served_when_its_time_has_come() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("a"), after=3600)
    taking = asyncio.ensure_future(queue.take())

    await clock.advance(3599)
    assert not taking.done()
    await clock.advance(1)

    assert taking.done()
    assert queue.running() == {key("a"): 0}


@pytest.mark.parametrize("delays", [(10, 60), (60, 10)], ids=["earlier first", "earlier last"])
async def test_the_earliest_of_several_delays_wins(delays: tuple[float, float]) -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    for delay in delays:
        queue.add(request("a"), after=delay)

    await clock.advance(10)
    assert await served(queue, 1) == ["a"]
    await clock.advance(60)

    assert queue.stats().delayed == 0
    assert queue.waiting() == {}


async def test_an_earlier_delay_wakes_a_taker_that_already_waits_for_a_later_one() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("late"), after=100)
    taking = asyncio.ensure_future(queue.take())
    await clock.advance(1)

    queue.add(request("soon"), after=5)
    await clock.advance(5)

    assert (await taking).key == key("soon")


async def test_a_run_answers_the_timers_set_before_it_started() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("a"), after=60)
    queue.add(request("a"))

    await served(queue, 1)
    await clock.advance(60)

    assert queue.waiting() == {}


async def test_a_delay_that_ends_while_the_key_runs_makes_it_run_again() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("a"))
    running = await queue.take()
    queue.add(request("a"), after=5)
    await clock.advance(6)
    assert queue.waiting() == {}

    queue.done(running.key)

    assert (await queue.take()).key == key("a")


async def test_a_new_object_is_served_before_ten_thousand_refreshes() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    for number in range(10_000):
        queue.add(request(f"old-{number}", Lane.REFRESH))
    await clock.advance(600)
    await served(queue, 100)

    queue.add(request("new", Lane.FIRST_SYNC))

    assert "new" in await served(queue, 2), "at most one request of a worse lane goes first"


async def test_lanes_are_served_best_first() -> None:
    queue = queue_on(VirtualClock())
    for lane in reversed(Lane):
        queue.add(request(lane.name, lane))

    assert await served(queue, 4) == ["FIRST_SYNC", "SPEC_CHANGE", "EVENT", "REFRESH"]


async def test_no_lane_starves_under_a_flood_of_better_ones() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    for number in range(5):
        queue.add(request(f"refresh-{number}", Lane.REFRESH))
    names: list[str] = []

    for number in range(5 * FAIR_SHARE):
        await clock.advance(0.1)
        queue.add(request(f"new-{number}", Lane.FIRST_SYNC))
        names += await served(queue, 1)

    assert Counter(name.partition("-")[0] for name in names) == {"new": 5 * (FAIR_SHARE - 1), "refresh": 5}


@pytest.mark.parametrize(
    ("first", "second"),
    [(Lane.REFRESH, Lane.SPEC_CHANGE), (Lane.SPEC_CHANGE, Lane.REFRESH)],
    ids=["moves up", "stays up"],
)
async def test_a_key_queued_in_two_lanes_is_in_the_better_one(first: Lane, second: Lane) -> None:
    queue = queue_on(VirtualClock())
    queue.add(request("a", first))
    queue.add(request("a", second))

    depth = queue.stats().depth
    taken = await queue.take()

    assert depth == {Lane.FIRST_SYNC: 0, Lane.SPEC_CHANGE: 1, Lane.EVENT: 0, Lane.REFRESH: 0}
    assert taken.lane is Lane.SPEC_CHANGE


async def test_a_key_that_moves_up_keeps_its_age() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("patient", Lane.REFRESH))
    await clock.advance(50)
    queue.add(request("fresh", Lane.SPEC_CHANGE))
    queue.add(request("patient", Lane.SPEC_CHANGE))

    assert queue.stats().oldest_age == 50
    assert await served(queue, 2) == ["patient", "fresh"]


async def test_who_asks_again_while_it_waits_wants_to_know_how_it_is_now() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.add(ReconcileRequest(key("a"), lane=Lane.REFRESH))
    await clock.advance(5)
    requested_again = clock.monotonic()
    queue.add(ReconcileRequest(key("a"), lane=Lane.SPEC_CHANGE))
    await clock.advance(5)

    await queue.take()

    assert queue.requested_at(key("a")) == requested_again


async def failing(queue: WorkQueue, clock: VirtualClock, name: str, times: int, *, longest: float = 0.0) -> list[float]:
    """Return the delays of a key that fails at each attempt."""
    delays = []
    for _ in range(times):
        delays.append(queue.retry(request(name), longest=longest))
        await clock.advance(delays[-1])
    return delays


async def test_retries_back_off_for_each_key_on_its_own_until_it_is_forgotten() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)

    delays = await failing(queue, clock, "a", 3)
    other = queue.retry(request("b"))
    queue.forget(key("a"))
    after = queue.retry(request("a"))

    assert (delays, other, after) == ([1, 2, 4], 1, 1)


async def test_a_retry_of_one_key_may_back_off_beyond_the_cap_of_the_queue() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock, backoff=ExponentialBackoff(first=1, cap=2, jitter=0))

    patient = await failing(queue, clock, "a", 5, longest=10)
    plain = await failing(queue, clock, "b", 3)

    assert patient == [1, 2, 4, 8, 10]
    assert plain == [1, 2, 2]


async def test_failures_before_the_next_try_is_due_do_not_put_it_off() -> None:
    """A key that events wake repeatedly, and that fails each time, is still retried on its first schedule."""
    clock = VirtualClock()
    queue = queue_on(clock)
    await failing(queue, clock, "a", 2)

    woken = [queue.retry(request("a")) for _ in range(100)]
    await clock.advance(woken[-1])

    assert set(woken) == {4}
    assert queue.retry(request("a")) == 8


async def test_a_retry_waits_at_least_as_long_as_the_server_asked() -> None:
    queue = queue_on(VirtualClock())

    assert queue.retry(request("a"), at_least=30) == 30


async def test_a_failing_new_object_does_not_stand_before_one_never_tried() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.retry(request("failing", Lane.FIRST_SYNC))
    await clock.advance(10)

    queue.add(request("new", Lane.FIRST_SYNC))

    assert await served(queue, 2) == ["new", "failing"]


async def test_a_closed_queue_hands_out_nothing_and_takes_nothing() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    queue.add(request("a"))
    running = await queue.take()
    queue.add(request("b"))

    queue.close()
    queue.add(request("c"))
    queue.done(running.key)

    with pytest.raises(QueueClosedError):
        await queue.take()
    assert key("c") not in queue.waiting()


async def test_closing_wakes_a_waiting_taker() -> None:
    clock = VirtualClock()
    queue = queue_on(clock)
    taking = asyncio.ensure_future(queue.take())
    await clock.settle()

    queue.close()

    with pytest.raises(QueueClosedError):
        await taking


def test_timers_that_move_all_the_time_take_no_more_room_than_one_each() -> None:
    heap: LazyHeap[str] = LazyHeap()

    for round_ in range(10_000):
        heap.push(f"key-{round_ % 10}", 1e6 - round_)

    assert len(heap) == 10
    assert len(heap._heap) < 100


@given(uid=st.text(min_size=1), interval=st.floats(1, 1e6), now=st.floats(0, 4e9))
def test_the_phase_of_an_object_lies_in_its_interval_and_its_turns_do_not_depend_on_when_one_asks(
    uid: str, interval: float, now: float
) -> None:
    wait = until_phase(uid, interval, now)

    assert 0 <= phase(uid, interval) < interval
    assert 0 < wait <= interval
    turns = (now + wait - phase(uid, interval)) / interval
    assert turns == pytest.approx(round(turns), abs=1e-3)


def test_phases_of_many_objects_are_spread_evenly() -> None:
    slots = Counter(int(phase(f"uid-{number}", 10)) for number in range(10_000))

    assert set(slots) == set(range(10))
    assert max(slots.values()) < 1.2 * min(slots.values())


def test_the_phase_is_the_same_in_every_process() -> None:
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()

    assert phase("4f1d", 3600) == pytest.approx(1813.65, abs=0.01)
    assert until_phase("4f1d", 3600, noon) == pytest.approx(1813.65, abs=0.01)


class QueueModel(RuleBasedStateMachine):
    """Every added key is served, never twice at once, never too early; checked against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.queue = queue_on(self.clock)
        self.due: dict[ObjectKey, float] = {}
        self.running: set[ObjectKey] = set()

    def teardown(self) -> None:
        self.loop.close()

    names = st.sampled_from("abcdef")

    @rule(name=names, lane=st.sampled_from(Lane), delay=st.sampled_from([0, 0, 1, 5, 30]))
    def add(self, name: str, lane: Lane, delay: float) -> None:
        self.queue.add(request(name, lane), after=delay)
        due = self.clock.monotonic() + delay
        self.due[key(name)] = min(due, self.due.get(key(name), due))

    @rule(seconds=st.sampled_from([0.5, 1, 10]))
    def pass_time(self, seconds: float) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))

    def ready(self) -> set[ObjectKey]:
        now = self.clock.monotonic()
        return {name for name, due in self.due.items() if due <= now} - self.running

    @precondition(lambda self: self.ready())
    @rule()
    def take(self) -> None:
        taken = self.loop.run_until_complete(self.queue.take())
        assert taken.key in self.ready()
        del self.due[taken.key]
        self.running.add(taken.key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        finished = data.draw(st.sampled_from(sorted(self.running)))
        self.queue.done(finished)
        self.running.discard(finished)

    @invariant()
    def waits_exactly_for_what_is_ready(self) -> None:
        assert set(self.queue.waiting()) == self.ready()
        assert set(self.queue.running()) == self.running
        assert sum(self.queue.stats().depth.values()) == len(self.ready())


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- namespaces -------------------------------------------------------------------------------------------------------


def of(namespace: str, name: str, lane: Lane = Lane.FIRST_SYNC) -> ReconcileRequest:
    return ReconcileRequest(ObjectKey(namespace, name), lane=lane)


async def test_a_flood_of_one_namespace_delays_another_by_one_request() -> None:
    queue = queue_on(VirtualClock())
    for number in range(1000):
        queue.add(of("flood", str(number)))
    queue.add(of("small", "only"))
    assert "only" in await served(queue, 2)


async def test_a_namespace_whose_keys_run_for_long_leaves_places_to_others() -> None:
    queue = WorkQueue(VirtualClock(), max_running=10)
    for number in range(20):
        queue.add(of("slow", str(number)))
    running = [(await queue.take()).key for _ in range(8)]
    queue.add(of("quick", "only"))
    assert (await asyncio.wait_for(queue.take(), 1)).key.namespace == "quick"
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done(running[0])
    assert (await asyncio.wait_for(waiting, 30)).key.namespace == "slow"
