"""New ExternalSecrets at a steady pace, and how long each takes from its creation until it is Ready.

A watch with a label selector delivers only the newcomers, so that the benchmark itself needs little processor time. A
bare client makes three writes every second, as many as a newcomer needs: how long these take shows how busy the
machine and its API server are without the operator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from stage import CORE, ES, Stage, is_ready

from kubebase.backoff import ExponentialBackoff
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, ObjectKey, Resource, key_of, raw
from kuberun import config
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.requests import Selection
from kuberun.source import ResourceSource
from kuberun.transport import AiohttpTransport
from kuberun.watch import WatchSettings

PACE = 0.5
"""Seconds between two newcomers."""
GRACE = 60.0
"""Seconds that the last newcomers get after the end of a scenario. Those that need longer are lost."""
LABELS = {"bench": "newcomer"}
CONFIG_MAPS = raw(Resource("", "v1", "configmaps", "ConfigMap"))

_NUMBERS = count()
_WATCH = WatchSettings(backoff=ExponentialBackoff(first=0.05, cap=0.1))

Make = Callable[[int], JsonObject]


@dataclass(slots=True)
class Newcomers:
    """The newcomers of one scenario."""

    took: list[float] = field(default_factory=list)
    """Seconds from creation to Ready, of those that became Ready."""
    refused: int = 0
    """Creations that the API server did not answer."""
    waiting: dict[ObjectKey, float] = field(default_factory=dict)
    bare: list[float] = field(default_factory=list)
    """Seconds that three writes of a bare client took."""

    @property
    def text(self) -> str:
        """Return p50, p99 and the longest latency in seconds, with the number of newcomers."""
        lost = f", {len(self.waiting)} lost" if self.waiting else ""
        if not self.took:
            return f"none{lost}"
        took = sorted(self.took)
        bare = sorted(self.bare) or [0.0]
        compared = f"bare writes {part(bare, 50):.2f} / {part(bare, 99):.2f}"
        return f"{part(took, 50):.2f} / {part(took, 99):.2f} / {took[-1]:.2f} ({len(took)}{lost}); {compared}"

    def within(self, seconds: float) -> bool:
        """Return whether 99 of 100 newcomers were Ready in that time."""
        everyone = sorted([*self.took, *(GRACE for _ in self.waiting)])
        return bool(everyone) and part(everyone, 99) < seconds


def part(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


@asynccontextmanager
async def arriving(stage: Stage, make: Make) -> AsyncIterator[Newcomers]:
    """Create newcomers while the block runs, and wait for the last ones afterwards."""
    newcomers = Newcomers()
    transport = AiohttpTransport(config.load(stage.kube.kubeconfig))
    client = Client(transport)
    source = ResourceSource(transport, ES, Selection(label_selector="bench=newcomer"))
    informer = Informer(source, clock=SystemClock(), name="newcomers", settings=_WATCH)
    try:
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(informer.run()), group.create_task(_follow(informer, newcomers))]
            await informer.wait_synced()
            creating = [
                group.create_task(each) for each in (_create(client, newcomers, make), _bare(client, newcomers))
            ]
            try:
                yield newcomers
            finally:
                for task in creating:
                    task.cancel()
                deadline = time.perf_counter() + GRACE
                while newcomers.waiting and time.perf_counter() < deadline:  # noqa: ASYNC110 - its end is a deadline
                    await asyncio.sleep(0.1)
                for task in watching:
                    task.cancel()
    finally:
        await client.close()


async def _create(client: Client, newcomers: Newcomers, make: Make) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(_create_one(client, newcomers, make(next(_NUMBERS))))
            await asyncio.sleep(PACE)


async def _bare(client: Client, newcomers: Newcomers) -> None:
    while True:
        began = time.perf_counter()
        try:
            for _ in range(3):
                metadata = {"name": f"bare-{next(_NUMBERS)}", "namespace": CORE}
                await client.create(CONFIG_MAPS, {"metadata": metadata, "data": {"key": "value"}})
        except (ApiError, OSError):
            pass
        else:
            newcomers.bare.append(time.perf_counter() - began)
        await asyncio.sleep(1.0)


async def _create_one(client: Client, newcomers: Newcomers, obj: JsonObject) -> None:
    obj["metadata"]["labels"] = LABELS
    key = key_of(obj)
    newcomers.waiting[key] = time.perf_counter()
    try:
        await client.create(ES, obj)
    except (ApiError, OSError):
        newcomers.refused += 1
        newcomers.waiting.pop(key, None)
    except asyncio.CancelledError:  # the scenario ended before the API server had the object: it may not exist
        newcomers.waiting.pop(key, None)
        raise


async def _follow(informer: Informer[JsonObject], newcomers: Newcomers) -> None:
    subscription = informer.subscribe()
    while True:
        for change in await subscription.take():
            if not isinstance(change.new, dict) or not is_ready(change.new):
                continue
            if (since := newcomers.waiting.pop(change.key, None)) is not None:
                newcomers.took.append(time.perf_counter() - since)
