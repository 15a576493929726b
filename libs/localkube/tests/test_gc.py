"""Garbage collection: which dependents go, which stay, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from localkube.cluster import Cluster
from localkube.testing.verbs import Verbs, config_map


def owned_by(*owners: JsonObject, block: bool = False) -> list[JsonObject]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
        }
        for owner in owners
    ]


async def make(verbs: Verbs, name: str, *owners: JsonObject, block: bool = False, **metadata: Any) -> JsonObject:
    if owners:
        metadata["ownerReferences"] = owned_by(*owners, block=block)
    return (await verbs.create("configmaps", config_map(name, **metadata))).object


async def test_dependents_go_with_their_owner(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    child = await make(verbs, "child", owner)
    await make(verbs, "grandchild", child)
    await make(verbs, "unrelated")

    await verbs.delete("configmaps", "owner")
    await verbs.until_gone("configmaps", "grandchild")

    assert await verbs.names("configmaps") == ["unrelated"]


async def test_a_dependent_of_an_absent_owner_is_deleted(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    await verbs.delete("configmaps", "owner")

    await make(verbs, "late", owner)

    await verbs.until_gone("configmaps", "late")


async def test_an_object_of_the_same_name_but_another_uid_is_not_the_owner(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    owner["metadata"]["uid"] = "another"

    await make(verbs, "child", owner)

    await verbs.until_gone("configmaps", "child")
    assert await verbs.exists("configmaps", "owner")


async def test_a_dependent_with_another_living_owner_stays_and_forgets_the_dead_one(verbs: Verbs) -> None:
    one, two = await make(verbs, "one"), await make(verbs, "two")
    await make(verbs, "child", one, two)

    await verbs.delete("configmaps", "one")
    await verbs.until_idle()

    child = await verbs.get("configmaps", "child")
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["two"]


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param({"apiVersion": "unknown.example/v1", "kind": "Thing"}, id="an unknown kind"),
        pytest.param({"apiVersion": "v1", "kind": "Unknown"}, id="an unknown kind of a known group"),
    ],
)
async def test_an_owner_that_cannot_be_looked_up_counts_as_alive(verbs: Verbs, owner: JsonObject) -> None:
    await make(verbs, "child", {**owner, "metadata": {"name": "x", "uid": "y"}})

    await verbs.until_idle()

    assert await verbs.exists("configmaps", "child")


async def test_an_owner_in_another_namespace_does_not_count(verbs: Verbs) -> None:
    owner = await make(Verbs(verbs.cluster, "kube-system"), "owner")

    await make(verbs, "child", owner)

    await verbs.until_gone("configmaps", "child")


async def test_a_cluster_scoped_dependent_of_a_namespaced_owner_stays(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    kind = verbs.kind("clusterroles.rbac.authorization.k8s.io")
    role = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": "role", "ownerReferences": owned_by(owner)},
        "rules": [],
    }
    await verbs.create("clusterroles.rbac.authorization.k8s.io", role)
    await verbs.delete("configmaps", "owner")

    await verbs.until_idle()

    assert await verbs.exists("clusterroles.rbac.authorization.k8s.io", "role")


class TestForeground:
    async def test_dependents_go_first(self, verbs: Verbs) -> None:
        owner = await make(verbs, "owner")
        await make(verbs, "child", owner, block=True, finalizers=["a.b/c"])

        answer = await verbs.delete("configmaps", "owner", propagation="Foreground")
        await verbs.until_idle()
        owner_waits = await verbs.exists("configmaps", "owner")
        child = await verbs.get("configmaps", "child")
        await verbs.patch("configmaps", "child", {"metadata": {"finalizers": None}})
        await verbs.until_gone("configmaps", "owner")

        assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert owner_waits
        assert child["metadata"]["deletionTimestamp"]

    async def test_dependents_of_dependents_go_before_them(self, verbs: Verbs) -> None:
        owner = await make(verbs, "owner")
        child = await make(verbs, "child", owner, block=True)
        await make(verbs, "grandchild", child, block=True, finalizers=["a.b/c"])

        await verbs.delete("configmaps", "owner", propagation="Foreground")
        await verbs.until_idle()
        waiting = await verbs.names("configmaps")
        await verbs.patch("configmaps", "grandchild", {"metadata": {"finalizers": None}})
        await verbs.until_gone("configmaps", "owner")

        assert waiting == ["child", "grandchild", "owner"]
        assert await verbs.names("configmaps") == []

    async def test_dependents_that_do_not_block_are_not_waited_for(self, verbs: Verbs) -> None:
        owner = await make(verbs, "owner")
        await make(verbs, "child", owner, finalizers=["a.b/c"])

        await verbs.delete("configmaps", "owner", propagation="Foreground")
        await verbs.until_gone("configmaps", "owner")
        await verbs.until_idle()

        assert (await verbs.get("configmaps", "child"))["metadata"]["deletionTimestamp"]

    async def test_an_owner_without_dependents_goes_at_once(self, verbs: Verbs) -> None:
        await make(verbs, "owner")

        await verbs.delete("configmaps", "owner", propagation="Foreground")

        await verbs.until_gone("configmaps", "owner")

    async def test_a_background_deletion_ends_the_waiting(self, verbs: Verbs) -> None:
        owner = await make(verbs, "owner")
        await make(verbs, "child", owner, block=True, finalizers=["a.b/c"])
        await verbs.delete("configmaps", "owner", propagation="Foreground")

        answer = await verbs.delete("configmaps", "owner", propagation="Background")

        assert answer["status"] == "Success"
        assert not await verbs.exists("configmaps", "owner")


async def test_orphans_lose_the_reference_and_stay(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    await make(verbs, "child", owner)

    answer = await verbs.delete("configmaps", "owner", propagation="Orphan")
    await verbs.until_gone("configmaps", "owner")

    child = await verbs.get("configmaps", "child")
    assert answer["metadata"]["finalizers"] == ["orphan"]
    assert "ownerReferences" not in child["metadata"]


async def test_garbage_left_before_a_restart_is_collected_after_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        owner = await make(verbs, "owner")
        await make(verbs, "child", owner, block=True)
        await verbs.until_idle()
        # As if the process had died between the two: the owner goes and the event is lost.
        cluster.store._listeners.clear()
        await verbs.delete("configmaps", "owner")
        assert await verbs.exists("configmaps", "child")

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        await Verbs(cluster).until_gone("configmaps", "child")


async def test_many_dependents_are_collected(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    for index in range(300):
        await make(verbs, f"child-{index}", owner)

    await verbs.delete("configmaps", "owner")
    await verbs.until_idle()

    assert await verbs.names("configmaps") == []


async def test_many_orphans_are_freed(verbs: Verbs) -> None:
    owner = await make(verbs, "owner")
    for index in range(450):
        await make(verbs, f"child-{index}", owner)

    await verbs.delete("configmaps", "owner", propagation="Orphan")
    await verbs.until_gone("configmaps", "owner")
    await verbs.until_idle()

    children = (await verbs.list("configmaps")).items
    assert len(children) == 450
    assert not any("ownerReferences" in child["metadata"] for child in children)
