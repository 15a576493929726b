"""Namespaces: the initial ones, their service accounts, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubebase.clock import SystemClock
from localkube.cluster import Cluster
from localkube.testing.verbs import Verbs, config_map, definition, refusal, thing


def namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
async def inside(verbs: Verbs) -> Verbs:
    """The verbs inside a namespace called `tmp`."""
    await verbs.create("namespaces", namespace("tmp"))
    await verbs.until_idle()
    return Verbs(verbs.cluster, "tmp")


async def test_every_cluster_starts_with_four(verbs: Verbs) -> None:
    assert await verbs.names("namespaces") == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_they_are_made_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        first = await Verbs(cluster).get("namespaces", "default")

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        assert await Verbs(cluster).get("namespaces", "default") == first


async def test_a_new_namespace_is_active_labelled_and_held(verbs: Verbs) -> None:
    obj = namespace("tmp") | {"status": {"phase": "Terminating"}}

    written = (await verbs.create("namespaces", obj)).object

    assert written["status"] == {"phase": "Active"}
    assert written["spec"] == {"finalizers": ["kubernetes"]}
    assert written["metadata"]["labels"] == {"kubernetes.io/metadata.name": "tmp"}


async def test_every_namespace_gets_a_default_service_account(inside: Verbs) -> None:
    first = await inside.get("serviceaccounts", "default")

    await inside.delete("serviceaccounts", "default")
    await inside.until_idle()

    assert (await inside.get("serviceaccounts", "default"))["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_cannot_be_deleted(verbs: Verbs, name: str) -> None:
    error = await refusal(verbs.delete("namespaces", name))

    assert (error.code, error.message) == (403, f'namespaces "{name}" is forbidden: this namespace may not be deleted')


async def test_a_deleted_namespace_takes_everything_with_it(inside: Verbs) -> None:
    await inside.create("customresourcedefinitions.apiextensions.k8s.io", definition())
    await inside.create("configmaps", config_map("a"))
    await inside.create("things.example.com", thing("t"))

    answer = await inside.delete("namespaces", "tmp")
    await inside.until_gone("namespaces", "tmp")

    assert answer["status"]["phase"] == "Terminating"
    assert answer["metadata"]["deletionTimestamp"]
    for resource in ("configmaps", "things.example.com", "serviceaccounts"):
        assert await inside.names(resource) == []


async def test_nothing_is_created_in_a_namespace_that_is_going(inside: Verbs) -> None:
    await inside.create("configmaps", config_map("held", finalizers=["a.b/c"]))
    await inside.delete("namespaces", "tmp")

    error = await refusal(inside.create("configmaps", config_map("new")))

    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.message == (
        'configmaps "new" is forbidden: unable to create new content in namespace tmp because it is being terminated'
    )
    assert error.details["causes"][0]["reason"] == "NamespaceTerminating"


async def test_finalizers_of_what_is_inside_are_honoured_and_reported(inside: Verbs) -> None:
    await inside.create("configmaps", config_map("held", finalizers=["a.b/c"]))
    await inside.create("configmaps", config_map("free"))

    await inside.delete("namespaces", "tmp")
    await inside.until_gone("configmaps", "free")
    await inside.until_idle()
    waiting = await inside.get("namespaces", "tmp")
    await inside.patch("configmaps", "held", {"metadata": {"finalizers": None}})
    await inside.until_gone("namespaces", "tmp")

    conditions = {one["type"]: one for one in waiting["status"]["conditions"]}
    assert conditions["NamespaceContentRemaining"]["status"] == "True"
    assert conditions["NamespaceFinalizersRemaining"]["message"].endswith("a.b/c in 1 resource instances")
    assert conditions["NamespaceDeletionContentFailure"]["status"] == "False"


async def test_a_finalizer_of_the_namespace_itself_keeps_it(inside: Verbs) -> None:
    await inside.patch("namespaces", "tmp", {"metadata": {"finalizers": ["a.b/c"]}})
    await inside.delete("namespaces", "tmp")
    await inside.until_idle()

    emptied = await inside.get("namespaces", "tmp")
    await inside.patch("namespaces", "tmp", {"metadata": {"finalizers": None}})

    assert emptied["spec"] == {}
    assert not await inside.exists("namespaces", "tmp")


async def test_somebody_else_may_finalize(inside: Verbs) -> None:
    await inside.create("configmaps", config_map("held", finalizers=["a.b/c"]))
    await inside.delete("namespaces", "tmp")
    await inside.until_idle()
    obj = await inside.get("namespaces", "tmp")
    obj["spec"] = {"finalizers": []}

    await inside.update("namespaces", obj, "finalize")

    assert not await inside.exists("namespaces", "tmp")


async def test_the_finalizers_of_the_spec_cannot_be_changed_otherwise(inside: Verbs) -> None:
    written = await inside.patch("namespaces", "tmp", {"spec": {"finalizers": []}})

    assert written.object["spec"] == {"finalizers": ["kubernetes"]}


async def test_an_interrupted_deletion_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster, "tmp")
        await verbs.create("namespaces", namespace("tmp"))
        await verbs.create("configmaps", config_map("a"))
        await verbs.until_idle()
        cluster.store._listeners.clear()  # as if the process died before any controller reacted
        await verbs.delete("namespaces", "tmp")
        assert await verbs.exists("configmaps", "a")

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        await Verbs(cluster, "tmp").until_gone("namespaces", "tmp")


async def test_a_large_namespace_is_emptied(inside: Verbs) -> None:
    for index in range(1100):
        await inside.create("configmaps", config_map(f"n{index}"))

    await inside.delete("namespaces", "tmp")

    await inside.until_gone("namespaces", "tmp")
    assert await inside.names("configmaps") == []


async def test_many_held_objects_do_not_hide_the_free_ones_behind_them(inside: Verbs) -> None:
    for index in range(520):
        await inside.create("configmaps", config_map(f"held-{index}", finalizers=["a.b/c"]))
    await inside.create("configmaps", config_map("zz-free"))

    await inside.delete("namespaces", "tmp")

    await inside.until_gone("configmaps", "zz-free")
