"""ClusterExternalSecrets on a live API server: the rows of the contract's catalogue, by behaviour."""

from typing import Any

import pytest

from eso_testkit.operator.samples import samples_of
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import NAMESPACES

pytestmark = pytest.mark.live

TAKEN = "external secret already exists in namespace"
FORCE_SYNC = "external-secrets.io/force-sync"
SHOWN = {"refreshTime": "1h0m0s"}
"""The default interval, for `kubectl get`."""
SOME_FAILED = "one or more namespaces failed"


def _said(status: JsonObject) -> tuple[str, str, str]:
    """Status, reason and message of the one condition, which is taken out of the status; its time is there."""
    (condition,) = status.pop("conditions")
    assert condition["type"] == "Ready"
    assert condition["lastTransitionTime"]
    return condition["status"], condition["reason"], condition["message"]


async def test_each_matching_namespace_gets_the_external_secret(fleet: Any) -> None:
    """C1, R27, R31."""
    await fleet.namespaces("b", "a")
    await fleet.namespaces("other", labelled=False)
    async with fleet.running():
        stored = await fleet.create(externalSecretMetadata={"labels": {"team": "x"}})

        status = await fleet.provisioned("a", "b")

        child, parent = await fleet.child("a"), await fleet.parent()
    ready, reason, message = _said(status)
    assert (ready, reason) == ("True", "ChildrenNotReady")  # no controller syncs them here
    silent = "; ".join(f"{fleet.ns(name)}: it has not reported yet" for name in ("a", "b"))
    assert message == f"2 namespaces provisioned. 2 ExternalSecrets are not ready: {silent}"
    provisioned = [fleet.ns("a"), fleet.ns("b")]
    assert status == {**SHOWN, "externalSecretName": fleet.name, "provisionedNamespaces": provisioned}
    assert child["spec"] == stored["spec"]["externalSecretSpec"]
    assert child["metadata"]["labels"] == {"team": "x"}
    assert "annotations" not in child["metadata"]
    assert child["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "ClusterExternalSecret",
            "name": fleet.name,
            "uid": stored["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    managers = {entry["manager"] for entry in child["metadata"]["managedFields"]}
    assert managers == {"clusterexternalsecrets.external-secrets.io"}
    assert parent["metadata"]["finalizers"] == ["externalsecrets.external-secrets.io/clusterexternalsecret-cleanup"]
    assert await fleet.child("other") is None
    assert "finalizers" not in (await fleet.namespace("a"))["metadata"]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        pytest.param(
            {"namespaceSelector": None}, "NoNamespaceMatches", "The spec chooses no namespace", id="no selector, C2"
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"fan-out": "none"}}},
            "NoNamespaceMatches",
            "No namespace matches spec.namespaceSelector",
            id="nothing matches, C2",
        ),
        pytest.param(
            {"namespaceSelector": None, "namespaces": ["not-there"]},
            "NamespaceNotFound",
            "spec.namespaces names what does not exist: not-there",
            id="an unknown name, C3",
        ),
    ],
)
async def test_a_choice_of_no_namespace_is_ready_lists_none_and_says_why(
    fleet: Any, spec: JsonObject, reason: str, message: str
) -> None:
    async with fleet.running():
        await fleet.create(**spec)

        status = await fleet.provisioned()

    assert _said(status) == ("True", reason, f"0 namespaces provisioned. {message}")
    assert status == {**SHOWN, "externalSecretName": fleet.name}


async def test_ready_tells_how_the_children_are_and_stays_true(fleet: Any) -> None:
    """At once, with a refreshTime of 0: each turn of a child's Ready wakes the parent."""
    await fleet.namespaces("a", "b")
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a", "b")
        for name in ("a", "b"):
            await fleet.report(name, "True", "SecretSynced")
        well = await fleet.status(lambda status: status["conditions"][0]["reason"] == "Provisioned")

        await fleet.report("b", "False", "SecretSyncedError", "the store is gone")
        unwell = await fleet.status(lambda status: status["conditions"][0]["reason"] == "ChildrenNotReady")
        await fleet.report("b", "True", "SecretSynced")
        await fleet.status(lambda status: status["conditions"][0]["reason"] == "Provisioned")
    assert unwell["conditions"][0]["lastTransitionTime"] == well["conditions"][0]["lastTransitionTime"]
    assert _said(well) == ("True", "Provisioned", "2 namespaces provisioned")
    cause = f"1 ExternalSecret is not ready: {fleet.ns('b')}: the store is gone"
    assert _said(unwell) == ("True", "ChildrenNotReady", f"2 namespaces provisioned. {cause}")


