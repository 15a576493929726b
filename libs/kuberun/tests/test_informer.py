"""The informer: whatever the network does, the cache and every consumer end up with the server's state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from kubebase.meta import Object, ObjectKey, Page, version_of
from kubebase.testing.clock import VirtualClock
from kuberun.cache import Change, Origin
from kuberun.errors import ApiError, Details, Gone, ServerError, Throttled, Unreachable
from kuberun.informer import Informer, Subscription
from kuberun.testing.source import FakeCollection, Fault
from kuberun.watch import WatchSettings

SETTINGS = WatchSettings(page_size=3)


@asynccontextmanager
async def informing(collection: FakeCollection, clock: VirtualClock) -> AsyncIterator[Informer[Object]]:
    informer = Informer(collection, clock=clock, name="things", settings=SETTINGS, draw=lambda: 0.5)
    running = asyncio.ensure_future(informer.run())
    try:
        yield informer
    finally:
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def summary(changes: list[Change[Object]]) -> list[tuple[str, str, str]]:
    def version(state: object) -> str:
        return version_of(state) if state is not None else ""

    return [(change.key.name, version(change.old), version(change.new)) for change in changes]


async def test_it_is_synced_when_the_whole_list_is_in_the_store() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    for number in range(10):
        collection.put(f"thing-{number}")

    async with informing(collection, clock) as informer:
        before = informer.synced
        await informer.wait_synced()

        assert (before, informer.synced) == (False, True)
        assert len(informer.cache) == 10


async def test_it_stays_synced_and_serves_the_old_state_while_the_server_is_away() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")

    async with informing(collection, clock) as informer:
        await clock.settle()
        collection.refusals.extend(Unreachable("gone") for _ in range(1000))
        collection.disturb(Fault.CUT)
        await clock.advance(900)

        assert informer.synced
        assert key("a") in informer.cache
        assert informer.age == 900


async def test_a_consumer_that_comes_late_gets_everything_first() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")

    async with informing(collection, clock) as informer:
        await clock.settle()
        late = informer.subscribe()

        [change] = await late.take()

    assert (change.key, change.old, change.origin) == (key("a"), None, Origin.LISTED)


async def test_a_new_object_is_delivered_before_the_many_that_existed_already() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    for number in range(1200):
        collection.put(f"old-{number}")

    async with informing(collection, clock) as informer:
        consumer = informer.subscribe()
        await clock.settle()
        first = await consumer.take()
        collection.put("new")
        collection.put("old-1199")
        collection.delete("old-1198")
        await clock.settle()
        second = await consumer.take()
        third = await consumer.take_within(1.0)

        assert second[0].key == key("new")
        assert [len(first), len(second), len(third)] == [500, 501, 199]
        assert {change.key for change in (*first, *second, *third)} == set(informer.cache.keys())
        assert third[-1] == Change(key("old-1199"), None, informer.cache.get(key("old-1199")), Origin.LISTED)
        assert await consumer.take_within(0.0) == []


async def test_a_slow_consumer_finds_one_change_per_key_and_delays_no_other() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")  # 101

    async with informing(collection, clock) as informer:
        slow, quick = informer.subscribe(), informer.subscribe()
        await clock.settle()
        await slow.take()
        await quick.take()
        seen = []
        for _ in range(50):
            collection.put("a")  # 102 ... 151
            await clock.settle()
            seen += summary(await quick.take())

        assert len(seen) == 50
        assert len(slow) == 1
        assert summary(await slow.take()) == [("a", "101", "151")]


async def test_an_object_that_came_and_went_unseen_is_not_mentioned() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with informing(collection, clock) as informer:
        consumer = informer.subscribe()
        await clock.settle()
        collection.put("a")
        collection.delete("a")
        collection.put("b")
        await clock.settle()

        assert [change.key for change in await consumer.take()] == [key("b")]


async def test_an_object_replaced_unseen_is_one_change_that_counts_as_created() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")

    async with informing(collection, clock) as informer:
        consumer = informer.subscribe()
        await clock.settle()
        await consumer.take()
        collection.delete("a")
        collection.put("a")
        await clock.settle()

        [change] = await consumer.take()

    assert change.created
    assert change.old is not None


async def test_a_resync_delivers_every_object_again_without_asking_the_server() -> None:
    clock, collection = VirtualClock(), FakeCollection()
    collection.put("a")
    collection.put("b")

    async with informing(collection, clock) as informer:
        consumer = informer.subscribe()
        await clock.settle()
        await consumer.take()
        calls = len(collection.calls)

        informer.resync()

        changes = await consumer.take()
    assert [(change.key.name, change.origin) for change in changes] == [("a", Origin.RESYNCED), ("b", Origin.RESYNCED)]
    assert len(collection.calls) == calls


async def test_a_resync_does_not_hide_a_change_that_is_still_unseen() -> None:
    clock, collection = VirtualClock(), FakeCollection()

    async with informing(collection, clock) as informer:
        consumer = informer.subscribe()
        await clock.settle()
        collection.put("a")
        await clock.settle()

        informer.resync()

        [change] = await consumer.take()
    assert change.created
    assert change.origin is Origin.WATCHED


# --- after any faults ------------------------------------------------------------------------------------------------

REFUSALS: list[ApiError] = [
    Unreachable("connection refused"),
    Gone(410, "Expired", "too old"),
    Throttled(429, "TooManyRequests", "slow down", Details(retry_after=3)),
    ServerError(500, "InternalError", "etcd is away"),
]

WRITES = st.tuples(st.sampled_from(["put", "put", "delete"]), st.sampled_from("abcdefgh"))
# What happens unseen: a fault on streams that are open and up to date, writes, and perhaps a compaction before the
# watch resumes.
OUTAGES = st.tuples(
    st.sampled_from(Fault), st.lists(WRITES, max_size=6), st.sampled_from(["history kept", "history compacted"])
)

ACTIONS = st.one_of(
    st.tuples(st.just("outage"), OUTAGES),
    st.tuples(st.just("outage"), OUTAGES),
    st.tuples(st.just("put"), st.sampled_from("abcdefgh")),
    st.tuples(st.just("put"), st.sampled_from("abcdefgh")),
    st.tuples(st.just("delete"), st.sampled_from("abcdefgh")),
    st.tuples(st.just("bookmark"), st.just("")),
    st.tuples(st.just("compact"), st.just("")),
    st.tuples(st.just("disturb"), st.sampled_from(Fault)),
    st.tuples(st.just("refuse"), st.sampled_from(REFUSALS)),
    st.tuples(st.just("malform"), st.sampled_from("abcdefgh")),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 5.0, 200.0])),
    st.tuples(st.just("consume"), st.just("")),
)


class Consumer:
    """Builds its own picture from the changes it takes, whenever it takes them."""

    def __init__(self, subscription: Subscription[Object]) -> None:
        self.subscription = subscription
        self.picture: dict[ObjectKey, str] = {}

    async def consume(self) -> None:
        for change in await self.subscription.take_within(0.001):
            assert change.old is None or change.key in self.picture, "told about the past of something unknown"
            if change.new is None:
                del self.picture[change.key]
            else:
                self.picture[change.key] = version_of(change.new)


async def play(actions: list[tuple[str, object]]) -> None:
    clock, collection = VirtualClock(), FakeCollection()
    async with informing(collection, clock) as informer:
        consumer = Consumer(informer.subscribe())
        for action in actions:
            await act(action, clock, collection, consumer)
        collection.refusals.clear()
        collection.disturb(Fault.END)
        await clock.advance(1000)
        await consume(clock, consumer)

        keys = informer.cache.keys()
        assert {name: version_of(informer.cache.get(name)) for name in keys} == collection.state()
        assert consumer.picture == collection.state()


async def act(action: tuple[str, object], clock: VirtualClock, collection: FakeCollection, consumer: Consumer) -> None:
    match action:
        case ("outage", (Fault() as fault, list(writes), history)):
            await clock.settle()
            collection.disturb(fault)
            for write in writes:
                await act(write, clock, collection, consumer)
            if history == "history compacted":
                collection.compact()
        case ("put", str(name)):
            collection.put(name)
        case ("delete", str(name)):
            collection.delete(name)
        case ("malform", str(name)):
            collection.malformed ^= {name}
        case ("bookmark", _):
            collection.bookmark()
        case ("compact", _):
            collection.compact()
        case ("disturb", Fault() as fault):
            collection.disturb(fault)
        case ("refuse", ApiError() as refusal):
            collection.refusals.append(refusal)
        case ("wait", float(seconds)):
            await clock.advance(seconds)
        case ("consume", _):
            await consume(clock, consumer)
        case _:
            raise AssertionError(action)


async def consume(clock: VirtualClock, consumer: Consumer) -> None:
    taking = asyncio.ensure_future(consumer.consume())
    await clock.advance(0.001)
    await taking


@settings(max_examples=300, deadline=None)
@given(st.lists(ACTIONS, max_size=40))
def test_after_any_interleaving_of_writes_and_faults_store_and_consumers_equal_the_server(
    actions: list[tuple[str, object]],
) -> None:
    asyncio.run(play(actions))


class Shrinking(FakeCollection):
    """Loses an object after its first page was delivered."""

    async def list_page(self, *, limit: int, continue_token: str, resource_version: str) -> Page[Object]:
        if continue_token:
            self.delete("thing-0")
        return await super().list_page(limit=limit, continue_token=continue_token, resource_version=resource_version)


async def test_objects_of_a_list_that_was_started_over_are_dropped_if_they_are_gone_by_then() -> None:
    clock, collection = VirtualClock(), Shrinking()
    for number in range(7):
        collection.put(f"thing-{number}")
    collection.refusals.extend([None, Gone(410, "Expired", "the continue token has expired")])

    async with informing(collection, clock) as informer:
        seen = informer.subscribe()
        await clock.settle()

        assert informer.synced
        assert informer.cache.keys() == tuple(key(f"thing-{number}") for number in range(1, 7))
        assert len(await seen.take()) == 6
