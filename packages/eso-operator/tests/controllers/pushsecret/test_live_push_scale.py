"""Many PushSecrets that do not change, for an interval and more: no write to the backend, none to the API server.

ESO_PUSH_SCALE=1000x50    how many, over how many namespaces
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_testkit.operator.operators import Bench
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import StoringProvider, storing
from eso_testkit.operator.transports import Between
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.requests import Request
from kuberun.testing.builders import NAMESPACES, SECRETS, document
from kuberun.transport import Transport

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

PUSHES = PUSH_SECRET.resource()
CLUSTER_STORES = CLUSTER_SECRET_STORE.resource()
FAKE: JsonObject = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
SCALE = os.environ.get("ESO_PUSH_SCALE", "100x10")
LONG = 900.0


@dataclass
class WritesCounted(Between):
    """Notes everything that the operator writes about one test's objects, recorded events included."""

    inner: Transport
    mark: str
    writes: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        if request.method != "GET" and self.mark in request.path:
            self.writes.append(f"{request.method} {request.path}")
        return await self.inner.request(request)


@dataclass(slots=True)
class Crowd:
    """`count` PushSecrets, evenly over namespaces that carry the mark."""

    bench: Bench
    mark: str
    count: int
    terminating: list[str]
    interval: int

    @staticmethod
    def of(bench: Bench, scale: str) -> Crowd:
        count, _, namespaces = scale.partition("x")
        mark = secrets.token_hex(4)
        terminating = [f"push-{mark}-{number}" for number in range(int(namespaces))]
        # Long enough that a slow machine gets through all of them.
        return Crowd(bench, mark, int(count), terminating, max(2, int(count) // 50))

    @property
    def keys(self) -> set[str]:
        return {f"{self.mark}/{number}" for number in range(self.count)}

    async def settle(self) -> None:
        await self.bench.create(CLUSTER_STORES, self.mark, spec=FAKE)
        async with asyncio.TaskGroup() as group:
            for turn in range(len(self.terminating)):
                group.create_task(self._furnish(turn))

    async def all_ready(self) -> bool:
        ready = 0
        for home in self.terminating:
            for found in (await self.bench.api.get(PUSHES.path(home))).body["items"]:
                conditions = found.get("status", {}).get("conditions", [])
                ready += any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
        return ready == self.count

    async def leave(self) -> None:
        for home in self.terminating:
            await self.bench.api.delete(PUSHES.path(home))
            await self.bench.api.delete(NAMESPACES.path("", home))
        await self.bench.api.delete(CLUSTER_STORES.path("", self.mark))

    async def _furnish(self, turn: int) -> None:
        home = self.terminating[turn]
        await self._post(NAMESPACES.path(), {"metadata": {"name": home}})
        await self._post(SECRETS.path(home), {"metadata": {"name": "source"}, "data": {"password": "cA=="}})
        for number in range(turn, self.count, len(self.terminating)):
            spec = {
                "refreshInterval": f"{self.interval}s",
                "secretStoreRefs": [{"kind": "ClusterSecretStore", "name": self.mark}],
                "selector": {"secret": {"name": "source"}},
                "data": [entry("password", f"{self.mark}/{number}")],
            }
            await self._post(PUSHES.path(home), document(PUSHES, f"push-{number}", home, spec=spec))

    async def _post(self, path: str, body: JsonObject) -> None:
        answer = await self.bench.api.post(path, body)
        assert answer.status == 201, answer.body


@pytest.fixture
async def crowd(bench: Bench) -> AsyncIterator[Crowd]:
    found = Crowd.of(bench, SCALE)
    yield found
    await found.leave()


async def test_many_that_do_not_change_cost_no_write_at_either_end(crowd: Any, bench: Bench) -> None:
    """Everybody is refreshed at least twice: the backend is asked, and no object is written."""
    provider, counted = storing(), []

    def through(plain: Transport) -> Transport:
        counted.append(WritesCounted(plain, crowd.mark))
        return counted[0]

    async with bench.operator(through=through):
        await bench.install(provider)
        await crowd.settle()
        await eventually(crowd.all_ready, "not all of them push", within=LONG)
        await eventually(lambda: _asked(provider, crowd, 1), "they are not refreshed", within=LONG)
        pushes, first_writes = provider.calls["PushSecrets"], len(counted[0].writes)
        provider.checked.clear()
        began = SystemClock().monotonic()

        await eventually(lambda: _asked(provider, crowd, 2), "they are not refreshed", within=LONG)
        took = SystemClock().monotonic() - began

    # Events of the first pushes come when their recorder has time.
    later = [write for write in counted[0].writes[first_writes:] if not write.endswith("/events")]
    statuses = [write for write in later if write.endswith("/status")]
    again = provider.calls["PushSecrets"] - pushes
    asked = sum(provider.checked.values())
    figures = f"{asked} questions, {again} pushes, {len(later)} API writes, of these {len(statuses)} statuses"
    print(f"{SCALE}, every {crowd.interval} s, for {took:.0f} s: {figures}")  # noqa: T201 - what a large run is for
    assert set(provider.values) == crowd.keys
    assert provider.calls["PushSecrets"] == pushes == crowd.count
    assert [write for write in later if write not in statuses] == []
    assert len(statuses) == len(set(statuses)), "a status is written once in five minutes at most"


async def _asked(provider: StoringProvider, crowd: Crowd, times: int) -> bool:
    return all(provider.checked[key] >= times for key in crowd.keys)
