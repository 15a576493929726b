"""Several PushSecrets that write to one remote key, on a live API server."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import CLUSTER_SECRET_STORE
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import EVERYTHING, storing
from eso_wire.values import Operation
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import NAMESPACES

pytestmark = pytest.mark.live

PUSHES = PUSH_SECRET.resource()
CLUSTER_STORES = CLUSTER_SECRET_STORE.resource()
FAKE: dict[str, Any] = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
OFTEN: dict[str, Any] = {"refreshInterval": "1s"}
OTHER: dict[str, Any] = {"selector": {"secret": {"name": "other"}}}


async def contended(stage: Any, name: str, *words: str) -> None:
    """Wait until the condition is there and has these words."""

    async def look() -> bool:
        found = await stage.condition(name, "Contended")
        return found is not None and found["status"] == "True" and all(word in found["message"] for word in words)

    await eventually(look, f"PushSecret {name} does not say that it is contended by {words}")


async def settled(stage: Any, name: str) -> None:
    """Wait until the condition is gone."""

    async def look() -> bool:
        return await stage.condition(name, "Contended") is None

    await eventually(look, f"PushSecret {name} still says that it is contended")


async def refreshed(stage: Any, key: str = "db", times: int = 4) -> None:
    """Wait for that many refreshes of all PushSecrets that push to the remote key."""
    goal = stage.provider.checked[key] + times
    await stage.until(lambda: stage.provider.checked[key] >= goal, "nothing is refreshed")


async def two_writers(stage: Any, **spec: Any) -> None:
    """`first` pushes "one" to the remote key db, then `second` pushes "two" over it."""
    await stage.source(password="one")
    await stage.source("other", password="two")
    await stage.push("first", entry("password", "db"), **{**OFTEN, **spec})
    await stage.push("second", entry("password", "db"), **{**OFTEN, **OTHER, **spec})
    await stage.holds(db="two")


# --- one remote key, different places ---------------------------------------------------------------------------------


@pytest.mark.parametrize("by_key", [False, True], ids=["versions of properties", "one version for the whole key"])
async def test_two_push_secrets_push_different_properties_of_one_remote_key(staged: Any, by_key: bool) -> None:
    """Neither takes the version that the other made for drift."""
    async with staged(storing(versions_keys=by_key)) as stage:
        await stage.source(user="u", password="p")
        await stage.push("user", entry("user", "db", "user"), **OFTEN)
        await stage.push("password", entry("password", "db", "password"), **OFTEN)

        await refreshed(stage)

        assert stage.provider.values == {"db#user": b"u", "db#password": b"p"}
        assert len(stage.provider.pushes) == 2
        assert await stage.condition("user", "Contended") is None


@pytest.mark.parametrize("by_key", [False, True], ids=["versions of properties", "one version for the whole key"])
async def test_a_stranger_who_changes_one_property_is_reverted(staged: Any, by_key: bool) -> None:
    """Also where other properties of the remote key are pushed, by the same and by another PushSecret."""
    async with staged(storing(versions_keys=by_key)) as stage:
        await stage.source(user="u", password="p", host="h")
        await stage.push("two", entry("user", "db", "user"), entry("password", "db", "password"), **OFTEN)
        await stage.push("one", entry("host", "db", "host"), **OFTEN)
        await refreshed(stage)

        stage.provider.put("db#user", b"wrong", "external-secrets")

        await stage.holds(db__user="u", db__password="p", db__host="h")


async def test_a_property_is_pushed_again_when_another_push_secret_writes_the_whole_over_it(staged: Any) -> None:
    """Whatever the interval, and only once: the writes end."""
    async with staged() as stage:
        await stage.source(user="u")
        await stage.push("part", entry("user", "db", "user"), refreshInterval="0")
        await stage.push("whole", entry("", "db"), **OFTEN)
        await stage.until(lambda: len(stage.provider.pushes) == 3, "the property is not pushed again")

        await refreshed(stage)

        assert [batch.items[0].remote.property for batch in stage.provider.pushes] == ["user", "", "user"]


TWELVE = [f"key-{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("operations", "calls"),
    [
        pytest.param(EVERYTHING | {Operation.PUSH_GROUPED}, [12], id="a provider that groups"),
        pytest.param(EVERYTHING, [1] * 12, id="one that does not"),
    ],
)
async def test_properties_of_one_remote_key_go_in_one_call_to_a_provider_that_groups(
    staged: Any, operations: frozenset[Operation], calls: list[int]
) -> None:
    """Pushed and deleted: a backend that keeps versions then makes one of twelve properties. No refresh adds any."""
    async with staged(storing(operations=operations, versions_keys=True)) as stage:
        await stage.source(**dict.fromkeys(TWELVE, "v"))
        data = [entry(name, "db", name) for name in TWELVE]
        await stage.push("db", *data, deletionPolicy="Delete", **OFTEN)
        await refreshed(stage, times=24)
        assert [len(batch.items) for batch in stage.provider.pushes] == calls

        await stage.bench.delete(PUSHES, "db")
        await stage.gone("db")

        assert [len(batch.items) for batch in stage.provider.deletions] == calls
        assert stage.provider.values == {}


# --- one place --------------------------------------------------------------------------------------------------------


async def test_equal_values_in_one_place_are_no_contention(staged: Any) -> None:
    """The Secrets differ in their labels, which providers may keep; the value is what counts."""
    async with staged() as stage:
        await stage.source(password="p")
        await stage.source("other", labels={"team": "b"}, password="p")
        await stage.push("first", entry("password", "db"), **OFTEN)
        await stage.push("second", entry("password", "db"), **OFTEN, **OTHER)

        await refreshed(stage)

        assert (await stage.condition("first", "Contended"), await stage.condition("second", "Contended")) == (
            None,
            None,
        )
        assert len(stage.provider.pushes) == 2


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="a provider that tells versions"),
        pytest.param({"reports_versions": False}, id="one that tells none"),
        pytest.param({"marks_owners": False}, id="a backend without marks"),
    ],
)
async def test_both_writers_of_one_place_report_contention_and_the_last_value_stays(
    staged: Any, fields: dict[str, Any]
) -> None:
    """No ping-pong: refresh after refresh, an unchanged value is not written again."""
    async with staged(storing(**fields)) as stage:
        await two_writers(stage)
        await contended(stage, "first", 'remote key "db" in SecretStore/store', "PushSecret second also writes it")
        await contended(stage, "second", "PushSecret first also writes it")
        await stage.event("first", "Warning", "Contended", "second")

        await refreshed(stage, times=6)

        assert stage.provider.values == {"db": b"two"}
        assert len(stage.provider.pushes) == 2
        await stage.ready("first", "another PushSecret overwrote")
        await stage.ready("second", "every value is in its stores")


async def test_a_contended_value_is_written_when_it_changes(staged: Any) -> None:
    async with staged() as stage:
        await two_writers(stage)

        await stage.edit(password="three")
        await stage.holds(db="three")
        await refreshed(stage)

        assert stage.provider.values == {"db": b"three"}
        await contended(stage, "second", "PushSecret first")
        assert len(stage.provider.pushes) == 3


async def test_contention_ends_when_the_values_become_equal(staged: Any) -> None:
    async with staged() as stage:
        await two_writers(stage)
        await contended(stage, "first")

        await stage.edit("other", password="one")

        await settled(stage, "first")
        await settled(stage, "second")
        await stage.holds(db="one")


async def test_a_push_secret_that_never_refreshes_is_told_of_contention_and_of_its_end(staged: Any) -> None:
    async with staged() as stage:
        await two_writers(stage, refreshInterval="0")
        await contended(stage, "first", "second")

        await stage.change("second", data=[entry("password", "elsewhere")])

        await settled(stage, "first")
        await stage.holds(db="one", elsewhere="two")


@pytest.mark.parametrize("policy", ["Delete", "None"])
@pytest.mark.parametrize("reports_versions", [True, False], ids=["versions", "no versions"])
async def test_when_the_last_writer_is_deleted_the_other_value_comes_back(
    staged: Any, policy: str, reports_versions: bool
) -> None:
    """It is not deleted with the last writer, because the other PushSecret still pushes there."""
    async with staged(storing(reports_versions=reports_versions)) as stage:
        await two_writers(stage, deletionPolicy=policy, refreshInterval="1h")
        await contended(stage, "first")

        await stage.bench.delete(PUSHES, "second")
        await stage.gone("second")

        await stage.holds(db="one")
        await settled(stage, "first")
        assert stage.provider.deletions == []


async def test_when_the_other_writer_is_deleted_the_last_value_stays(staged: Any) -> None:
    async with staged() as stage:
        await two_writers(stage, deletionPolicy="Delete")
        await contended(stage, "second")

        await stage.bench.delete(PUSHES, "first")
        await stage.gone("first")

        await settled(stage, "second")
        await refreshed(stage)
        assert stage.provider.values == {"db": b"two"}


async def test_a_stranger_who_changes_a_contended_value_is_reverted_by_the_last_writer(staged: Any) -> None:
    async with staged() as stage:
        await two_writers(stage)
        await contended(stage, "first")

        stage.provider.put("db", b"wrong", "external-secrets")

        await stage.holds(db="two")
        await refreshed(stage)
        assert stage.provider.values == {"db": b"two"}


async def test_contention_is_still_reported_after_a_restart(staged: Any, bench: Any) -> None:
    """The next operator does not know the values until each of them is pushed again."""
    provider = storing()
    async with staged(provider, tidy=False) as stage:
        await two_writers(stage, refreshInterval="1h")
        await contended(stage, "first")
        await contended(stage, "second")
    async with bench.operator(replace(bench.settings, namespace=bench.namespace)):
        await stage.force("first")
        await stage.holds(db="one")
        await stage.push("witness", entry("password", "witness"))

        await contended(stage, "first", "second")
        await contended(stage, "second", "first")
        await stage.force("second")
        await stage.holds(db="two", witness="one")
        await contended(stage, "first", "second")


@pytest.mark.parametrize("theirs", [pytest.param("there", id="another value"), pytest.param("here", id="equal values")])
async def test_a_tenant_learns_neither_names_nor_values_of_other_namespaces(
    staged: Any, bench: Any, theirs: str
) -> None:
    """A cluster-scoped store is one place for all namespaces. What each side is told does not depend on the values."""
    async with staged(ready=False, settings=bench.settings) as stage:
        shared = f"shared-{bench.namespace}"
        await bench.create(CLUSTER_STORES, shared, spec=FAKE)
        home = f"{bench.namespace}-home"
        await bench.create(NAMESPACES, home)
        there = replace(stage, bench=replace(bench, namespace=home))
        spec = {"secretStoreRefs": [{"kind": "ClusterSecretStore", "name": shared}]}
        await stage.source(password="here")
        await there.source(password=theirs)

        await stage.push("mine", entry("password", "db"), deletionPolicy="Delete", **OFTEN, **spec)
        await there.push("yours", entry("password", "db"), deletionPolicy="Delete", **OFTEN, **spec)

        for side, name in ((stage, "mine"), (there, "yours")):
            await contended(
                side, name, f"in ClusterSecretStore/{shared}: an object in another namespace also writes it"
            )
        await stage.ready("mine", "another PushSecret overwrote")
        assert (await stage.condition("mine", "Contended"))["reason"] == "SharedPlace"
        assert stage.provider.values == {"db": theirs.encode()}
        await there.bench.delete(PUSHES, "yours")
        await there.gone("yours")
        await stage.holds(db="here")
        await settled(stage, "mine")
        told = [await texts(stage), await texts(there)]
        assert [name for name in ("yours", f"{home}") if name in told[0]] == []
        assert [name for name in ("mine", f"{bench.namespace}/") if name in told[1]] == []
        await bench.delete(PUSHES, "mine")
        await bench.delete(CLUSTER_STORES, shared)


async def texts(stage: Any) -> str:
    """Return all messages of events in the namespace."""
    listed = await stage.bench.api.get(f"/api/v1/namespaces/{stage.bench.namespace}/events")
    return "\n".join(each["message"] for each in listed.body["items"])


# --- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaving", "staying", "left"),
    [
        pytest.param(("user", "db", "user"), ("password", "db", "password"), {"db#password": b"p"}, id="a property"),
        pytest.param(
            ("user", "db", "a"), ("password", "db", "a.b"), {"db#a": b"u", "db#a.b": b"p"}, id="what another is within"
        ),
        pytest.param(("", "db"), ("user", "db", "user"), {"db": b"password=p;user=u", "db#user": b"u"}, id="the whole"),
        pytest.param(("user", "db"), ("user", "db"), {"db": b"u"}, id="the same place"),
    ],
)
async def test_a_deletion_takes_nothing_that_another_push_secret_still_pushes(
    staged: Any, leaving: tuple[str, ...], staying: tuple[str, ...], left: dict[str, bytes]
) -> None:
    """Marks cannot tell them apart: all pushed values carry the same one."""
    async with staged() as stage:
        await stage.source(user="u", password="p")
        await stage.push("leaving", entry(*leaving), deletionPolicy="Delete")
        await stage.push("staying", entry(*staying), deletionPolicy="Delete")

        await stage.bench.delete(PUSHES, "leaving")
        await stage.gone("leaving")
        await eventually(partial(_recorded, stage, "staying"), "the other one forgot what it pushed")

        assert stage.provider.values == left


async def _recorded(stage: Any, name: str) -> bool:
    return bool((await stage.status(name)).get("syncedPushSecrets"))
