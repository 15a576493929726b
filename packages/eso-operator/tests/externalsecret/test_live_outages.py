"""Backends that fail, stores that are not ready, operators that restart, statuses that get lost."""

from dataclasses import replace
from typing import Any

import pytest

from eso_operator.testing.operators import Bench, eventually
from eso_operator.testing.scenes import ES, STORE, STORES, Scene, running, scene
from eso_wire.errors import ErrorReason, ProviderError

pytestmark = pytest.mark.live

ONE = {"password": "db"}
DOWN = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "the backend is down")


def reads_of(stage: Scene, key: str) -> int:
    """How often this remote key was asked for."""
    return sum(item.ref.key == key for batch in stage.provider.asked for item in batch)


async def test_a_failing_backend_leaves_the_secret_alone_and_is_retried(bench: Bench) -> None:
    """P1, R129; R4 of the catalogue: even what is read once is retried until it worked."""
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("old", ONE)
        before = await stage.status("old")
        stage.provider.broken = DOWN
        await stage.apply("db", ONE, refreshInterval=0)
        await stage.force("old")

        failed = await stage.broken("db", "could not get secret data from provider", "backend is down")
        await stage.broken("old", "backend is down")

        assert await stage.secret("db") is None
        assert await stage.data("old") == {"password": "v1"}
        after = await stage.status("old")
        assert after["refreshTime"] == before["refreshTime"]
        assert after["syncedResourceVersion"] == before["syncedResourceVersion"]
        assert "refreshTime" not in failed["status"]
        stage.provider.broken = None
        await stage.ready("db")
        await stage.ready("old")


async def test_a_store_that_is_not_ready_is_not_asked_and_wakes_everybody_when_it_is(bench: Bench) -> None:
    """P3."""
    async with scene(bench, {"db": "v1"}) as stage:
        await bench.create(STORES, "later", spec={"provider": {"fake": {"data": []}}, "controller": "default"})
        await bench.ready(STORES, "later", lambda condition: condition.status == "True")
        stage.provider.broken = DOWN
        await bench.patch(STORES, "later", {"spec": {"refreshInterval": 1}})
        await bench.ready(STORES, "later", lambda condition: condition.status == "False")
        stage.provider.asked.clear()

        for number in range(5):
            await stage.apply(f"db{number}", ONE, secretStoreRef={"name": "later"})
            await stage.broken(f"db{number}", "later")

        assert stage.provider.asked == []
        stage.provider.broken = None
        for number in range(5):
            await stage.ready(f"db{number}")


async def test_without_the_flood_gate_a_store_that_is_not_ready_is_asked(bench: Bench) -> None:
    """P4."""
    settings = bench.settings
    open_gate = replace(settings, sync=replace(settings.sync, flood_gate=False))
    async with scene(bench, {"db": "v1"}, open_gate) as stage:
        stage.provider.broken = DOWN
        await bench.patch(STORES, STORE, {"spec": {"refreshInterval": 3600}})
        await bench.ready(STORES, STORE, lambda condition: condition.status == "False")
        stage.provider.broken = None

        await stage.apply("db", ONE)

        await stage.ready("db")


async def test_cluster_stores_can_be_switched_off(bench: Bench) -> None:
    """P21: what uses one is not even looked at."""
    settings = bench.settings
    without = replace(settings, reconcilers=replace(settings.reconcilers, cluster_store=False))
    async with scene(bench, {"db": "v1"}, without) as stage:
        await stage.apply("db", ONE, secretStoreRef={"name": "any", "kind": "ClusterSecretStore"})
        await stage.settled()

        assert await stage.status("db") == {}


async def test_after_a_restart_what_is_fresh_is_neither_read_nor_written(bench: Bench) -> None:
    """R1 of the catalogue."""
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE)
        provider = stage.provider

    provider.asked.clear()
    async with running(bench, provider) as stage:
        await stage.settled()

        assert reads_of(stage, "db") == 0
        assert stage.api_calls.writes(bench.namespace, "/db") == []
        series = stage.operator.metrics.exposition().decode()
        assert f'externalsecret_status_condition{{condition="Ready",name="db",namespace="{bench.namespace}"' in series


async def test_after_a_restart_what_is_overdue_is_read_in_its_turn(bench: Bench) -> None:
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE, refreshInterval="2s")
        provider = stage.provider

    stage.backend(db="v2")
    async with running(bench, provider) as stage:
        await stage.until("db", {"password": "v2"})


async def test_a_deleted_object_leaves_no_series(bench: Bench) -> None:
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE)
        await stage.settled()
        series = stage.operator.metrics.exposition().decode()
        for name in ("sync_calls_total", "sync_calls_error", "status_condition", "reconcile_duration"):
            assert f"externalsecret_{name}" in series
        assert 'name="db"' in series

        await bench.delete(ES, "db")

        async def forgotten() -> bool:
            return 'name="db"' not in stage.operator.metrics.exposition().decode()

        await eventually(forgotten, "there are still series about it")


async def test_a_lost_status_is_written_again(bench: Bench) -> None:
    """R14 of the catalogue: whoever wrote in between, the object becomes Ready, and its Secret is written once."""
    async with scene(bench, {"db": "v1"}) as stage:
        meddler = _Meddler(stage)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)

        await stage.sync("db", ONE)

        assert meddler.meddled
        assert len(stage.api_calls.writes(bench.namespace, "/secrets/db")) == 1


class _Meddler:
    """Changes an ExternalSecret just before its status is written for the first time."""

    def __init__(self, stage: Scene) -> None:
        self._stage = stage
        self.meddled = False

    def between(self, inner: Any) -> Any:
        plain = inner.request

        async def request(request: Any) -> bytes:
            if request.path.endswith("/db/status") and not self.meddled:
                self.meddled = True
                await self._stage.patch_status("db", {"binding": {"name": "meddled"}})
            return bytes(await plain(request))

        inner.request = request
        return inner
