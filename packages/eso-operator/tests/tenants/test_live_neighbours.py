"""A tenant that hurts the system on purpose, and a neighbour that only wants one Secret. Real time on a real loop."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from eso_testkit.operator.operators import KIND_INFOS, Bench
from eso_testkit.operator.scenes import ES, STORES
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.values import Limits
from kubebase.clock import SystemClock
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import document
from kuberun.testing.heartbeat import short_collections

pytestmark = pytest.mark.live

CLOCK = SystemClock()
SLOW = "slow-"
"""Remote keys that begin so are those of the attack."""


@dataclass
class Uneven(ScriptedProvider):
    """Answers calls for the keys of the attack late, or never."""

    delay: float | None = None
    """None: never."""
    waiting: set[int] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    api_error_text: int = 0
    """Calls of the attack."""

    async def unary(self, method: str, request: bytes) -> bytes:
        if method.endswith("/GetSecrets") and SLOW.encode() in request:
            call = next(self._numbers)
            self.waiting.add(call)
            try:
                await (asyncio.Event().wait() if self.delay is None else asyncio.sleep(self.delay))
                self.api_error_text += 1
            finally:
                self.waiting.discard(call)
        return await super().unary(method, request)


@dataclass(slots=True)
class Street:
    """Two namespaces and their objects."""

    bench: Bench
    provider: Uneven
    crowd: str
    neighbour: str

    async def put(self, resource: Any, namespace: str, name: str, spec: dict[str, Any]) -> None:
        body = document(resource, name, namespace, spec=spec)
        answer = await self.bench.api.post(resource.path(namespace), body)
        assert answer.status == 201, answer.body

    async def store(self, namespace: str, name: str) -> None:
        spec = {"provider": {"fake": {"data": [{"key": name, "value": "v"}]}}}
        await self.put(STORES, namespace, name, spec)

    async def secret(self, namespace: str, name: str, store: str, *keys: str) -> None:
        data = [{"secretKey": f"k{number}", "remoteRef": {"key": key}} for number, key in enumerate(keys)]
        await self.put(ES, namespace, name, {"secretStoreRef": {"name": store}, "data": data})

    async def condition(self, namespace: str, name: str) -> dict[str, Any]:
        found = await self.bench.api.get(ES.path(namespace, name))
        conditions = (found.body.get("status") or {}).get("conditions") or [{}]
        return dict(conditions[0])

    async def first_sync(self, name: str) -> None:
        """Create an object of the neighbour and wait for its Secret."""
        await self.secret(self.neighbour, name, "store", "db")

        async def look() -> bool:
            return (await self.condition(self.neighbour, name)).get("status") == "True"

        await eventually(look, f"{name} is not ready", within=120)


@asynccontextmanager
async def street(bench: Bench, **provider: Any) -> AsyncIterator[Street]:
    uneven = Uneven(CLOCK, kinds=KIND_INFOS, data={"db": b"v"}, **provider)
    crowd, neighbour = (f"{name}-{secrets.token_hex(4)}" for name in ("crowd", "neighbour"))
    for namespace in (crowd, neighbour):
        answer = await bench.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert answer.status == 201, answer.body
    async with bench.operator():
        await bench.install(uneven)
        made = Street(bench, uneven, crowd, neighbour)
        await made.store(neighbour, "store")
        await made.first_sync("quiet")
        yield made
    for namespace in (crowd, neighbour):  # operators of later tests would go on with what is in them
        await bench.api.delete(ES.path(namespace))
        await bench.api.delete(STORES.path(namespace))
        await bench.api.delete(f"/api/v1/namespaces/{namespace}")


async def test_64_silent_backends_hold_up_no_other_object_and_end_with_their_objects(bench: Bench) -> None:
    async with street(bench) as scene:
        for number in range(64):
            await scene.store(scene.crowd, f"s{number}")
            await scene.secret(scene.crowd, f"e{number}", f"s{number}", f"{SLOW}{number}")
        await eventually(lambda: _soon(len(scene.provider.waiting) >= 32), "the attack did not begin")

        silent = set(scene.provider.waiting)

        await scene.first_sync("first")

        assert silent <= scene.provider.waiting, "the neighbour waited until a silent call ended, after 30 s"
        for number in range(64):
            await bench.api.delete(ES.path(scene.crowd, f"e{number}"))
        await eventually(lambda: _soon(not scene.provider.waiting), "calls go on for objects that are gone", within=15)


async def test_objects_with_thousands_of_entries_leave_call_slots_to_others(bench: Bench) -> None:
    async with street(bench, delay=1.0, limits=Limits(max_batch_items=10)) as scene:
        await scene.store(scene.crowd, "store")
        for number in range(4):
            await scene.secret(scene.crowd, f"e{number}", "store", *(f"{SLOW}{number}-{n}" for n in range(2000)))
        await eventually(lambda: _soon(len(scene.provider.waiting) >= 40), "the attack did not begin")

        before = scene.provider.api_error_text

        await scene.first_sync("first")

        assert scene.provider.waiting, "the attack was over too early to prove anything"
        assert scene.provider.api_error_text - before < 400, (
            "the neighbour waited for most of the 800 calls of the attack"
        )


async def test_an_object_that_reads_more_than_a_secret_can_hold_gets_an_error(bench: Bench) -> None:
    async with street(bench) as scene:
        scene.provider.data |= {f"large-{number}": b"x" * 4_000_000 for number in range(4)}
        await scene.store(scene.crowd, "store")
        await scene.secret(scene.crowd, "large", "store", *(f"large-{number}" for number in range(4)))

        async def told() -> bool:
            return "larger than 8 MiB in all" in (await scene.condition(scene.crowd, "large")).get("message", "")

        await eventually(told, "the condition does not say why", within=60)


async def test_values_that_no_secret_can_hold_are_refused_without_holding_up_others(bench: Bench) -> None:
    async with street(bench) as scene:
        scene.provider.data |= {f"large-{number}": bytes(4_000_000) for number in range(8)}
        await scene.store(scene.crowd, "store")
        for number in range(8):
            await scene.secret(scene.crowd, f"large-{number}", "store", f"large-{number}")

        async with longest_pause() as pauses:

            async def told() -> bool:
                found = [await scene.condition(scene.crowd, f"large-{number}") for number in range(8)]
                return all("larger than the 1048576 bytes" in each.get("message", "") for each in found)

            await eventually(told, "the conditions do not say why", within=60)

        assert max(pauses) < 0.6, "two digests of 4 MB take a second"
        assert "4000000 bytes in 1 keys" in (await scene.condition(scene.crowd, "large-0"))["message"]


@asynccontextmanager
async def longest_pause() -> AsyncIterator[list[float]]:
    """Collect how long the loop computes between two turns of a task that only sleeps.

    In seconds of this thread: on a busy machine the wall clock also counts the time of other processes.
    """
    pauses = [0.0]

    async def look() -> None:
        while True:
            begun = time.thread_time()
            await asyncio.sleep(0.01)
            pauses.append(time.thread_time() - begun)

    with short_collections():
        looking = asyncio.create_task(look())
        try:
            yield pauses
        finally:
            looking.cancel()


async def _soon(true: object) -> bool:
    return bool(true)
