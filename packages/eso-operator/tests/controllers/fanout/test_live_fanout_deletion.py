"""Deletion of children, parents and namespaces, on a live API server."""

from typing import Any

import pytest

from eso_testkit.operator.samples import samples_of
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import NAMESPACES

pytestmark = pytest.mark.live

LEFT = "externalsecrets.external-secrets.io/ces-"
CLEANUP = "externalsecrets.external-secrets.io/clusterexternalsecret-cleanup"


async def gone(look: Any) -> bool:
    return await look() is None


async def test_a_deleted_parent_takes_its_children_along_and_leaves_no_metrics(fleet: Any) -> None:
    """C12."""
    await fleet.namespaces("a", "b")
    async with fleet.running() as running:
        await fleet.create()
        await fleet.provisioned("a", "b")

        await fleet.bench.delete(fleet.fan_out.parent.resource, fleet.name)

        await eventually(lambda: gone(fleet.parent), "the parent is still there")
        await fleet.no_child("a")
        await fleet.no_child("b")
        await eventually(lambda: _no_series(running, fleet.name), "there are still series")
    deletions = [write for write in running.writes if write.startswith("DELETE")]
    assert len(deletions) == 2, "the operator deletes children itself: the parent is gone after them"


async def _no_series(running: Any, name: str) -> bool:
    return not any(sample.labels["name"] == name for sample in samples_of(running.series.pages()))


async def test_a_parent_deleted_while_no_operator_runs_waits_for_the_operator(fleet: Any) -> None:
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create()
        await fleet.provisioned("a")
    await fleet.bench.delete(fleet.fan_out.parent.resource, fleet.name)
    assert (await fleet.parent())["metadata"]["finalizers"] == [CLEANUP]

    async with fleet.running():
        await eventually(lambda: gone(fleet.parent), "the parent is still there")

        await fleet.no_child("a")


async def test_a_parent_deleted_with_its_children_told_to_stay_leaves_them(fleet: Any) -> None:
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create()
        await fleet.provisioned("a")
        path = fleet.fan_out.parent.resource.path("", fleet.name)

        await fleet.bench.api.delete(path, {"propagationPolicy": "Orphan"})

        await eventually(lambda: gone(fleet.parent), "the parent is still there")
        await fleet.child_is("a", lambda child: not child["metadata"].get("ownerReferences"), "it still has an owner")


async def test_a_finalizer_taken_off_by_hand_is_put_back(fleet: Any) -> None:
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned()

        await fleet.patch({"metadata": {"finalizers": None}})

        async def back() -> bool:
            return CLEANUP in (await fleet.parent())["metadata"].get("finalizers", [])

        await eventually(back, "the finalizer is not back")


async def test_a_namespace_that_is_deleted_while_selected_goes_and_is_reported_no_more(fleet: Any) -> None:
    """C13."""
    await fleet.namespaces("a", "b")
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a", "b")

        await fleet.bench.api.delete(f"/api/v1/namespaces/{fleet.ns('b')}")

        await fleet.provisioned("a")
        await eventually(lambda: gone(lambda: fleet.namespace("b")), "the namespace is still there")


async def test_a_namespace_that_cannot_go_yet_gets_no_new_child(fleet: Any) -> None:
    """A finalizer of another writer blocks the namespace; until then it is neither provisioned nor failed."""
    await fleet.namespaces("a", "b")
    await fleet.bench.patch(NAMESPACES, fleet.ns("b"), {"metadata": {"finalizers": ["example.com/hold"]}})
    async with fleet.running() as running:
        await fleet.create(refreshTime=1)
        await fleet.provisioned("a", "b")

        await fleet.bench.api.delete(f"/api/v1/namespaces/{fleet.ns('b')}")
        await fleet.provisioned("a")
        await fleet.no_child("b")
        running.writes.clear()

        await running.looked_again(fleet.name, 2)

        assert running.writes_of(fleet) == []
        await fleet.bench.patch(NAMESPACES, fleet.ns("b"), {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("exists", [pytest.param(True, id="its parent is there"), pytest.param(False, id="it is gone")])
async def test_a_namespace_is_never_held_by_what_the_existing_operator_left(fleet: Any, exists: bool) -> None:
    """C5, C13: whether the namespace is selected or not."""
    await fleet.namespaces("stuck", labelled=False)
    others = ["example.com/hold"]
    finalizers = {"metadata": {"finalizers": [f"{LEFT}{fleet.name}", *others]}}
    await fleet.bench.patch(NAMESPACES, fleet.ns("stuck"), finalizers)
    await fleet.bench.api.delete(f"/api/v1/namespaces/{fleet.ns('stuck')}")
    if exists:
        await fleet.create()
    async with fleet.running():

        async def released() -> bool:
            return bool((await fleet.namespace("stuck"))["metadata"]["finalizers"] == others)

        await eventually(released, "the finalizer is still there")


async def test_a_child_held_by_a_finalizer_is_made_again_when_it_is_gone(fleet: Any) -> None:
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a")
        before = await fleet.child("a")
        await fleet.edit_child("a", {"metadata": {"finalizers": ["example.com/hold"]}})
        await fleet.bench.api.delete(fleet.path("a"))

        status = await fleet.failed()
        await fleet.edit_child("a", {"metadata": {"finalizers": None}})

        await fleet.provisioned("a")
        after: JsonObject = await fleet.child("a")
    assert "being deleted" in status["failedNamespaces"][0]["reason"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
