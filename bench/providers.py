"""Reads from a provider: batched compared with plain calls, and the cost of mutual TLS.

The provider is a scripted one behind a real gRPC server in this process, so the time includes the work of both sides.
All ratios compare two measurements of this run; rounds alternate, and the best of each counts.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry
from report import Row, ratio, shown

from eso_operator.providers.batching import ReadBatcher
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import BatchSettings, RuntimeSettings
from eso_operator.stores.resolved import BoundStore
from eso_testkit.operator.boundstores import bound_store, endpoint, wanted
from eso_testkit.operator.gateways import loopback, wired
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from kubebase.clock import SystemClock

READS = 1000
REPEATED = 20
ROUNDS = 3


def measure() -> list[Row]:
    return asyncio.run(_measure())


@dataclass(frozen=True, slots=True)
class Run:
    """The best time of several rounds, and the number of calls in one round."""

    seconds: float
    calls: float


async def _measure() -> list[Row]:
    async with wired(RuntimeSettings()) as remote:
        remote.provider.data = {f"key-{number}": b"x" * 64 for number in range(READS)}
        bound = bound_store(endpoint(remote.host.target))
        reads = ReadBatcher(
            remote.gateway,
            SystemClock(),
            settings=BatchSettings(),
            metrics=ProviderMetrics(CollectorRegistry()),
        )
        distinct = [f"key-{number}" for number in range(READS)]
        repeated = [f"key-{number % REPEATED}" for number in range(READS)]
        plain, batched, shared = await _compared(
            remote.provider,
            lambda: _plainly(remote.gateway, bound, distinct),
            lambda: _batched(reads, bound, distinct),
            lambda: _batched(reads, bound, repeated),
        )
        local = loopback()
        local.provider.data = dict(remote.provider.data)
        in_memory = await _best(local.provider, lambda: _plainly(local.gateway, bound_store(), distinct))
        await reads.close()
    return [
        ratio("1,000 reads of 1,000 keys: calls, plain / batched", plain.calls / batched.calls, at_least=10),
        ratio("1,000 reads of 1,000 keys: time, plain / batched", plain.seconds / batched.seconds, at_least=5),
        ratio("1,000 reads of 20 keys: calls, plain / batched", plain.calls / shared.calls, at_least=10),
        ratio("1,000 reads of 20 keys: time, plain / batched", plain.seconds / shared.seconds, at_least=5),
        ratio("single calls: mutual TLS and gRPC / in memory", plain.seconds / in_memory.seconds),
        shown("single calls over mutual TLS: each, microseconds", f"{plain.seconds / READS * 1e6:.0f}"),
    ]


async def _compared(provider: ScriptedProvider, *works: Callable[[], Awaitable[object]]) -> list[Run]:
    runs = [Run(float("inf"), 0.0) for _ in works]
    for _ in range(ROUNDS):
        for number, work in enumerate(works):
            once = await _once(provider, work)
            runs[number] = replace(once, seconds=min(once.seconds, runs[number].seconds))
    return runs


async def _best(provider: ScriptedProvider, work: Callable[[], Awaitable[object]]) -> Run:
    return (await _compared(provider, work))[0]


async def _once(provider: ScriptedProvider, work: Callable[[], Awaitable[object]]) -> Run:
    before = provider.calls.total()
    gc.collect()  # or one kind of work pays for the garbage of the one before
    started = time.perf_counter()
    await work()
    return Run(time.perf_counter() - started, provider.calls.total() - before)


async def _plainly(gateway: Gateway, bound: BoundStore, keys: Sequence[str]) -> None:
    await asyncio.gather(*(gateway.get(bound, wanted(key)) for key in keys))


async def _batched(reads: ReadBatcher, bound: BoundStore, keys: Sequence[str]) -> None:
    await asyncio.gather(*(reads.read(bound, wanted(key)) for key in keys))
