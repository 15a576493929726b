"""Two replicas that share the objects of a live cluster: each object has one of them, and none is lost in a move."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_operator.settings import LeaderSettings, Settings
from eso_operator.wiring import Operator
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import ES, FAKE_STORE, STORES, CountedTransport, decoded
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_testkit.operator.storingprovider import StoringProvider, storing
from kubebase.meta import Condition, Resource
from kubebase.testing.waiting import eventually
from kuberun.sharding import shard_of
from kuberun.testing.builders import SECRETS

pytestmark = pytest.mark.live

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SHARDS = 2
LEASE = "shared"
TIMING = LeaderSettings(
    enabled=True, lease=LEASE, lease_duration=20.0, renew_deadline=15.0, retry_period=0.2, shards=SHARDS
)


@dataclass
class Replica:
    operator: Operator
    requests: CountedTransport


@dataclass
class Team:
    """A cluster with a provider, namespaces in each shard, and the replicas of one operator."""

    bench: Bench
    provider: ScriptedProvider
    terminating: tuple[Bench, ...]
    """One namespace in each shard."""
    replicas: list[Replica] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return replace(self.bench.settings, leader=TIMING)

    @asynccontextmanager
    async def replica(self) -> AsyncIterator[Replica]:
        counted: list[CountedTransport] = []

        def through(plain: Any) -> CountedTransport:
            counted.append(CountedTransport(plain))
            return counted[-1]

        async with self.bench.operator(self.settings, through=through) as operator:
            self.replicas.append(Replica(operator, counted[-1]))
            yield self.replicas[-1]

    async def until_divided(self) -> None:
        """Wait until two replicas hold one shard each."""

        async def divided() -> bool:
            return len(set(await self.holders())) == SHARDS

        await eventually(divided, "the shards are not divided")

    async def holders(self) -> list[str]:
        """The holder of each shard; unique text for a shard that is free."""
        found = [await self.bench.find(LEASES, f"{LEASE}-shard-{number}") for number in range(SHARDS)]
        return [each["spec"].get("holderIdentity", "") for each in found if each is not None]

    def writers_of(self, home: Bench) -> list[int]:
        """The replicas that wrote about objects of a namespace."""
        inside = f"/namespaces/{home.namespace}/"
        return [number for number, each in enumerate(self.replicas) if each.requests.writes(inside)]


def _names(prefix: str, shard: int) -> Iterator[str]:
    numbered = (f"s{number}" for number in itertools.count())
    return (name for name in numbered if shard_of(f"{prefix}-{name}", SHARDS) == shard)


@asynccontextmanager
async def team(bench: Bench, provider: ScriptedProvider) -> AsyncIterator[Team]:
    terminating = [await bench.tenant(next(_names(bench.namespace, shard))) for shard in range(SHARDS)]
    made = Team(bench, provider, tuple(terminating))
    async with made.replica():
        await bench.install(provider)  # the first replica issues the certificates
        yield made
    for home in terminating:  # operators of later tests must find no work here
        for resource in (ES, PUSH_SECRET.resource()):
            await bench.api.delete(resource.path(home.namespace))


def is_true(condition: Condition) -> bool:
    return condition.status == "True"


async def sync(home: Bench, name: str, remote: str) -> None:
    data = [{"secretKey": "password", "remoteRef": {"key": remote}}]
    await home.create(ES, name, spec={"secretStoreRef": {"name": "store"}, "data": data})
    await home.ready(ES, name, is_true)


async def test_each_object_is_synced_by_one_replica_and_each_store_is_validated_once(bench: Bench) -> None:
    provider = storing(data={"db": b"v1"})
    async with team(bench, provider) as made, made.replica():
        await made.until_divided()
        for home in made.terminating:
            await home.create(STORES, "store", spec=FAKE_STORE)
            await home.ready(STORES, "store", is_true)
            for number in range(3):
                await sync(home, f"db-{number}", "db")

        writers = [made.writers_of(home) for home in made.terminating]
        validated = [ref.namespace for ref in provider.validated]

    assert sorted(writers) == [[0], [1]]
    assert sorted(space for space in validated if space in {home.namespace for home in made.terminating}) == sorted(
        home.namespace for home in made.terminating
    )


async def test_the_objects_of_a_replica_that_stops_are_synced_by_the_other(bench: Bench) -> None:
    provider = storing(data={"db": b"v1", "other": b"o1"})
    async with team(bench, provider) as made, AsyncExitStack() as second:
        await second.enter_async_context(made.replica())
        await made.until_divided()
        for home in made.terminating:
            await home.create(STORES, "store", spec=FAKE_STORE)
            await sync(home, "db", "db")
        moved = next(home for home in made.terminating if made.writers_of(home) == [1])

        await second.aclose()
        await moved.patch(ES, "db", {"spec": {"data": [{"secretKey": "password", "remoteRef": {"key": "other"}}]}})

        async def changed() -> bool:
            found = await moved.find(SECRETS, "db")
            return found is not None and decoded(found) == {"password": "o1"}

        await eventually(changed, "no replica syncs the objects of the one that stopped")
        series = made.replicas[0].operator.metrics.exposition().decode()

    assert f'namespace="{moved.namespace}"' in series
    assert made.writers_of(moved) == [0, 1]


async def test_a_replica_that_gives_a_shard_away_forgets_its_objects(bench: Bench) -> None:
    provider = storing(data={"db": b"v1"})
    async with team(bench, provider) as made:
        for home in made.terminating:
            await home.create(STORES, "store", spec=FAKE_STORE)
            await sync(home, "db", "db")
        async with made.replica():
            await made.until_divided()
            first = made.replicas[0].operator
            terminating = {home.namespace for home in made.terminating}

            async def forgotten() -> bool:
                return len(terminating & {key.namespace for key, _ in first.memories.external_secrets.items()}) == 1

            await eventually(forgotten, "the objects of the shard that moved are still known")
            series = first.metrics.exposition().decode()

    assert len([home for home in terminating if f'name="db",namespace="{home}"' in series]) == 1


async def test_push_secrets_of_all_namespaces_have_the_same_replica_because_they_may_share_a_place(
    bench: Bench,
) -> None:
    provider: StoringProvider = storing()
    stores = CLUSTER_SECRET_STORE.resource()
    shared = f"shared-{bench.namespace}"
    async with team(bench, provider) as made, made.replica():
        await made.until_divided()
        await bench.create(stores, shared, spec=FAKE_STORE)
        await bench.ready(stores, shared, is_true)
        for home in made.terminating:
            await home.create(SECRETS, "source", data={"password": "djE="})
            spec = {
                "secretStoreRefs": [{"name": shared, "kind": "ClusterSecretStore"}],
                "selector": {"secret": {"name": "source"}},
                "data": [{"match": {"secretKey": "password", "remoteRef": {"remoteKey": home.namespace}}}],
            }
            await home.create(PUSH_SECRET.resource(), "push", spec=spec)
            await home.ready(PUSH_SECRET.resource(), "push", is_true)
        writers = {tuple(made.writers_of(home)) for home in made.terminating}
        await bench.delete(stores, shared)

    assert len(writers) == 1
    assert provider.values == {home.namespace: b"v1" for home in made.terminating}
