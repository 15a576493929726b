"""kill -9 of one of two replicas in the middle of a sync: the other one takes its shard over and finishes the work."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from kubebase.meta import JsonObject, Resource
from kubebase.testing.waiting import eventually
from kuberun.sharding import shard_of
from kuberun.testing.builders import NAMESPACES, SECRETS

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE.resource()
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CORE = "crash-core"
SHARDS = 2
NAME = "subject"


@dataclass(frozen=True, slots=True)
class Scene:
    """One namespace in each shard, and replicas with a Lease of their own."""

    arena: Any
    lease: str
    homes: tuple[str, ...]

    @property
    def flags(self) -> list[str]:
        timing = ["lease-duration=6s", "renew-deadline=4s", "retry-period=300ms", f"id={self.lease}"]
        return ["--enable-leader-election", f"--shards={SHARDS}", *(f"--leader-election-{each}" for each in timing)]

    async def prepare(self) -> None:
        for home in self.homes:
            await self.arena.create(NAMESPACES, home, "")
            spec = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
            await self.arena.create(STORES, "backend", home, spec=spec)

    async def sync(self, home: str) -> None:
        data = [{"secretKey": "password", "remoteRef": {"key": "db"}}]
        spec = {"refreshInterval": "1h", "secretStoreRef": {"name": "backend"}, "data": data}
        await self.arena.create(EXTERNAL_SECRETS, NAME, home, spec=spec)

    async def is_synced(self, home: str) -> bool:
        found = await self.arena.find(EXTERNAL_SECRETS, NAME, home)
        conditions = (found or {}).get("status", {}).get("conditions", [])
        secret = await self.arena.find(SECRETS, NAME, home)
        return any(each["status"] == "True" for each in conditions) and _text(secret) == {"password": "v1"}

    async def stores_are_ready(self) -> bool:
        found = [await self.arena.find(STORES, "backend", home) for home in self.homes]
        return all((each.get("status") or {}).get("conditions") for each in found)

    async def has_one_holder(self) -> bool:
        holders = [lease["spec"].get("holderIdentity") for lease in await self._leases()]
        return len(holders) == SHARDS and len(set(holders)) == 1

    async def kept_shard(self) -> str | None:
        """Return the shard that the first replica kept, once the second one has the other; None before."""
        leases = await self._leases()
        if len({lease["spec"].get("holderIdentity") for lease in leases} - {None}) < SHARDS:
            return None
        return next(str(number) for number, lease in enumerate(leases) if not lease["spec"]["leaseTransitions"])

    async def _leases(self) -> list[JsonObject]:
        found = [await self.arena.find(LEASES, f"{self.lease}-shard-{number}", CORE) for number in range(SHARDS)]
        return [lease for lease in found if lease is not None]


def _text(secret: JsonObject | None) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in ((secret or {}).get("data") or {}).items()}


def _names(prefix: str, shard: int) -> Iterator[str]:
    numbered = (f"{prefix}-{number}" for number in itertools.count())
    return (name for name in numbered if shard_of(name, SHARDS) == shard)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "repeated"),
    [
        pytest.param("before GetSecrets", 2, id="nothing is read"),
        pytest.param(f"after /secrets/{NAME}", 2, id="the Secret is written"),
        pytest.param(f"after /externalsecrets/{NAME}/status", 0, id="the status is written"),
    ],
)
async def test_whatever_call_is_the_last_of_a_replica_the_other_one_finishes_its_work(
    arena: Any, moment: str, repeated: int
) -> None:
    arena.provider.data["db"] = b"v1"
    lease = f"shards-{moment.rpartition('/')[2].rpartition(' ')[2].lower()}"
    scene = Scene(arena, lease, tuple(next(_names(lease, shard)) for shard in range(SHARDS)))
    await scene.prepare()
    other = arena.nursery.another()
    try:
        async with arena.nursery.life(CORE) as alone:
            assert await alone.until(scene.stores_are_ready)
        places = ",".join(scene.homes)
        async with arena.nursery.life(places, moment, scene.flags) as victim, AsyncExitStack() as later:
            await eventually(scene.has_one_holder, "the first replica does not take both shards")
            survivor = await later.enter_async_context(other.life(places, flags=scene.flags))
            home = scene.homes[int(await eventually(scene.kept_shard, "the replicas do not share the shards"))]
            await scene.sync(home)

            assert await survivor.until(lambda: scene.is_synced(home))
            await survivor.until_quiet()
            writes = [call for call in survivor.writes if f"/{home}/" in call and "/secretstores/" not in call]

            assert victim.exit_code is not None, "the replica that should die lives"
            assert len(writes) <= repeated, writes
    finally:
        other.close()
        for home in scene.homes:
            await arena.delete(NAMESPACES, home)
