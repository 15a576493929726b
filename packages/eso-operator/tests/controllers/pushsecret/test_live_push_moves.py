"""A PushSecret that switches between stores of both generations, forth and back. On a live API server.

A v1 store and its v2 successor lead to the same place: a value there is neither deleted nor lost from the records.
"""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.operator.operators import BACKEND_ID
from eso_testkit.operator.pushsecrets import entry
from kubebase.testing.waiting import eventually

pytestmark = pytest.mark.live

V1: dict[str, Any] = {"kind": "SecretStore", "name": "store"}
V2: dict[str, Any] = {"apiVersion": SECRET_STORE_V2.resource().api_version, "kind": "SecretStore", "name": "store"}
V1_KEY, V2_KEY = "SecretStore/store", f"{SECRET_STORE_V2.group}/SecretStore/store"
SAME = {"data": [{"key": "a", "value": "b"}]}
OTHER = {"data": [{"key": "a", "value": "another place"}]}


async def v2_store(stage: Any, spec: dict[str, Any]) -> None:
    inline = {"apiVersion": BACKEND_ID.api_version, "kind": BACKEND_ID.kind, "spec": spec}
    await stage.bench.create(SECRET_STORE_V2.resource(), "store", spec={"providerConfig": {"inline": inline}})


async def refer(stage: Any, *refs: dict[str, Any], to: dict[str, list[str]]) -> None:
    """Name these stores; the status lists exactly these values when this returns."""
    await stage.change("db", secretStoreRefs=list(refs))

    async def look() -> bool:
        synced = (await stage.status("db")).get("syncedPushSecrets", {})
        return {store: sorted(entries) for store, entries in synced.items()} == to

    await eventually(look, f"the status does not list {to}")


@pytest.mark.parametrize("policy", ["Replace", "IfNotExists"])
async def test_forth_and_back_no_value_is_deleted_even_for_a_moment(staged: Any, policy: str) -> None:
    """R134, R168: from a v1 store to its v2 successor and back, also with both named in between."""
    async with staged() as stage:
        await stage.source(password="p")
        await v2_store(stage, SAME)
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete", updatePolicy=policy)

        await refer(stage, V2, to={V2_KEY: ["db"]})
        await refer(stage, V1, to={V1_KEY: ["db"]})
        both = {V1_KEY: ["db"], V2_KEY: ["db"]} if policy == "Replace" else {V1_KEY: ["db"]}
        await refer(stage, V1, V2, to=both)
        await refer(stage, V2, to={V2_KEY: ["db"]})

        assert stage.provider.deletions == []
        assert stage.provider.values == {"db": b"p"}
        assert await stage.condition("db", "SecretAlreadyExists") is None
        await stage.bench.delete(PUSH_SECRET.resource(), "db")
        await stage.gone("db")
        assert stage.provider.values == {}, "the value still belongs to the PushSecret"


async def test_a_value_that_is_dropped_with_the_switch_is_deleted(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="p")
        await v2_store(stage, SAME)
        await stage.push("db", entry("password", "old"), entry("password", "stays"), deletionPolicy="Delete")

        await stage.change("db", secretStoreRefs=[V2], data=[entry("password", "stays")])
        await refer(stage, V2, to={V2_KEY: ["stays"]})

        assert stage.provider.values == {"stays": b"p"}
        assert [item.remote.key for batch in stage.provider.deletions for item in batch.items] == ["old"]


async def test_a_store_of_another_place_loses_its_values_as_ever(staged: Any) -> None:
    async with staged() as stage:
        await stage.source(password="p")
        await v2_store(stage, OTHER)
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete")

        await refer(stage, V2, to={V2_KEY: ["db"]})

        assert [item.remote.key for batch in stage.provider.deletions for item in batch.items] == ["db"]


async def test_a_value_of_two_push_secrets_is_kept_while_they_switch_one_after_the_other(staged: Any) -> None:
    """R148: the first one names the v2 store already; the other one, still at v1, is deleted."""
    async with staged() as stage:
        await stage.source(password="p")
        await v2_store(stage, SAME)
        await stage.push("db", entry("password", "db"), deletionPolicy="Delete", secretStoreRefs=[V2])
        await stage.push("other", entry("password", "db"), deletionPolicy="Delete")

        await stage.bench.delete(PUSH_SECRET.resource(), "other")
        await stage.gone("other")
        assert stage.provider.values == {"db": b"p"}
        await stage.bench.delete(PUSH_SECRET.resource(), "db")
        await stage.gone("db")

        assert stage.provider.values == {}, "the last one takes the value along"
