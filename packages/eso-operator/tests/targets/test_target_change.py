"""The policy matrix: the change of a Secret under every policy, for every state that it can have."""

from typing import Any

import pytest

from eso_api.externalsecret import ExternalSecret
from eso_operator.targets.metadata import CREATED_BY_LABEL, HASH_ANNOTATION, MANAGED_LABEL
from eso_operator.targets.target import (
    CreateTarget,
    KeepTarget,
    LiveSecret,
    Refusal,
    RefuseTarget,
    TargetChange,
    Untouched,
    UpdateTarget,
    choose_change,
    live_secret,
    wanted_digest,
)
from eso_testkit.operator.externalsecrets import desired, external_secret, stored, written_by
from kubebase.meta import JsonObject

WANTED = {"password": "v1"}


def of(policy: str, **target: Any) -> ExternalSecret:
    return external_secret(target={"creationPolicy": policy, **target})


def controlled(kind: str, name: str, api_version: str = "apps/v1") -> JsonObject:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {"ownerReferences": [reference]}


def state(name: str, es: ExternalSecret) -> LiveSecret | None:
    """The Secret in one of the states that the matrix is about."""
    match name:
        case "absent":
            return None
        case "as we left it":
            return written_by(es, WANTED)
        case "older value":
            return written_by(es, {"password": "v0"})
        case "foreign":
            return stored({"foreign": "x"})
        case "of another ExternalSecret":
            return stored(
                {"foreign": "x"}, metadata=controlled("ExternalSecret", "other", "external-secrets.io/v1beta1")
            )
        case "of another kind":
            return stored({"foreign": "x"}, metadata=controlled("Deployment", "other"))
        case "of a namesake":
            # What the operator's predecessor calls its own kind, in its own group.
            legacy = controlled("ExternalSecret", es.metadata.name, "kubernetes-client.io/v1")
            return stored({"foreign": "x"}, metadata=legacy)
        case "immutable, same data":
            return written_by(es, WANTED, immutable=True)
        case _:
            return written_by(es, {"password": "v0"}, immutable=True)


def verdict(change: TargetChange) -> str:
    match change:
        case CreateTarget():
            return "create"
        case UpdateTarget(patch=None):
            return "update"
        case UpdateTarget():
            return "patch and update"
        case KeepTarget(why=why):
            return f"keep {why.name}"
        case RefuseTarget(why=why):
            return why.name


MATRIX = """
the Secret is             | Owner            | Orphan           | Merge            | CreateOrMerge    | None
absent                    | create           | create           | keep MISSING     | create           | keep POLICY_NONE
as we left it             | keep UNCHANGED   | keep UNCHANGED   | keep UNCHANGED   | keep UNCHANGED   | keep POLICY_NONE
older value               | update           | update           | update           | update           | keep POLICY_NONE
foreign                   | patch and update | patch and update | update           | update           | keep POLICY_NONE
of another ExternalSecret | OWNED_BY_ANOTHER | OWNED_BY_ANOTHER | OWNED_BY_ANOTHER | OWNED_BY_ANOTHER | keep POLICY_NONE
of another kind           | CONTROLLED       | patch and update | update           | update           | keep POLICY_NONE
of a namesake             | CONTROLLED       | patch and update | update           | update           | keep POLICY_NONE
immutable, same data      | keep UNCHANGED   | keep UNCHANGED   | keep UNCHANGED   | keep UNCHANGED   | keep POLICY_NONE
immutable, older value    | IMMUTABLE        | IMMUTABLE        | IMMUTABLE        | IMMUTABLE        | keep POLICY_NONE
"""


def cases() -> list[Any]:
    (_, *policies), *rows = ([cell.strip() for cell in line.split("|")] for line in MATRIX.strip().splitlines())
    return [
        pytest.param(policy, name, expected, id=f"{policy}: {name}")
        for name, *row in rows
        for policy, expected in zip(policies, row, strict=True)
    ]


@pytest.mark.parametrize(("policy", "name", "expected"), cases())
def test_the_policy_matrix(policy: str, name: str, expected: str) -> None:
    """R49, R50, R51, R52, R53, R55."""
    es = of(policy)

    assert verdict(choose_change(es, state(name, es), desired(WANTED))) == expected


def updated(es: ExternalSecret, live: LiveSecret, **wanted: Any) -> UpdateTarget:
    change = choose_change(es, live, desired(**{"data": WANTED, **wanted}))
    assert isinstance(change, UpdateTarget)
    return change


