"""A provider says that something changed: who reads again, and who does not. No interval here ends during a test.

Each test has an operator and a provider of its own, which are broken at will.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from eso_operator.providers.settings import RuntimeSettings, SubscriptionSettings
from eso_operator.settings import Settings, SyncSettings, Tempo
from eso_testkit.operator.operators import READS, Bench
from eso_testkit.operator.scenes import ES, FAKE_STORE, STORE, STORES, Scene, running, scripted_with
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, Heartbeat, Operation
from kubebase.backoff import ExponentialBackoff
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

ONE = {"password": "db"}
STORM = 2000


HASTY = Tempo(
    RuntimeSettings(
        subscriptions=SubscriptionSettings(
            degraded_after=0.0, proven_after=0.0, reconnect=ExponentialBackoff(first=0.05, cap=0.2)
        )
    )
)


@asynccontextmanager
async def watchable_stores(
    bench: Bench, sync: SyncSettings | None = None, tempo: Tempo | None = None, /, **data: str
) -> AsyncIterator[Scene]:
    """A scene whose provider tells of changes."""
    provider = scripted_with(data)
    store, maker = provider.kinds
    provider.kinds = (replace(store, operations=READS | {Operation.SUBSCRIBE}), maker)
    settings = replace(alone(bench), sync=sync or SyncSettings())
    if tempo is not None:
        settings = replace(settings, providers=replace(settings.providers, tempo=tempo))
    async with running(bench, provider, settings) as stage:
        await bench.install(provider)
        await bench.create(STORES, STORE, spec=FAKE_STORE)
        await bench.ready(STORES, STORE, lambda condition: condition.status == "True")
        yield stage


def alone(bench: Bench) -> Settings:
    """Return settings for this namespace only: other tests left objects in other namespaces."""
    return replace(bench.settings, namespace=bench.namespace)


def reads_of(stage: Scene, key: str) -> int:
    """How often this remote key was asked for."""
    return sum(item.ref.key == key for batch in stage.provider.requests for item in batch)


async def until_watched(stage: Scene, *keys: str) -> None:
    """Until exactly these remote keys are watched."""

    async def watched() -> bool:
        return sorted(item.ref.key for item in stage.provider.watches.values() if item.ref) == sorted(keys)

    await eventually(watched, f"{keys} are not what is watched")


def place(stage: Scene, token: str) -> None:
    """How far the stream is."""
    stage.provider.events.put_nowait(Heartbeat(datetime.now(UTC), token))


def say(stage: Scene, *keys: str) -> None:
    for key in keys:
        stage.provider.events.put_nowait(stage.provider.changed(key))


async def test_a_changed_value_arrives_although_its_refresh_is_an_hour_away(bench: Bench) -> None:
    async with watchable_stores(bench, db="v1", other="o1") as stage:
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
async def test_an_object_that_does_not_refresh_by_itself_gets_no_events(bench: Bench, spec: JsonObject) -> None:
    async with watchable_stores(bench, still="v1", db="v1") as stage:
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
        await stage.until_idle()

        assert await stage.data("still") == {"password": "v1"}
        assert reads_of(stage, "still") == reads


async def test_a_storm_of_events_costs_few_reads(bench: Bench) -> None:
    async with watchable_stores(bench, db="v1", last="v1") as stage:
        await stage.sync("db", ONE)
        await stage.sync("last", {"password": "last"})
        await until_watched(stage, "db", "last")

        stage.backend(db="v2", last="v2")
        say(stage, *["db"] * STORM, "last")
        await stage.until("db", {"password": "v2"})
        await stage.until("last", {"password": "v2"})

        assert reads_of(stage, "db") <= STORM / 100


async def test_a_provider_that_dies_is_followed_again_and_nothing_is_missed(bench: Bench) -> None:
    async with watchable_stores(bench, db="v1", other="o1") as stage:
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
    async with watchable_stores(bench, db="v1") as stage:
        refusal = ProviderError(ErrorReason.UNSUPPORTED_OPERATION, "not today")
        stage.provider.refused_streams = refusal

        await stage.sync("db", ONE)
        await stage.provider.until_called("Subscribe")
        stage.backend(db="v2")
        await stage.force("db")

        await stage.until("db", {"password": "v2"})
        await stage.ready("db", "SecretSynced")


async def left_at(bench: Bench, token: str) -> ScriptedProvider:
    """The provider of an operator that has stopped, which had heard and read everything up to the token."""
    async with watchable_stores(bench, db="v1") as stage:
        await stage.sync("db", ONE)
        await until_watched(stage, "db")
        place(stage, token)
        stage.backend(db="v2")
        say(stage, "db")
        await stage.until("db", {"password": "v2"})
        await stage.until_idle()
    provider = stage.provider

    async def ended() -> bool:
        return not provider.watches

    # The stream of the stopped operator would still take the next event.
    await eventually(ended, "the stream has not ended")
    return provider


async def test_after_a_restart_the_stream_resumes_and_fresh_objects_are_not_read(bench: Bench) -> None:
    provider = await left_at(bench, "t1")
    provider.requests.clear()
    provider.openings.clear()
    async with running(bench, provider, alone(bench)) as stage:
        await until_watched(stage, "db")
        reads = reads_of(stage, "db")
        stage.backend(db="v3")
        say(stage, "db")

        await stage.until("db", {"password": "v3"})
        assert [opening.resume_token for opening in provider.openings] == ["t1"]
        assert reads == 0


async def test_after_a_restart_all_followers_read_once_if_the_provider_gives_no_tokens(bench: Bench) -> None:
    async with watchable_stores(bench, db="v1", other="o1") as stage:
        await stage.sync("db", ONE)
        await stage.sync("other", {"password": "other"})
        await until_watched(stage, "db", "other")
        provider, host = stage.provider, bench.host
        assert host is not None
        await host.stop()

    provider.requests.clear()
    provider.data |= {"db": b"v2", "other": b"o2"}
    async with running(bench, provider, alone(bench)) as stage:
        await host.start()

        await stage.until("db", {"password": "v2"})
        await stage.until("other", {"password": "o2"})
        assert (reads_of(stage, "db"), reads_of(stage, "other")) == (1, 1)


async def test_a_token_that_the_provider_refuses_costs_one_read(bench: Bench) -> None:
    provider = await left_at(bench, "t1")
    provider.requests.clear()
    provider.refused_tokens = {"t1"}
    provider.data |= {"db": b"v3"}
    async with running(bench, provider, alone(bench)) as stage:
        await stage.until("db", {"password": "v3"})

        assert reads_of(stage, "db") == 1


async def test_the_sample_of_the_guide_is_accepted_as_it_is(bench: Bench) -> None:
    guide = (Path(__file__).parents[5] / "docs/guides/refresh-on-change.md").read_text(encoding="utf-8")
    (sample,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    spec = yaml.safe_load(sample)["spec"]

    created = await bench.create(ES, "of-the-guide", spec=spec)

    assert created["spec"] == spec


@pytest.mark.parametrize("who", ["ExternalSecret", "store"])
async def test_an_object_that_only_polls_gets_no_announcement(bench: Bench, who: str) -> None:
    async with watchable_stores(bench, db="v1", other="o1") as stage:
        await stage.sync("db", ONE)
        await until_watched(stage, "db")

        if who == "store":
            await bench.patch(STORES, STORE, {"spec": {"refreshTrigger": "Poll"}})
        else:
            await stage.change("db", refreshTrigger="Poll")
        await until_watched(stage)
        reads = reads_of(stage, "db")
        if who == "store":
            await bench.patch(STORES, STORE, {"spec": {"refreshTrigger": None}})
        else:
            await stage.change("db", refreshTrigger="Auto")
        await until_watched(stage, "db")

        assert reads_of(stage, "db") - reads == (0 if who == "store" else 1)


async def test_a_broken_stream_is_reported_on_its_store_which_stays_ready(bench: Bench) -> None:
    async with watchable_stores(bench, None, HASTY, db="v1") as stage:
        stage.provider.refused_streams = ProviderError(ErrorReason.PERMISSION_DENIED, "not for you")
        await stage.sync("db", ONE)

        said = await degraded(bench)
        await bench.ready(STORES, STORE, lambda condition: condition.status == "True")
        await stage.ready("db", "SecretSynced")
        stage.provider.refused_streams = None
        await until_watched(stage, "db")
        say(stage, "db")

        assert "not for you" in said
        await eventually(lambda: restored(bench), "the condition stays")
        await bench.ready(STORES, STORE, lambda condition: condition.status == "True")


async def test_an_object_with_a_working_stream_is_polled_less_often(bench: Bench) -> None:
    """The one that polls shows that intervals go by."""
    rarely = SyncSettings(push_refresh_multiplier=1000)
    async with watchable_stores(bench, rarely, HASTY, db="v1", polled="v1") as stage:
        await stage.sync("db", ONE, refreshInterval="1s")
        await stage.sync("polled", {"password": "polled"}, refreshInterval="1s", refreshTrigger="Poll")
        await until_watched(stage, "db")
        before = reads_of(stage, "db")
        await until_read(stage, "polled", 4)
        standing = reads_of(stage, "db") - before

        stage.provider.refused_streams = ProviderError(ErrorReason.PERMISSION_DENIED, "not for you")
        stage.provider.events.put_nowait(None)
        await until_read(stage, "db", 3)

        assert standing <= 1  # one may have been under way


async def until_read(stage: Scene, key: str, more: int) -> None:
    """Until it was read so many times more."""
    enough = reads_of(stage, key) + more

    async def read() -> bool:
        return reads_of(stage, key) >= enough

    await eventually(read, f"{key} is not read")


async def degraded(bench: Bench) -> str:
    """Return the store's condition about its stream, once there is one."""

    async def look() -> str:
        conditions = ((await bench.find(STORES, STORE)) or {}).get("status", {}).get("conditions", [])
        found = [each for each in conditions if each["type"] == "PushRefreshDegraded" and each["status"] == "True"]
        return str(found[0]["message"]) if found else ""

    return await eventually(look, "the store does not say that its stream is broken")


async def restored(bench: Bench) -> bool:
    conditions = ((await bench.find(STORES, STORE)) or {}).get("status", {}).get("conditions", [])
    return all(each["type"] != "PushRefreshDegraded" for each in conditions)


async def test_no_stream_is_left_without_followers(bench: Bench) -> None:
    async with watchable_stores(bench, db="v1", other="o1") as stage:
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
