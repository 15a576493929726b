"""The desired child, and the step for a live one."""

from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.fanout.kinds import (
    CLUSTER_EXTERNAL_SECRETS,
    CLUSTER_PUSH_SECRETS,
    FORCE_SYNC,
    StoredClusterExternalSecret,
    StoredClusterPushSecret,
    comparable_external_secret,
)
from eso_operator.controllers.fanout.sync import (
    BeingDeleted,
    ChildChange,
    CreateChild,
    Desired,
    NameTaken,
    NoSpecError,
    PatchChild,
    UpToDate,
    desired_of,
    step,
)
from kubebase.meta import JsonObject, Malformed, ObjectKey, ObjectMeta, OwnerReference

KEY = ObjectKey("team-a", "db")
SPEC: JsonObject = {
    "secretStoreRef": {"name": "vault"},
    "refreshInterval": "1h",
    "dataFrom": [{"extract": {"key": "db"}}],
}
OWNER = {
    "apiVersion": "external-secrets.io/v1",
    "kind": "ClusterExternalSecret",
    "name": "everywhere",
    "uid": "uid-1",
    "controller": True,
    "blockOwnerDeletion": True,
}
FRIEND = {"apiVersion": "v1", "kind": "ConfigMap", "name": "friend", "uid": "uid-9"}


def parent(annotations: dict[str, str] | None = None, **spec: Any) -> StoredClusterExternalSecret:
    document = {
        "metadata": {"name": "everywhere", "uid": "uid-1", "annotations": annotations or {}},
        "spec": {"externalSecretSpec": SPEC, **spec},
    }
    return msgspec.convert(document, StoredClusterExternalSecret)


def desired(annotations: dict[str, str] | None = None, **spec: Any) -> Desired:
    return desired_of(CLUSTER_EXTERNAL_SECRETS, parent(annotations, **spec))


def live(spec: JsonObject = SPEC, **metadata: Any) -> ExternalSecret:
    named = {"name": "db", "namespace": "team-a", "uid": "uid-es", "resourceVersion": "7", "ownerReferences": [OWNER]}
    return msgspec.convert({"metadata": {**named, **metadata}, "spec": spec}, ExternalSecret)


def planned(wanted: Desired, found: ExternalSecret | Malformed | None) -> ChildChange:
    return step(CLUSTER_EXTERNAL_SECRETS, wanted, KEY, found)


def patched(what: ChildChange) -> dict[str, Any]:
    assert isinstance(what, PatchChild)
    return {operation["path"]: operation["value"] for operation in what.operations}


def test_an_absent_child_is_created_with_what_the_parent_stores_and_nothing_more() -> None:
    wanted = desired(externalSecretMetadata={"labels": {"a": "b"}, "annotations": {"c": "d"}})

    assert planned(wanted, None) == CreateChild(
        {
            "metadata": {
                "name": "db",
                "namespace": "team-a",
                "ownerReferences": [OWNER],
                "labels": {"a": "b"},
                "annotations": {"c": "d"},
            },
            "spec": SPEC,
        }
    )


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(live(), id="exactly as the parent stores it"),
        pytest.param(live({**SPEC, "refreshInterval": "1h0m0s"}), id="its duration as the existing operator spells it"),
        pytest.param(live({**SPEC, "refreshInterval": 3600}), id="its duration in seconds"),
        pytest.param(
            live(
                {**SPEC, "target": {"creationPolicy": "Owner", "deletionPolicy": "Retain"}, "refreshPolicy": "Periodic"}
            ),
            id="defaults written down",
        ),
        pytest.param(live(ownerReferences=[FRIEND, OWNER]), id="another owner beside the parent"),
        pytest.param(live(finalizers=["another/owner"]), id="a finalizer"),
    ],
)
def test_a_child_that_means_the_same_is_not_written(found: ExternalSecret) -> None:
    assert planned(desired(), found) == UpToDate()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(live({**SPEC, "refreshInterval": "2h"}), {"/spec": SPEC}, id="an edited spec"),
        pytest.param(live({**SPEC, "target": {"immutable": True}}), {"/spec": SPEC}, id="an added field of the spec"),
        pytest.param(live(labels={"x": "y"}), {"/metadata/labels": {}}, id="an added label"),
        pytest.param(live(annotations={"x": "y"}), {"/metadata/annotations": {}}, id="an added annotation"),
        pytest.param(
            live(ownerReferences=[FRIEND, {**OWNER, "uid": "uid-0"}]),
            {"/metadata/ownerReferences": [FRIEND, OWNER]},
            id="a reference to a parent of the same name that is gone",
        ),
        pytest.param(
            live(ownerReferences=[{**OWNER, "apiVersion": "external-secrets.io/v1beta1"}]),
            {"/metadata/ownerReferences": [OWNER]},
            id="a reference to another version of the parent's kind",
        ),
    ],
)
def test_only_what_differs_is_replaced_and_as_a_whole(found: ExternalSecret, expected: dict[str, Any]) -> None:
    """C9, C11."""
    assert patched(planned(desired(), found)) == {"/metadata/resourceVersion": "7", **expected}


