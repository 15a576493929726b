"""Backends that fail, stores that are not ready, operators that restart or have other settings, writes that get lost.

Each test has an operator of its own: two of them on one cluster would do each other's work.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from eso_testkit.operator.operators import Bench
from eso_testkit.operator.scenes import (
    ES,
    FAKE_STORE,
    STORE,
    STORES,
    Scene,
    generic,
    running,
    scene,
    scripted_with,
)
from eso_testkit.operator.transports import Between
from eso_wire import codec, paths
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Operation, Validation, ValidationState
from kubebase.testing.waiting import eventually
from kuberun.errors import Forbidden
from kuberun.requests import Request
from kuberun.testing.builders import CONFIG_MAPS
from kuberun.transport import Transport

pytestmark = pytest.mark.live

ONE = {"password": "db"}
DOWN = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "the backend is down")


def reads_of(stage: Scene, key: str) -> int:
    """How often this remote key was asked for."""
    return sum(item.ref.key == key for batch in stage.provider.requests for item in batch)


async def test_a_failing_backend_leaves_the_secret_alone_and_is_retried(bench: Bench) -> None:
    """P1, R129; R4 of the catalogue: even an object that is read once is retried until it succeeds."""
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


@pytest.mark.parametrize("policy", ["Delete", "Merge"])
async def test_nothing_is_removed_on_the_word_of_a_provider_that_cannot_tell_absence_from_failure(
    bench: Bench, policy: str
) -> None:
    """R59."""
    provider = scripted_with({"db": "v1"})
    provider.kinds = tuple(
        replace(each, operations=each.operations - {Operation.NOT_FOUND_SEMANTICS}) for each in provider.kinds
    )
    async with running(bench, provider) as stage:
        await bench.install(provider)
        await bench.create(STORES, STORE, spec=FAKE_STORE)
        await stage.sync("db", ONE, target={"deletionPolicy": policy})
        before = await stage.secret("db")
        del provider.data["db"]

        await stage.force("db")

        await stage.broken("db", "use Retain")
        assert await stage.secret("db") == before


async def test_a_store_that_is_not_ready_is_not_called_and_wakes_its_users_when_it_is(bench: Bench) -> None:
    """P3."""
    async with scene(bench, {"db": "v1"}) as stage:
        await bench.create(STORES, "later", spec={"provider": {"fake": {"data": []}}, "controller": "default"})
        await bench.ready(STORES, "later", lambda condition: condition.status == "True")
        stage.provider.broken = DOWN
        await bench.patch(STORES, "later", {"spec": {"refreshInterval": 1}})
        await bench.ready(STORES, "later", lambda condition: condition.status == "False")
        stage.provider.requests.clear()

        for number in range(5):
            await stage.apply(f"db{number}", ONE, secretStoreRef={"name": "later"})
            await stage.broken(f"db{number}", "later")

        assert stage.provider.requests == []
        stage.provider.broken = None
        for number in range(5):
            await stage.ready(f"db{number}")


async def test_without_the_flood_gate_a_store_that_is_not_ready_is_asked(bench: Bench) -> None:
    """P4: it stays refused by its provider, which would answer all the same."""
    settings = bench.settings
    open_gate = replace(settings, sync=replace(settings.sync, flood_gate=False))
    async with scene(bench, {"db": "v1"}, open_gate) as stage:
        refused = codec.to_validate_response(Validation(ValidationState.INVALID)).SerializeToString()
        stage.provider.nonsense = lambda method, _: refused if method == paths.VALIDATE else None
        await bench.patch(STORES, STORE, {"spec": {"refreshInterval": 3600}})
        await bench.ready(STORES, STORE, lambda condition: condition.status == "False")

        await stage.apply("db", ONE)

        await stage.ready("db")
        await bench.ready(STORES, STORE, lambda condition: condition.status == "False")


async def test_cluster_stores_can_be_switched_off(bench: Bench) -> None:
    """P21: an object that uses one is ignored."""
    settings = bench.settings
    without = replace(settings, reconcilers=replace(settings.reconcilers, cluster_store=False))
    async with scene(bench, {"db": "v1"}, without) as stage:
        await stage.apply("db", ONE, secretStoreRef={"name": "any", "kind": "ClusterSecretStore"})
        await stage.until_idle()

        assert await stage.status("db") == {}


async def test_after_a_restart_what_is_fresh_is_neither_read_nor_written(bench: Bench) -> None:
    """R1 of the catalogue. Its remote key is its own: a namespace of another test may still be going away."""
    async with scene(bench, {"fresh": "v1"}) as stage:
        await stage.sync("db", {"password": "fresh"})
        provider = stage.provider

    provider.requests.clear()
    async with running(bench, provider) as stage:
        await stage.until_idle()

        assert reads_of(stage, "fresh") == 0
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


async def test_a_refresh_that_lies_in_the_future_is_done_again(bench: Bench) -> None:
    """R6 of the catalogue: the writer of that time had another clock."""
    async with scene(bench, {"ahead": "v1"}) as stage:
        await stage.sync("db", {"password": "ahead"}, refreshInterval="24h")
        provider = stage.provider
    await stage.patch_status("db", {"refreshTime": "2999-01-01T00:00:00Z"})

    stage.backend(ahead="v2")
    async with running(bench, provider) as stage:
        await stage.until("db", {"password": "v2"})

        async def corrected() -> bool:
            return str((await stage.status("db"))["refreshTime"]) < "2999"

        await eventually(corrected, "the time of the refresh is still in the future")


async def test_a_deleted_object_leaves_no_series(bench: Bench) -> None:
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE)
        await stage.until_idle()
        series = stage.operator.metrics.exposition().decode()
        for name in ("sync_calls_total", "sync_calls_error", "status_condition", "reconcile_duration"):
            assert f"externalsecret_{name}" in series
        about = f'name="db",namespace="{bench.namespace}"'  # other tests leave objects of that name elsewhere
        assert about in series

        await bench.delete(ES, "db")

        async def forgotten() -> bool:
            return about not in stage.operator.metrics.exposition().decode()

        await eventually(forgotten, "there are still series about it")


async def test_other_kinds_must_be_allowed(bench: Bench) -> None:
    """G1: the target is not read."""
    manifest = {"apiVersion": "v1", "kind": "ConfigMap"}
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.apply("db", ONE, target={"manifest": manifest, "deletionPolicy": "Delete"})

        await stage.broken("db", "invalid generic target", "--unsafe-allow-generic-targets")

        assert await bench.find(CONFIG_MAPS, "db") is None
        assert stage.api_calls.about("/configmaps/db") == []
        await bench.delete(ES, "db")

        async def gone() -> bool:
            return await bench.find(ES, "db") is None

        await eventually(gone, "the ExternalSecret does not go")


async def test_delimiters_of_templates_can_be_changed(bench: Bench) -> None:
    """T26: for templates of targets, not for those that rename keys."""
    settings = bench.settings
    other = replace(settings, sync=replace(settings.sync, left_delimiter="[[", right_delimiter="]]"))
    async with scene(bench, {"db": "v1"}, other) as stage:
        rename = {"transform": {"template": "{{ .value | upper }}"}}
        template = {"data": {"a": "[[ .VALUE ]] {{ kept }}"}}

        await stage.sync(
            "db", dataFrom=[{"extract": {"key": "db"}, "rewrite": [rename]}], target={"template": template}
        )

        assert await stage.data("db") == {"a": "v1 {{ kept }}"}


async def test_a_lost_status_is_written_again(bench: Bench) -> None:
    """R14 of the catalogue: after another client wrote, the object becomes Ready, and its Secret is written once."""
    async with scene(bench, {"db": "v1"}) as stage:

        async def meddle() -> None:
            await stage.patch_status("db", {"binding": {"name": "meddled"}})

        meddler = Meddler("PATCH", "/db/status", meddle)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)

        await stage.sync("db", ONE)

        assert meddler.times == 1
        assert len(stage.api_calls.writes(bench.namespace, "/secrets/db")) == 1


async def test_a_secret_that_appears_at_the_last_moment_is_not_taken_by_force(bench: Bench) -> None:
    """It belongs to another writer, which was unknown when the write was planned."""
    async with scene(bench, {"db": "v1"}) as stage:
        other = await bench.create(CONFIG_MAPS, "other", data={})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"]}

        async def meddle() -> None:
            await stage.put_secret("db", {"password": "theirs"}, ownerReferences=[{**owner, "controller": True}])

        meddler = Meddler("PATCH", "/secrets/db", meddle)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)

        await stage.apply("db", ONE)

        await stage.broken("db", "failed to take ownership of target secret", "ConfigMap other")
        assert meddler.times == 1
        assert await stage.data("db") == {"password": "theirs"}
        left = await stage.secret("db")
        assert left is not None
        assert "labels" not in left["metadata"]


async def test_an_object_of_another_kind_that_appears_at_the_last_moment_is_looked_at_first(bench: Bench) -> None:
    """G16: what was planned for a missing object is not done to one that is there; the next look decides."""
    async with scene(bench, {"db": "v1"}, generic(bench)) as stage:

        async def meddle() -> None:
            await bench.create(CONFIG_MAPS, "db", data={}, metadata={"labels": {"team": "a"}})

        meddler = Meddler("POST", "/configmaps", meddle)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)
        manifest = {"apiVersion": "v1", "kind": "ConfigMap"}

        await stage.apply("db", ONE, target={"manifest": manifest, "creationPolicy": "CreateOrMerge"})

        await stage.ready("db", "ResourceSynced")
        assert meddler.times == 1
        made = await stage.config_map("db")
        assert made is not None
        assert made["data"] == {"password": "v1"}
        assert made["metadata"]["labels"]["team"] == "a"


async def test_a_target_that_cannot_be_deleted_holds_its_external_secret(bench: Bench) -> None:
    """L25."""
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE, target={"deletionPolicy": "Delete"})
        meddler = Meddler("DELETE", "/secrets/db", _forbid)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)

        await bench.delete(ES, "db")

        async def gone() -> bool:
            return await bench.find(ES, "db") is None

        await eventually(gone, "it is not tried again")
        assert meddler.times == 1
        assert len([method for method, _ in stage.api_calls.about("/secrets/db") if method == "DELETE"]) == 2
        assert await stage.secret("db") is None
        await stage.until_event("db", "Warning", "UpdateFailed", "not now")


async def test_a_finalizer_that_may_not_be_set_is_reported(bench: Bench) -> None:
    """Nothing is written before it can be removed again."""
    async with scene(bench, {"db": "v1"}) as stage:
        meddler = Meddler("PATCH", "/externalsecrets/db", _forbid)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)

        await stage.sync("db", ONE, target={"deletionPolicy": "Delete"})

        assert meddler.times == 1
        await stage.until_event("db", "Warning", "UpdateFailed", "finalizer not set")


async def test_a_secret_that_may_not_be_read_is_reported(bench: Bench) -> None:
    """It is not known whether it is still right; without a word users would not find out why nothing happens."""
    async with scene(bench, {"db": "v1"}) as stage:
        await stage.sync("db", ONE)
        meddler = Meddler("GET", "/secrets/db", _forbid)
        stage.api_calls.inner = meddler.between(stage.api_calls.inner)

        await stage.edit("db", {"password": "theirs"})

        await stage.until_event("db", "Warning", "UpdateFailed", "not now")
        await stage.until("db", {"password": "v1"})


async def _forbid() -> None:
    raise Forbidden(403, "Forbidden", "not now")


class Meddler:
    """Does something just before the first request of one kind, or instead of it."""

    def __init__(self, method: str, path: str, act: Callable[[], Awaitable[None]]) -> None:
        self._method = method
        self._path = path
        self._act = act
        self.times = 0

    def between(self, inner: Transport) -> Transport:
        return MeddledTransport(inner, self)

    async def look_at(self, request: Request) -> None:
        if request.method == self._method and request.path.endswith(self._path) and not self.times:
            self.times += 1
            await self._act()


@dataclass
class MeddledTransport(Between):
    inner: Transport
    meddler: Meddler

    async def request(self, request: Request) -> bytes:
        await self.meddler.look_at(request)
        return await self.inner.request(request)