async def test_all_forms_of_selection_add_up(fleet: Any) -> None:
    await fleet.namespaces("a", "b")
    await fleet.namespaces("c", "d", "e", labelled=False)
    expressions = [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [fleet.ns("c"), fleet.ns("a")]}]
    async with fleet.running():
        await fleet.create(namespaceSelectors=[{"matchExpressions": expressions}], namespaces=[fleet.ns("d")])

        await fleet.provisioned("a", "b", "c", "d")


async def test_a_namespace_labelled_later_is_provisioned_and_an_unlabelled_one_is_cleaned_up(fleet: Any) -> None:
    """C4, C5, R28, R29, R38: three namespaces, then one of them loses its label."""
    await fleet.namespaces("a", "b")
    await fleet.namespaces("late", labelled=False)
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a", "b")

        await fleet.label("late", fleet.mark)
        await fleet.provisioned("a", "b", "late")
        kept = await fleet.child("a")
        await fleet.label("b", None)

        await fleet.provisioned("a", "late")
        await fleet.no_child("b")
    assert await fleet.child("a") == kept
    assert "finalizers" not in (await fleet.namespace("b"))["metadata"]


async def test_a_namespace_created_later_is_provisioned(fleet: Any) -> None:
    """R28, by label and by name."""
    async with fleet.running():
        await fleet.create(refreshTime="0s", namespaces=[fleet.ns("named")])
        await fleet.provisioned()

        await fleet.namespaces("a")
        await fleet.namespaces("named", labelled=False)

        await fleet.provisioned("a", "named")


async def test_a_taken_name_fails_one_namespace_and_is_retried_when_it_is_free(fleet: Any) -> None:
    """C6, C7: at once, not at the next refreshTime."""
    await fleet.namespaces("a", "b")
    foreign = await fleet.foreign("a")
    async with fleet.running() as running:
        await fleet.create(refreshTime="0s")

        status = await fleet.failed()
        ready, reason, message = _said(status)
        assert (ready, reason) == ("False", "NamespacesFailed")
        assert message.startswith(f"{SOME_FAILED}: {fleet.ns('a')}: {TAKEN}. 1 namespace provisioned")
        assert status == {
            "externalSecretName": fleet.name,
            "provisionedNamespaces": [fleet.ns("b")],
            "failedNamespaces": [{"namespace": fleet.ns("a"), "reason": TAKEN}],
        }
        assert await fleet.child("a") == foreign
        await _exposed(running, fleet.name, {"True": 0.0, "False": 1.0})
        await fleet.bench.until_event(fleet.name, "Warning", "Errored")
        await fleet.bench.api.delete(fleet.path("a"))

        await fleet.provisioned("a", "b")
        await _exposed(running, fleet.name, {"True": 1.0, "False": 0.0})


async def _exposed(running: Any, name: str, wanted: dict[str, float]) -> None:
    """Wait for the series: the operator sets it right after the status, which the test may see first."""

    async def shown() -> bool:
        return _series(running, name) == wanted

    await eventually(shown, f"the condition is not exposed as {wanted}")


def _series(running: Any, name: str) -> dict[str, float]:
    return {
        sample.labels["status"]: sample.value
        for sample in samples_of(running.series.pages())
        if sample.name == "clusterexternalsecret_status_condition" and sample.labels["name"] == name
    }


async def test_two_parents_that_want_one_name_do_not_fight(fleet: Any) -> None:
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create(externalSecretName="shared")
        await fleet.provisioned("a")
        first = await fleet.child("a", "shared")
        second = {"externalSecretSpec": {}, "externalSecretName": "shared", "namespaces": [fleet.ns("a")]}
        resource = fleet.fan_out.parent.resource
        await fleet.bench.create(resource, f"second-{fleet.mark}", spec=second)
        await fleet.bench.ready(resource, f"second-{fleet.mark}", lambda condition: condition.status == "False")
        assert await fleet.child("a", "shared") == first

        await fleet.bench.delete(resource, fleet.name)

        await fleet.bench.ready(resource, f"second-{fleet.mark}", lambda condition: condition.status == "True")