def test_another_type_is_asked_of_the_api_server_unless_the_secret_is_immutable() -> None:
    es, type_ = of("Owner"), "kubernetes.io/basic-auth"

    change = updated(es, written_by(es, WANTED), type=type_)
    refusal = choose_change(es, written_by(es, WANTED, immutable=True), desired(WANTED, type=type_))

    assert change.document["type"] == type_
    assert verdict(refusal) == "IMMUTABLE"


@pytest.mark.parametrize("policy", ["Owner", "Orphan", "Merge", "CreateOrMerge"])
def test_marks_and_owner_follow_the_policy(policy: str) -> None:
    es = of(policy)

    change = updated(es, stored({"password": "theirs"}))

    metadata = change.document["metadata"]
    assert metadata["labels"][MANAGED_LABEL] == "true"
    assert (CREATED_BY_LABEL in metadata["labels"]) is (policy == "Owner")
    assert ("ownerReferences" in metadata) is (policy == "Owner")
    assert (metadata["uid"], metadata["resourceVersion"]) == ("uid-secret", "7")


def test_fields_that_only_we_own_are_removed_by_server_side_apply() -> None:
    """A key that we wrote and no longer want costs no patch of its own."""
    es = of("Owner")

    change = updated(es, written_by(es, {"password": "v1", "gone": "x"}))

    assert change.patch is None
    assert sorted(change.document["data"]) == ["password"]


def test_fields_with_several_owners_are_removed_by_a_patch() -> None:
    es = of("Owner")
    live = written_by(es, {"password": "v1", "gone": "x"})
    live.raw["metadata"]["managedFields"].append(
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:gone": {}}}}
    )

    change = updated(es, live)

    assert change.patch is not None
    assert change.patch["data"] == {"gone": None, "password": "djE="}, "what comes instead comes at once"
    assert (change.patch["metadata"]["uid"], change.patch["metadata"]["resourceVersion"]) == ("uid-secret", "7")


def test_labels_and_annotations_of_others_stay_and_ours_go() -> None:
    es = of("Owner")
    live = written_by(es, WANTED, metadata={"labels": {"team": "a"}, "annotations": {"note": "x"}})

    assert choose_change(es, live, desired(WANTED)) == KeepTarget(Untouched.UNCHANGED)
    change = updated(es, live, labels={"team": "b"})
    assert change.document["metadata"]["labels"]["team"] == "b"
    assert "note" not in change.document["metadata"]["annotations"]
    assert change.patch is None


def test_the_hash_covers_keys_of_others() -> None:
    """Under Merge, byte for byte as the Go operator has it."""
    es = of("Merge")
    alone = choose_change(of("Owner"), None, desired({"own": "x", "password": "v1"}))
    assert isinstance(alone, CreateTarget)

    merged = updated(es, stored({"own": "x"}))

    assert sorted(merged.document["data"]) == ["password"]
    annotations = merged.document["metadata"]["annotations"]
    assert annotations == {HASH_ANNOTATION: alone.document["metadata"]["annotations"][HASH_ANNOTATION]}


@pytest.mark.parametrize("policy", ["Orphan", "Merge", "CreateOrMerge"])
def test_a_secret_that_was_owned_is_let_go(policy: str) -> None:
    """L18: by apply alone, since the reference is ours."""
    owned = written_by(of("Owner"), WANTED)

    change = updated(of(policy), owned)

    assert "ownerReferences" not in change.document["metadata"]
    assert CREATED_BY_LABEL not in change.document["metadata"]["labels"]
    assert change.patch is None


def test_an_owner_reference_of_another_writer_is_removed_by_a_patch() -> None:
    owned = written_by(of("Owner"), WANTED)
    del owned.raw["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:ownerReferences"]

    change = updated(of("Orphan"), owned)

    assert change.patch is not None
    assert change.patch["metadata"]["ownerReferences"] is None


def test_fields_that_cannot_be_removed_stay_applied_while_we_own_them() -> None:
    """T21, I6: type, finalizers and immutability stay, even if the spec no longer asks for them."""
    es = of("Owner")
    live = written_by(
        es,
        WANTED,
        type="example.com/login",
        immutable=True,
        metadata={"finalizers": ["example.com/ours", "example.com/theirs"]},
    )
    held = live.raw["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]
    held["f:finalizers"] = {".": {}, 'v:"example.com/ours"': {}}

    change = updated(es, live, labels={"new": "label"})

    assert change.document["type"] == "example.com/login"
    assert change.document["immutable"] is True
    assert change.document["metadata"]["finalizers"] == ["example.com/ours"]


def test_a_secret_that_is_being_deleted_gets_no_new_finalizer() -> None:
    es = of("Owner")
    live = written_by(es, {"password": "v0"}, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})

    change = updated(es, live, finalizers=("example.com/hold",))

    assert "finalizers" not in change.document["metadata"]


