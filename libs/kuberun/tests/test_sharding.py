"""Sharding on virtual time: processes join, leave, die, freeze and disagree, and each object has one worker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubebase.meta import Object, ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.controller import Controller, Reconcile, ReconcileContext, Requeue, Result
from kuberun.informer import Informer
from kuberun.leader import LeaseSettings
from kuberun.manager import ComponentFailedError, Manager
from kuberun.permit import permitted
from kuberun.sharding import Sharding, ShardKeyFunction, ShardSettings, by_namespace, same_shard
from kuberun.testing.leases import LeaseClient, LeaseServer
from kuberun.testing.source import FakeCollection
from kuberun.triggers import itself

GROUP = ObjectKey("operators", "secrets")
TIMING = LeaseSettings(duration=15, renew_deadline=10.0, retry_period=2.0)
TAKEOVER = 22.0
"""The duration of a lease, two looks and the settling."""
HANDOVER = 10.0
KEYS = [ObjectKey(f"team-{number}", "app") for number in range(12)]


@dataclass
class World:
    """A cluster, and a record of who wrote for which object."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    server: LeaseServer = field(default_factory=LeaseServer)
    collection: FakeCollection = field(default_factory=FakeCollection)
    writes: list[tuple[str, ObjectKey]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for key in KEYS:
            self.collection.put(key.name, namespace=key.namespace)

    async def workers(self, seconds: float = 3.0) -> dict[ObjectKey, set[str]]:
        """Return the processes that wrote for each object in the next seconds."""
        self.writes.clear()
        await self.clock.advance(seconds)
        found: dict[ObjectKey, set[str]] = {}
        for name, key in self.writes:
            found.setdefault(key, set()).add(name)
        return found


class Process:
    """One process of the operator: its manager, its shards, and its network."""

    def __init__(
        self, world: World, name: str, shards: int, shard_key_of: ShardKeyFunction, reconcile: Reconcile | None
    ) -> None:
        self.name = name
        self.network = LeaseClient(world.server, world.clock)
        self.sharding = Sharding(
            self.network,
            GROUP,
            ShardSettings(shards, "shards-of", drain=5.0),
            clock=world.clock,
            identity=name,
            lease_settings=TIMING,
        )
        self.informer: Informer[Object] = Informer(world.collection, clock=world.clock, name="apps")
        self.controller = Controller("apps", reconcile or self._write, clock=world.clock, workers=32)
        self.controller.watch(self.informer, itself())
        self.sharding.add(self.controller, shard_key_of)
        self.manager = Manager(clock=world.clock, election=self.sharding)
        self.manager.add_controller(self.controller)
        self.task = asyncio.ensure_future(self.manager.run())
        self._world = world

    async def _write(self, key: ObjectKey, _: ReconcileContext) -> Result:
        await self._world.clock.sleep(0.05)
        if permitted():
            self._world.writes.append((self.name, key))
        return Requeue(1.0)

    def die(self) -> None:
        """Stop without a word, as by SIGKILL."""
        self.network.reachable = False
        self.task.cancel()

    def leads(self, shard: int) -> bool:
        return not self.task.done() and self.sharding.leads(shard)

    def works(self) -> bool:
        return not self.task.done() and bool(self.sharding.held)


@asynccontextmanager
async def process(
    world: World,
    name: str,
    *,
    shards: int = 4,
    shard_key_of: ShardKeyFunction = by_namespace,
    reconcile: Reconcile | None = None,
) -> AsyncIterator[Process]:
    started = Process(world, name, shards, shard_key_of, reconcile)
    try:
        yield started
    finally:
        started.die()
        with suppress(asyncio.CancelledError, ComponentFailedError):
            await _ended(world, started.task)


async def _ended(world: World, task: asyncio.Task[None]) -> None:
    for _ in range(100):
        if task.done():
            break
        await world.clock.advance(1.0)
    await task


async def test_one_process_works_on_all_shards() -> None:
    world = World()
    async with process(world, "a") as a:
        await world.clock.advance(HANDOVER)

        assert await world.workers() == {key: {"a"} for key in KEYS}
        assert a.sharding.held == {0, 1, 2, 3}


async def test_a_process_that_joins_gets_its_share_and_each_object_has_one_worker() -> None:
    world = World()
    async with process(world, "a") as a:
        await world.clock.advance(HANDOVER)
        async with process(world, "b") as b:
            await world.clock.advance(HANDOVER)

            found = await world.workers()
            assert [len(a.sharding.held), len(b.sharding.held)] == [2, 2]
            assert set(found) == set(KEYS)
            assert {len(names) for names in found.values()} == {1}
            assert {name for names in found.values() for name in names} == {"a", "b"}


async def test_the_shards_of_a_dead_process_are_taken_over_after_their_leases_ran_out() -> None:
    world = World()
    async with process(world, "a") as a, process(world, "b") as b:
        await world.clock.advance(HANDOVER)
        assert b.sharding.held
        b.die()

        await world.clock.advance(TAKEOVER)

        assert a.sharding.held == {0, 1, 2, 3}
        assert await world.workers() == {key: {"a"} for key in KEYS}


async def test_the_shards_of_a_stopped_process_are_taken_over_at_once() -> None:
    world = World()
    async with process(world, "a") as a, process(world, "b") as b:
        await world.clock.advance(HANDOVER)
        b.manager.stop()

        await world.clock.advance(HANDOVER)

        assert b.task.done()
        assert a.sharding.held == {0, 1, 2, 3}


async def test_the_last_process_leaves_no_lease_that_delays_the_next() -> None:
    world = World()
    async with process(world, "a") as a:
        await world.clock.advance(HANDOVER)
        a.manager.stop()
        await world.clock.advance(1.0)

    assert {world.server.holder(key) for key in world.server.leases} == {""}
    async with process(world, "leader", shards=2):
        await world.clock.advance(HANDOVER)
        assert await world.workers() == {key: {"leader"} for key in KEYS}


async def test_a_shard_is_released_only_after_its_running_reconciles_ended() -> None:
    world = World()
    going = asyncio.Event()

    async def slow(key: ObjectKey, _: ReconcileContext) -> Result:
        await going.wait()
        assert permitted()
        world.writes.append(("a", key))
        return Requeue(1.0)

    async with process(world, "a", reconcile=slow) as a:
        await world.clock.advance(HANDOVER)
        async with process(world, "b") as b:
            await world.clock.advance(4.5)
            assert not b.sharding.held, "it waits for the reconciles of the other process"
            going.set()
            await world.clock.advance(HANDOVER)

            assert len(a.sharding.held) == len(b.sharding.held) == 2


async def test_a_reconcile_that_hangs_is_cancelled_so_that_its_shard_moves() -> None:
    world = World()
    cancelled: set[ObjectKey] = set()

    async def hangs(key: ObjectKey, _: ReconcileContext) -> Result:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.add(key)
            raise
        return Requeue(1.0)

    async with process(world, "a", reconcile=hangs):
        await world.clock.advance(HANDOVER)
        async with process(world, "b") as b:
            await world.clock.advance(HANDOVER + 5.0)

            found = await world.workers()
            assert len(b.sharding.held) == 2
            assert cancelled
            assert set(found) >= cancelled


async def test_changes_while_nobody_held_the_shard_are_seen_by_the_next_holder() -> None:
    world = World()
    async with process(world, "a") as a, process(world, "b") as b:
        await world.clock.advance(HANDOVER)
        b.die()
        await world.clock.advance(1.0)
        fresh = [ObjectKey(f"team-{number}", "made-meanwhile") for number in range(12)]
        for key in fresh:
            world.collection.put(key.name, namespace=key.namespace)

        await world.clock.advance(TAKEOVER)

        assert a.sharding.held == {0, 1, 2, 3}
        assert set(await world.workers()) == {*KEYS, *fresh}


async def test_objects_that_are_placed_together_have_one_worker_for_all() -> None:
    world = World()
    async with process(world, "a", shard_key_of=same_shard), process(world, "b", shard_key_of=same_shard):
        await world.clock.advance(HANDOVER)

        found = await world.workers()

    assert set(found) == set(KEYS)
    assert len({name for names in found.values() for name in names}) == 1


async def test_processes_that_disagree_about_the_number_of_shards_never_work_at_the_same_time() -> None:
    world = World()
    async with process(world, "two", shards=2) as two:
        await world.clock.advance(HANDOVER)
        async with process(world, "three", shards=3) as three:
            await world.clock.advance(60.0)
            assert await world.workers() == {key: {"two"} for key in KEYS}
            assert not three.sharding.held

            two.manager.stop()
            await world.clock.advance(TAKEOVER)

            assert await world.workers() == {key: {"three"} for key in KEYS}


async def test_what_is_known_about_a_shard_is_forgotten_before_it_is_released() -> None:
    world = World()
    let_go: list[list[ObjectKey]] = []
    async with process(world, "a") as a:
        a.sharding.on_shard_released(lambda belongs: let_go.append([key for key in KEYS if belongs(key.namespace)]))
        await world.clock.advance(HANDOVER)
        async with process(world, "b"):
            await world.clock.advance(HANDOVER)
            others = {key for key, names in (await world.workers()).items() if names == {"b"}}

    assert {key for keys in let_go for key in keys} == others != set()


async def test_a_process_whose_lease_of_a_shard_is_taken_ends() -> None:
    world = World()
    async with process(world, "a") as a:
        await world.clock.advance(HANDOVER)
        key = ObjectKey(GROUP.namespace, f"{GROUP.name}-shard-1")
        stolen = world.server.get(key)
        world.server.write({**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief"}}, create=False)

        await world.clock.advance(5.0)

        with pytest.raises(ComponentFailedError, match="leader election failed: LeadershipLostError"):
            await a.task


async def test_the_leases_of_dead_members_are_deleted_and_those_of_shards_stay() -> None:
    world = World()
    async with process(world, "a"):
        async with process(world, "b"):
            await world.clock.advance(HANDOVER)
        await world.clock.advance(5 * TIMING.duration)

        names = sorted(key.name for key in world.server.leases)
        assert len([name for name in names if "-member-" in name]) == 1
        assert [name for name in names if "-shard-" in name] == [f"{GROUP.name}-shard-{number}" for number in range(4)]


async def test_a_process_that_ends_after_an_outage_leaves_its_peers_the_lease_that_they_share() -> None:
    world = World()
    async with process(world, "a") as a:
        await world.clock.advance(HANDOVER)
        a.network.hangs = True
        async with process(world, "b") as b:
            await world.clock.advance(5.0)
            a.network.hangs = False
            a.manager.stop()
            await world.clock.advance(TAKEOVER)

            assert a.task.done()
            assert b.sharding.held == {0, 1, 2, 3}


async def test_the_last_process_keeps_the_shared_lease_if_another_one_takes_it_while_it_leaves() -> None:
    world = World()
    async with process(world, "a") as a:
        await world.clock.advance(HANDOVER)
        taken = world.server.get(GROUP)
        world.server.write(taken, create=False)
        a.manager.stop()
        await world.clock.advance(1.0)

        assert a.task.done()
        assert world.server.holder(GROUP) == "4 shards"


async def test_a_process_that_leaves_before_it_worked_leaves_no_lease() -> None:
    world = World()
    async with process(world, "two", shards=2):
        await world.clock.advance(HANDOVER)
        before = set(world.server.leases)
        async with process(world, "three", shards=3) as three:
            await world.clock.advance(HANDOVER)
            assert set(world.server.leases) > before
            three.manager.stop()
            await world.clock.advance(HANDOVER)

            assert set(world.server.leases) == before


async def play(script: list[tuple[str, int, int]]) -> None:
    """Let faults happen, and check after each second that no shard and no division of the objects has two workers."""
    world = World()
    async with AsyncExitStack() as stack:
        standing = [await stack.enter_async_context(process(world, name)) for name in "abc"]
        rival = await stack.enter_async_context(process(world, "rival", shards=3))
        for fault, who, seconds in script:
            network = standing[who].network
            match fault:
                case "cut":
                    network.reachable = not network.reachable
                case "hang":
                    network.hangs = not network.hangs
                case "lose":
                    network.loses_responses = not network.loses_responses
                case _:
                    standing[who].manager.stop()
            for _ in range(seconds):
                await world.clock.advance(1.0)
                for shard in range(4):
                    assert sum(each.leads(shard) for each in standing) <= 1
                assert not (rival.works() and any(each.works() for each in standing))
        for each in standing:
            each.network.reachable, each.network.hangs, each.network.loses_responses = True, False, False
        await stack.enter_async_context(process(world, "late"))
        await world.clock.advance(3 * TAKEOVER)
        found = await world.workers()
        assert set(found) == set(KEYS), "some objects have no worker"
        assert {len(names) for names in found.values()} == {1}


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["cut", "hang", "lose", "stop"]), st.integers(0, 2), st.sampled_from([1, 4, 20])),
        max_size=8,
    )
)
def test_whatever_happens_no_object_has_two_workers_and_in_the_end_each_has_one(
    script: list[tuple[str, int, int]],
) -> None:
    asyncio.run(play(script))