async def test_a_renamed_external_secret_moves(fleet: Any) -> None:
    """C8."""
    await fleet.namespaces("a", "b")
    async with fleet.running():
        await fleet.create()
        await fleet.provisioned("a", "b")

        await fleet.patch({"spec": {"externalSecretName": "renamed"}})

        await fleet.status(lambda status: status.get("externalSecretName") == "renamed")
        for namespace in ("a", "b"):
            await fleet.no_child(namespace)
            assert await fleet.child(namespace, "renamed") is not None


async def test_a_changed_parent_rewrites_every_child_as_a_whole(fleet: Any) -> None:
    """C9."""
    await fleet.namespaces("a", "b")
    async with fleet.running():
        await fleet.create(externalSecretMetadata={"labels": {"one": "1", "two": "2"}, "annotations": {"x": "y"}})
        await fleet.provisioned("a", "b")

        metadata = {"labels": {"one": "1", "two": None}, "annotations": None}
        await fleet.patch(
            {"spec": {"externalSecretMetadata": metadata, "externalSecretSpec": {"refreshInterval": "2h"}}}
        )

        for namespace in ("a", "b"):
            child = await fleet.child_is(
                namespace, lambda child: child["spec"]["refreshInterval"] == "2h", "the spec did not arrive"
            )
            assert child["metadata"]["labels"] == {"one": "1"}
            assert "annotations" not in child["metadata"]


async def test_the_force_sync_annotation_is_mirrored_and_taken_back(fleet: Any) -> None:
    """C10."""
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create({"annotations": {FORCE_SYNC: "1", "other": "stays"}})
        await fleet.provisioned("a")
        assert (await fleet.child("a"))["metadata"]["annotations"] == {FORCE_SYNC: "1"}

        await fleet.patch({"metadata": {"annotations": {FORCE_SYNC: "2"}}})
        await fleet.child_is("a", lambda child: child["metadata"]["annotations"] == {FORCE_SYNC: "2"}, "not mirrored")
        await fleet.patch({"metadata": {"annotations": {FORCE_SYNC: None}}})

        await fleet.child_is("a", lambda child: "annotations" not in child["metadata"], "not taken back")


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"spec": {"refreshInterval": "5m"}}, id="a field changed"),
        pytest.param({"spec": {"target": {"immutable": True}}}, id="a field added"),
        pytest.param({"spec": {"data": None}}, id="a field removed"),
        pytest.param({"metadata": {"labels": {"by": "hand"}}}, id="a label added"),
        pytest.param({"metadata": {"annotations": {"by": "hand"}}}, id="an annotation added"),
    ],
)
async def test_a_manual_edit_is_reverted(fleet: Any, edit: JsonObject) -> None:
    """C11."""
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a")
        before = await fleet.child("a")

        await fleet.edit_child("a", edit)

        after = await fleet.child_is(
            "a",
            lambda child: child["spec"] == before["spec"] and not child["metadata"].keys() & {"labels", "annotations"},
            "not reverted",
        )
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_child_deleted_by_hand_is_made_again(fleet: Any) -> None:
    """C11."""
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a")
        before = await fleet.child("a")

        await fleet.bench.api.delete(fleet.path("a"))

        await fleet.child_is("a", lambda child: child["metadata"]["uid"] != before["metadata"]["uid"], "not made again")


async def test_a_child_that_is_no_longer_owned_is_not_changed(fleet: Any) -> None:
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a")

        await fleet.edit_child("a", {"metadata": {"ownerReferences": None}, "spec": {"refreshInterval": "5m"}})
        status = await fleet.failed()
        await fleet.label("a", None)

        await fleet.provisioned()
    assert status["failedNamespaces"] == [{"namespace": fleet.ns("a"), "reason": TAKEN}]
    assert (await fleet.child("a"))["spec"]["refreshInterval"] == "5m"


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}, '"Is"', id="operator"),
        pytest.param({"matchLabels": {"a": "not a value"}}, "not a value", id="value"),
    ],
)
async def test_a_broken_selector_is_reported_and_deletes_nothing(
    fleet: Any, selector: JsonObject, complaint: str
) -> None:
    """C14."""
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create()
        await fleet.provisioned("a")
        before = await fleet.child("a")

        await fleet.patch({"spec": {"namespaceSelectors": [selector], "namespaceSelector": None}})
        status = await fleet.failed()
        assert await fleet.child("a") == before
        await fleet.patch({"spec": {"namespaceSelectors": [fleet.selector]}})

        await fleet.provisioned("a")
    (failure,) = status["failedNamespaces"]
    assert failure["namespace"] == "unknown"
    assert "spec.namespaceSelectors[0]: " in failure["reason"]
    assert complaint in failure["reason"]
    assert status["provisionedNamespaces"] == [fleet.ns("a")]
    assert _said(status) == ("False", "Errored", f"{SOME_FAILED}: {failure['reason']}")