@pytest.mark.parametrize("policy", ["Owner", "Merge"])
def test_a_target_that_becomes_immutable_keeps_all_its_data(policy: str) -> None:
    """I2, I3."""
    es = of(policy, immutable=True)
    live = written_by(es, {"password": "v0"})
    live.data["foreign"] = desired({"a": "x"}).data["a"]

    change = updated(es, live, immutable=True)

    assert change.document["immutable"] is True
    assert change.patch is None
    assert sorted(change.document["data"]) == ["password"]


def test_an_immutable_target_that_is_in_order_is_left_alone_whatever_the_backend_says() -> None:
    es = of("Owner", immutable=True)

    assert choose_change(
        es, written_by(es, {"password": "v0"}, immutable=True), desired(WANTED, immutable=True)
    ) == KeepTarget(Untouched.UNCHANGED)


def test_a_refusal_names_who_stands_in_the_way() -> None:
    change = choose_change(of("Owner"), stored({}, metadata=controlled("Deployment", "web")), desired(WANTED))

    assert change == RefuseTarget(
        Refusal.CONTROLLED,
        "Deployment web; choose another spec.target.name, or set spec.target.creationPolicy to Orphan or Merge to write"
        " into it",
    )


def test_more_than_a_secret_can_hold_is_refused_whether_the_secret_exists_or_not() -> None:
    es, fitting, large = of("Owner"), desired({"k": "x" * (1 << 20)}), desired({"k": "x" * (1 << 20), "more": "y"})

    for live in (None, written_by(es, WANTED)):
        assert choose_change(es, live, large) == RefuseTarget(Refusal.TOO_LARGE, "1048577 bytes in 2 keys")
        assert not isinstance(choose_change(es, live, fitting), RefuseTarget)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"data": {"password": "v2"}}, id="a value"),
        pytest.param({"data": {"passwor": "dv1"}}, id="a key"),
        pytest.param({"data": {**WANTED, "more": ""}}, id="an empty key more"),
        pytest.param({"data": WANTED, "labels": {"a": "b"}}, id="a label"),
        pytest.param({"data": WANTED, "annotations": {"a": "b"}}, id="an annotation"),
        pytest.param({"data": WANTED, "type": "x"}, id="the type"),
        pytest.param({"data": WANTED, "immutable": True}, id="immutability"),
        pytest.param({"data": WANTED, "finalizers": ("a/b",)}, id="a finalizer"),
    ],
)
def test_different_wishes_have_different_digests(other: dict[str, Any]) -> None:
    es = of("Owner")

    assert wanted_digest(es, desired(WANTED)) == wanted_digest(es, desired(WANTED))
    assert wanted_digest(es, desired(WANTED)) != wanted_digest(es, desired(**other))


def test_nothing_that_is_planned_shows_a_value() -> None:
    es = of("Owner")
    change = choose_change(es, stored({"password": "CANARY-1"}), desired({"password": "CANARY-2"}))

    assert "CANARY" not in repr(change)
    assert "CANARY" not in repr(choose_change(es, None, desired({"password": "CANARY-2"})))


@pytest.mark.parametrize("policy", ["Owner", "Orphan", "Merge", "CreateOrMerge"])
def test_nothing_is_copied_into_a_secret_that_may_be_sent_to_a_webhook(policy: str) -> None:
    """A user who may create a labelled Secret may lack the right to read the values that are copied into it."""
    labelled = stored({}, metadata={"labels": {"external-secrets.io/type": "webhook"}})

    change = choose_change(of(policy), labelled, desired(WANTED))

    assert isinstance(change, RefuseTarget)
    assert change.why is Refusal.RESERVED


def test_a_label_that_an_earlier_version_let_a_template_write_is_taken_off() -> None:
    es = of("Owner")
    before = written_by(es, WANTED).raw
    metadata = before["metadata"]
    metadata["labels"]["external-secrets.io/type"] = "webhook"
    metadata["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"]["f:external-secrets.io/type"] = {}

    change = choose_change(es, live_secret(before), desired(WANTED))

    assert isinstance(change, UpdateTarget)
    assert "external-secrets.io/type" not in change.document["metadata"]["labels"]
