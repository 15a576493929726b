"""A provider says that something changed: who reads again, and who does not. No interval here ends during a test.

Each test has an operator and a provider of its own, which are broken at will.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from eso_operator.settings import Settings
from eso_operator.testing.operators import READS, Bench, eventually
from eso_operator.testing.scenes import ES, FAKE_STORE, STORE, STORES, Scene, running, scripted_with
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, Operation
from kuberun.meta import JsonObject

pytestmark = pytest.mark.live

ONE = {"password": "db"}
STORM = 2000


@asynccontextmanager
async def telling(bench: Bench, **data: str) -> AsyncIterator[Scene]:
    """A scene whose provider tells of changes."""
    provider = scripted_with(data)
    store, maker = provider.kinds
    provider.kinds = (replace(store, operations=READS | {Operation.SUBSCRIBE}), maker)
    async with running(bench, provider, alone(bench)) as stage:
        await bench.install(provider)
        await bench.create(STORES, STORE, spec=FAKE_STORE)
        await bench.ready(STORES, STORE, lambda condition: condition.status == "True")
        yield stage


def alone(bench: Bench) -> Settings:
    """What other tests have left in other namespaces is not followed."""
    return replace(bench.settings, namespace=bench.namespace)


def reads_of(stage: Scene, key: str) -> int:
    """How often this remote key was asked for."""
    return sum(item.ref.key == key for batch in stage.provider.asked for item in batch)


async def until_watched(stage: Scene, *keys: str) -> None:
    """Until exactly these remote keys are watched."""

    async def watched() -> bool:
        return sorted(item.ref.key for item in stage.provider.watches.values() if item.ref) == sorted(keys)

    await eventually(watched, f"{keys} are not what is watched")


def say(stage: Scene, *keys: str) -> None:
    for key in keys:
        stage.provider.events.put_nowait(stage.provider.changed(key))


async def test_a_changed_value_arrives_although_its_refresh_is_an_hour_away(bench: Bench) -> None:
    async with telling(bench, db="v1", other="o1") as stage:
        await stage.sync("db", ONE)
        await stage.sync("other", {"password": "other"})
        await until_watched(stage, "db", "other")

        stage.backend(db="v2", other="o2")
        say(stage, "db")

        await stage.until("db", {"password": "v2"})
        await stage.until_event("db", "Normal", "Updated", "secret updated")
        assert await stage.data("other") == {"password": "o1"}
        assert (reads_of(stage, "db"), reads_of(stage, "other")) == (2, 1)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"refreshPolicy": "CreatedOnce"}, id="R48 created once"),
        pytest.param({"refreshPolicy": "OnChange"}, id="on change"),
        pytest.param({"refreshInterval": "0s"}, id="an interval of 0"),
    ],
)
async def test_what_does_not_refresh_by_itself_hears_nothing(bench: Bench, spec: JsonObject) -> None:
    async with telling(bench, still="v1", db="v1") as stage:
        await stage.sync("still", {"password": "still"}, **spec)
        await stage.sync("left", {"password": "still"})
        await stage.sync("db", ONE)
        await until_watched(stage, "still", "db")
        await stage.change("left", **spec)
        await until_watched(stage, "db")
        reads = reads_of(stage, "still")

        stage.backend(still="v2", db="v2")
        stage.provider.events.put_nowait(ChangeEvent(ChangeType.RESYNC))
        await stage.until("db", {"password": "v2"})
        await stage.settled()

        assert await stage.data("still") == {"password": "v1"}
        assert reads_of(stage, "still") == reads


async def test_a_storm_of_events_costs_few_reads(bench: Bench) -> None:
    async with telling(bench, db="v1", last="v1") as stage:
        await stage.sync("db", ONE)
        await stage.sync("last", {"password": "last"})
        await until_watched(stage, "db", "last")

        stage.backend(db="v2", last="v2")
        say(stage, *["db"] * STORM, "last")
        await stage.until("db", {"password": "v2"})
        await stage.until("last", {"password": "v2"})

        assert reads_of(stage, "db") <= STORM / 100


async def test_a_provider_that_dies_is_followed_again_and_nothing_is_missed(bench: Bench) -> None:
    async with telling(bench, db="v1", other="o1") as stage:
        await stage.sync("db", ONE)
        await stage.sync("other", {"password": "other"})
        await until_watched(stage, "db", "other")
        assert bench.host is not None

        await bench.host.stop()
        stage.backend(db="v2", other="o2")
        await bench.host.start()

        await stage.until("db", {"password": "v2"})
        await stage.until("other", {"password": "o2"})
        await until_watched(stage, "db", "other")


async def test_a_provider_that_cannot_keep_its_word_disturbs_nothing(bench: Bench) -> None:
    async with telling(bench, db="v1") as stage:
        refusal = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "not today")
        stage.provider.refused_streams = refusal

        await stage.sync("db", ONE)
        await stage.provider.until_called("Subscribe")
        stage.backend(db="v2")
        await stage.force("db")

        await stage.until("db", {"password": "v2"})
        await stage.ready("db", "SecretSynced")


async def test_after_a_restart_what_is_fresh_is_followed_without_being_read(bench: Bench) -> None:
    async with telling(bench, db="v1") as stage:
        await stage.sync("db", ONE)
        provider = stage.provider

    provider.asked.clear()
    async with running(bench, provider, alone(bench)) as stage:
        await until_watched(stage, "db")
        reads = reads_of(stage, "db")
        stage.backend(db="v2")
        say(stage, "db")

        await stage.until("db", {"password": "v2"})
        assert reads == 0


async def test_no_stream_is_left_when_nobody_follows(bench: Bench) -> None:
    async with telling(bench, db="v1", other="o1") as stage:
        await stage.sync("db", ONE)
        await stage.sync("other", {"password": "other"})
        await until_watched(stage, "db", "other")

        await stage.change("db", data=[{"secretKey": "password", "remoteRef": {"key": "other"}}])
        await until_watched(stage, "other")
        for name in ("db", "other"):
            await bench.delete(ES, name)
        await until_watched(stage)

        async def closed() -> bool:
            return 'eso_provider_subscriptions{state="open"} 0.0' in stage.operator.metrics.exposition().decode()

        await eventually(closed, "a stream is still open")
        assert stage.provider.calls["Subscribe"] == 1