async def test_a_long_name_is_no_obstacle(fleet: Any) -> None:
    """C16: nothing is derived from it that has a bound of its own."""
    await fleet.namespaces("a")
    long = f"{'x' * 200}-{fleet.mark}"
    resource = fleet.fan_out.parent.resource
    spec = {"externalSecretSpec": {"refreshInterval": "1h"}, "namespaceSelector": fleet.selector}
    async with fleet.running():
        await fleet.bench.create(resource, long, spec=spec)
        await fleet.bench.ready(resource, long, lambda condition: condition.status == "True")
        assert await fleet.child("a", long) is not None

        await fleet.bench.delete(resource, long)

        await fleet.no_child("a", long)


async def test_an_idle_parent_is_looked_at_and_nothing_is_written(fleet: Any) -> None:
    await fleet.namespaces("a", "b")
    async with fleet.running() as running:
        await fleet.create(refreshTime=1)
        await fleet.provisioned("a", "b")
        await running.looked_again(fleet.name, 1)
        running.writes.clear()

        await running.looked_again(fleet.name, 2)

        assert running.writes_of(fleet) == []


async def test_a_restarted_operator_writes_nothing(fleet: Any) -> None:
    await fleet.namespaces("a", "b")
    async with fleet.running() as running:
        await fleet.create()
        await fleet.provisioned("a", "b")
    # A finalizer, two children, a status: not one write more.
    ours = running.writes_of(fleet)
    assert len(ours) == 4, ours
    async with fleet.running() as running:
        await running.looked_again(fleet.name, 1)

        assert running.writes_of(fleet) == []


async def test_children_of_the_existing_operator_are_taken_over_without_a_write(fleet: Any) -> None:
    """They spell durations out, carry another manager, and their namespaces a finalizer, which is taken off."""
    await fleet.namespaces("a")
    finalizer = f"externalsecrets.external-secrets.io/ces-{fleet.name}"
    await fleet.bench.patch(NAMESPACES, fleet.ns("a"), {"metadata": {"finalizers": [finalizer]}})
    stored = await fleet.create()
    await fleet.foreign("a")
    owner = {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ClusterExternalSecret",
        "name": fleet.name,
        "uid": stored["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    spec = {"refreshInterval": "1h0m0s", "target": {"creationPolicy": "Owner", "deletionPolicy": "Retain"}}
    await fleet.edit_child("a", {"metadata": {"ownerReferences": [owner]}, "spec": spec})
    before = await fleet.child("a")
    async with fleet.running() as running:
        await fleet.provisioned("a")

        await eventually(lambda: _without_finalizers(fleet, "a"), "the finalizer is still there")
    ours = running.writes_of(fleet)
    assert await fleet.child("a") == before
    assert sorted(write.split("/")[-1] for write in ours) == sorted([fleet.name, "status", fleet.ns("a")])


async def _without_finalizers(fleet: Any, namespace: str) -> bool:
    found = await fleet.namespace(namespace)
    return found is None or not found["metadata"].get("finalizers")


async def test_kubectl_shows_store_refresh_interval_and_readiness(fleet: Any) -> None:
    """R30."""
    await fleet.namespaces("a")
    async with fleet.running():
        await fleet.create(refreshTime="30m")
        await fleet.provisioned("a")

    path = fleet.fan_out.parent.resource.path("", fleet.name)
    table = await fleet.bench.api.get(path, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    child = await fleet.bench.api.get(fleet.path("a"), accept="application/json;as=Table;g=meta.k8s.io;v=v1")

    columns = [column["name"] for column in table.body["columnDefinitions"]]
    shown = dict(zip(columns, table.body["rows"][0]["cells"], strict=True))
    assert (shown["Store"], shown["Refresh Interval"], shown["Ready"]) == ("shared", "30m", "True")
    assert {"StoreType", "Store", "Refresh Interval", "Status", "Ready"} <= {
        column["name"] for column in child.body["columnDefinitions"]
    }