def test_a_child_that_cannot_be_decoded_gets_its_spec_again() -> None:
    metadata = msgspec.convert(msgspec.to_builtins(live().metadata), ObjectMeta)

    what = planned(desired(), Malformed(metadata, "spec.data: expected array"))

    assert patched(what) == {"/metadata/resourceVersion": "7", "/spec": SPEC}


@pytest.mark.parametrize(
    "references",
    [
        pytest.param([], id="without an owner"),
        pytest.param([{**OWNER, "name": "other"}], id="of another parent"),
        pytest.param([{**OWNER, "kind": "ClusterPushSecret"}], id="of a parent of another kind"),
        pytest.param([{**OWNER, "apiVersion": "other.io/v1"}], id="of a kind of another group"),
        pytest.param([{**OWNER, "controller": False}], id="owned but not controlled"),
    ],
)
def test_an_object_that_is_not_ours_is_never_written(references: list[JsonObject]) -> None:
    """C6."""
    assert planned(desired(), live({"refreshInterval": "5h"}, ownerReferences=references)) == NameTaken()


def test_a_child_that_is_being_deleted_is_left_alone() -> None:
    assert planned(desired(), live(deletionTimestamp="2026-01-01T00:00:00Z", labels={"x": "y"})) == BeingDeleted()


@pytest.mark.parametrize(
    ("on_parent", "in_metadata", "on_child"),
    [
        pytest.param({FORCE_SYNC: "1"}, {}, {FORCE_SYNC: "1"}, id="mirrored"),
        pytest.param(
            {FORCE_SYNC: "1"}, {FORCE_SYNC: "2", "a": "b"}, {FORCE_SYNC: "1", "a": "b"}, id="the parent's wins"
        ),
        pytest.param({}, {FORCE_SYNC: "2", "a": "b"}, {"a": "b"}, id="only the parent's counts"),
        pytest.param({"other": "1"}, {}, {}, id="no other annotation is mirrored"),
    ],
)
def test_the_force_sync_annotation_is_the_parents(
    on_parent: dict[str, str], in_metadata: dict[str, str], on_child: dict[str, str]
) -> None:
    """C10."""
    wanted = desired(on_parent, externalSecretMetadata={"annotations": in_metadata})

    assert wanted.contents.annotations == on_child


def test_a_spec_that_fits_no_child_is_an_error_without_its_value() -> None:
    with pytest.raises(NoSpecError, match="data") as caught:
        desired(externalSecretSpec={"data": "hidden-value"})

    assert "hidden-value" not in str(caught.value)


def test_durations_of_sync_windows_are_compared_by_length() -> None:
    def windows(duration: str) -> JsonObject:
        return {"syncWindows": {"kind": "allow", "windows": [{"schedule": "@daily", "duration": duration}]}}

    assert comparable_external_secret(windows("90m")) == comparable_external_secret(windows("1h30m0s"))
    assert comparable_external_secret(windows("90m")) != comparable_external_secret(windows("91m"))


def test_an_invalid_duration_is_compared_as_text() -> None:
    assert comparable_external_secret({"refreshInterval": "soon"}) != comparable_external_secret(
        {"refreshInterval": "later"}
    )


def test_a_cluster_push_secret_is_the_same_with_other_words() -> None:
    spec = {"secretStoreRefs": [{"name": "vault"}], "selector": {"secret": {"name": "db"}}, "refreshInterval": "60m"}
    document = {
        "metadata": {"name": "all", "uid": "uid-2", "annotations": {FORCE_SYNC: "1"}},
        "spec": {"pushSecretSpec": spec, "pushSecretName": "db", "pushSecretMetadata": {"labels": {"a": "b"}}},
    }
    found = msgspec.convert(document, StoredClusterPushSecret)

    wanted = desired_of(CLUSTER_PUSH_SECRETS, found)

    assert CLUSTER_PUSH_SECRETS.name(found) == "db"
    assert wanted.owner == OwnerReference(
        api_version="external-secrets.io/v1alpha1",
        kind="ClusterPushSecret",
        name="all",
        uid="uid-2",
        controller=True,
        block_owner_deletion=True,
    )
    assert (wanted.contents.labels, wanted.contents.annotations, wanted.contents.spec) == ({"a": "b"}, {}, spec)
    assert wanted.comparable == CLUSTER_PUSH_SECRETS.comparable({**spec, "refreshInterval": 3600})
