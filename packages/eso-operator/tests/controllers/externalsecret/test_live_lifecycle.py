"""From an ExternalSecret to its Secret and back: creation, drift, ownership, adoption, deletion."""

from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_operator.targets.metadata import (
    CREATED_BY_LABEL,
    FINALIZER,
    HASH_ANNOTATION,
    MANAGED_LABEL,
    data_digest,
    owner_digest,
)
from eso_testkit.operator.scenes import ES, Scene
from kubebase.meta import JsonObject
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import CONFIG_MAPS, SECRETS

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

ONE = {"password": "db"}


def target(policy: str, **fields: Any) -> JsonObject:
    return {"creationPolicy": policy, **fields}


async def metadata_of(stage: Scene, name: str) -> JsonObject:
    found = await stage.secret(name)
    assert found is not None
    return dict(found["metadata"])


# --- creation ---------------------------------------------------------------------------------------------------------


async def test_a_new_external_secret_becomes_an_owned_secret(stage: Scene) -> None:
    """L1, L2, R36, R49."""
    stage.backend(db="v1")

    es = await stage.sync("db", ONE)

    secret = await stage.secret("db")
    await stage.until_event("db", "Normal", "Created", "secret created")
    assert secret is not None
    metadata = secret["metadata"]
    assert secret["type"] == "Opaque"
    assert metadata["labels"] == {MANAGED_LABEL: "true", CREATED_BY_LABEL: owner_digest(stage.bench.namespace, "db")}
    assert metadata["annotations"] == {HASH_ANNOTATION: data_digest({"password": SecretBytes(b"v1")})}
    [owner] = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (es["metadata"]["uid"], True, True)
    assert es["status"]["binding"] == {"name": "db"}
    assert es["status"]["syncedResourceVersion"].startswith("1-f47fe3c0b255")
    [condition] = es["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("SecretSynced", "secret synced")


async def test_a_new_object_costs_two_writes_and_no_read(stage: Scene) -> None:
    stage.backend(db="v1")

    await stage.sync("db", ONE)
    await stage.until_idle()

    calls = stage.api_calls.about(stage.bench.namespace, "/db")
    assert [method for method, _ in calls] == ["PATCH", "PATCH"]


async def test_a_name_that_is_too_long_for_a_label_or_a_field_manager_works(stage: Scene) -> None:
    """L3."""
    stage.backend(db="v1")
    name = "n" * 60 + "." + "m" * 60

    await stage.sync(name, ONE)
    stage.backend(db="v2")
    await stage.force(name)

    await stage.until(name, {"password": "v2"})


async def test_policy_none_reads_and_writes_nothing(stage: Scene) -> None:
    """L36, L37, R55."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"own": "x"})

    es = await stage.sync("db", ONE, target=target("None"))

    secret = await stage.secret("db")
    assert secret is not None
    assert "labels" not in secret["metadata"]
    assert await stage.data("db") == {"own": "x"}
    assert es["status"]["conditions"][0]["reason"] == "SecretSynced"
    assert "binding" not in es["status"]


async def test_merge_waits_for_its_secret_and_takes_it_up_at_once(stage: Scene) -> None:
    """L9, R53."""
    stage.backend(db="v1")
    await stage.apply("db", ONE, target=target("Merge"))
    es = await stage.ready("db", "SecretMissing", "secret will not be created due to CreationPolicy=Merge")
    assert await stage.secret("db") is None
    assert "binding" not in es["status"]

    await stage.put_secret("db", {"own": "x"})

    await stage.until("db", {"own": "x", "password": "v1"})
    await stage.ready("db", "SecretSynced")


@pytest.mark.parametrize("policy", ["Owner", "Orphan", "CreateOrMerge"])
async def test_a_missing_secret_is_created_by_every_policy_that_creates(stage: Scene, policy: str) -> None:
    stage.backend(db="v1")

    await stage.sync("db", ONE, target=target(policy))

    metadata = await metadata_of(stage, "db")
    assert await stage.data("db") == {"password": "v1"}
    assert ("ownerReferences" in metadata) is (policy == "Owner")
    assert (CREATED_BY_LABEL in metadata["labels"]) is (policy == "Owner")


# --- drift ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Owner", "CreateOrMerge"])
async def test_a_deleted_secret_comes_back_at_once_whatever_the_refresh_policy(stage: Scene, policy: str) -> None:
    """L4, L7."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=target(policy), refreshPolicy="CreatedOnce")

    await stage.bench.delete(SECRETS, "db")

    await stage.until("db", {"password": "v1"})


async def test_under_orphan_edits_stay_until_the_next_refresh_which_overwrites_them(stage: Scene) -> None:
    """L11, R52."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=target("Orphan"))

    await stage.edit("db", {"password": "edited", "foreign": "x"})
    await stage.until_idle()

    assert await stage.data("db") == {"password": "edited", "foreign": "x"}
    await stage.force("db")
    await stage.until("db", {"password": "v1"})


async def test_merge_says_that_its_secret_is_gone_and_does_not_bring_it_back(stage: Scene) -> None:
    """L8."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"own": "x"})
    await stage.sync("db", ONE, target=target("Merge"))

    await stage.bench.delete(SECRETS, "db")

    await stage.ready("db", "SecretMissing")
    assert await stage.secret("db") is None


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        pytest.param("Owner", {"password": "v1"}, id="owner restores exactly what it wants"),
        pytest.param("Merge", {"password": "v1", "own": "x", "foreign": "y"}, id="merge restores its own keys only"),
        pytest.param("CreateOrMerge", {"password": "v1", "own": "x", "foreign": "y"}, id="create-or-merge as merge"),
    ],
)
async def test_edited_data_is_repaired_at_once(stage: Scene, policy: str, after: dict[str, str]) -> None:
    """L10, R53."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"own": "x"})
    await stage.sync("db", ONE, target=target(policy), refreshInterval="0")

    await stage.edit("db", {"password": "edited", "foreign": "y"})

    await stage.until("db", after)
    await eventually(lambda: _intact(stage, "db"), "the hash does not match the data")


async def _intact(stage: Scene, name: str) -> bool:
    data = await stage.data(name)
    metadata = await metadata_of(stage, name)
    assert data is not None
    held = {key: SecretBytes(value.encode()) for key, value in data.items()}
    return bool(metadata["annotations"][HASH_ANNOTATION] == data_digest(held))


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"annotations": {HASH_ANNOTATION: "x"}}, id="the hash"),
        pytest.param({"labels": {MANAGED_LABEL: None}}, id="the label that says it is managed"),
    ],
)
async def test_an_edited_mark_is_repaired_at_once(stage: Scene, edit: JsonObject) -> None:
    """L12; and L13 without waiting for the next refresh."""
    stage.backend(db="v1")
    await stage.sync("db", ONE)
    before = await metadata_of(stage, "db")

    await stage.bench.patch(SECRETS, "db", {"metadata": edit})

    async def repaired() -> bool:
        now = await metadata_of(stage, "db")
        return (now["labels"], now["annotations"]) == (before["labels"], before["annotations"])

    await eventually(repaired, "the mark is not repaired")


async def test_other_labels_are_left_alone_until_the_next_refresh(stage: Scene) -> None:
    """L14."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, metadata={"labels": {"app": "shop"}})

    await stage.bench.patch(SECRETS, "db", {"metadata": {"labels": {"app": "edited", "foreign": "x"}}})
    await stage.until_idle()

    assert (await metadata_of(stage, "db"))["labels"]["app"] == "edited"
    await stage.force("db")

    async def restored() -> bool:
        return bool((await metadata_of(stage, "db"))["labels"]["app"] == "shop")

    await eventually(restored, "the label is not restored")
    assert (await metadata_of(stage, "db"))["labels"]["foreign"] == "x"


# --- names and policies that change -----------------------------------------------------------------------------------


async def test_a_renamed_target_moves_and_only_what_is_ours_is_cleaned_up(stage: Scene) -> None:
    """L15, L17: a copy that a person made keeps our label, and is not ours."""
    stage.backend(db="v1")
    await stage.sync("db", ONE)
    labels = (await metadata_of(stage, "db"))["labels"]
    await stage.put_secret("copy", {"password": "v1"}, labels=labels)

    await stage.change("db", target={"name": "renamed"})

    await stage.until("renamed", {"password": "v1"})
    await stage.until("db", None)
    await stage.until_event("db", "Normal", "Deleted", "secret deleted because it was orphaned")
    assert await stage.data("copy") == {"password": "v1"}
    assert (await stage.status("db"))["binding"] == {"name": "renamed"}


async def test_a_renamed_target_that_cannot_be_written_keeps_the_old_one(stage: Scene) -> None:
    """A Secret exists at all times, even if the new one fails."""
    stage.backend(db="v1")
    await stage.sync("db", ONE)

    await stage.change("db", target={"name": "renamed", "template": {"data": {"url": "{{ .no_such_key }}"}}})

    await stage.until_event("db", "Warning", "UpdateFailed")
    assert await stage.data("db") == {"password": "v1"}


async def test_a_renamed_target_that_is_not_owned_leaves_the_old_one_behind(stage: Scene) -> None:
    """L16."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=target("Orphan"))

    await stage.change("db", target={"name": "renamed"})

    await stage.until("renamed", {"password": "v1"})
    assert await stage.data("db") == {"password": "v1"}


async def test_ownership_follows_the_policy(stage: Scene) -> None:
    """L18, L19."""
    stage.backend(db="v1")
    await stage.sync("db", ONE)

    async def owned() -> bool:
        metadata = await metadata_of(stage, "db")
        return "ownerReferences" in metadata and CREATED_BY_LABEL in metadata["labels"]

    async def free() -> bool:
        metadata = await metadata_of(stage, "db")
        return "ownerReferences" not in metadata and CREATED_BY_LABEL not in metadata["labels"]

    await stage.change("db", target={"creationPolicy": "Orphan"})
    await eventually(free, "it is still owned")
    await stage.change("db", target={"creationPolicy": "Owner"})
    await eventually(owned, "it is not owned")


async def test_keys_that_leave_the_spec_leave_the_secret(stage: Scene) -> None:
    stage.backend(db="v1", user="u1")
    await stage.sync("db", {"password": "db", "user": "user"})
    entry = {"secretKey": "user", "remoteRef": {"key": "user"}}

    await stage.change("db", data=[entry])

    await stage.until("db", {"user": "u1"})


async def test_labels_and_annotations_that_leave_the_object_leave_the_secret(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE, metadata={"labels": {"a": "1", "b": "2"}, "annotations": {"note": "x"}})
    before = await metadata_of(stage, "db")
    assert (before["labels"]["a"], before["annotations"]["note"]) == ("1", "x")

    await stage.bench.patch(ES, "db", {"metadata": {"labels": {"a": None}, "annotations": {"note": None}}})

    async def gone() -> bool:
        now = await metadata_of(stage, "db")
        return "a" not in now["labels"] and "note" not in now["annotations"] and now["labels"]["b"] == "2"

    await eventually(gone, "they are still there")


# --- other people's Secrets -------------------------------------------------------------------------------------------


async def test_a_secret_without_a_controller_is_adopted_and_its_data_replaced(stage: Scene) -> None:
    """L28, R51."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"foreign": "x"}, labels={"team": "a"}, annotations={"note": "y"})

    es = await stage.sync("db", ONE)

    metadata = await metadata_of(stage, "db")
    assert await stage.data("db") == {"password": "v1"}
    assert metadata["ownerReferences"][0]["uid"] == es["metadata"]["uid"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "y")


async def test_a_secret_that_another_kind_controls_is_refused_until_it_is_given_up(stage: Scene) -> None:
    """L29, R50: the operator writes nothing to it, not even a label, and does not read the backend."""
    stage.backend(db="v1")
    other = await stage.bench.create(CONFIG_MAPS, "other", data={})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["metadata"]["uid"]}
    await stage.put_secret("db", {"foreign": "x"}, ownerReferences=[{**owner, "controller": True}])

    await stage.apply("db", ONE)

    remedy = "choose another spec.target.name, or set spec.target.creationPolicy to Orphan or Merge"
    await stage.broken("db", "failed to take ownership of target secret", "ConfigMap other", remedy)
    metadata = await metadata_of(stage, "db")
    assert "labels" not in metadata
    assert await stage.data("db") == {"foreign": "x"}
    assert stage.reads == 0
    await stage.bench.patch(SECRETS, "db", {"metadata": {"ownerReferences": None}})
    await stage.ready("db")
    assert await stage.data("db") == {"password": "v1"}


@pytest.mark.parametrize("policy", ["Owner", "Orphan", "Merge", "CreateOrMerge"])
async def test_a_secret_of_another_external_secret_is_refused_under_every_policy(stage: Scene, policy: str) -> None:
    """L30, R50."""
    stage.backend(db="v1", other="o1")
    await stage.sync("first", ONE, target={"name": "shared"})

    await stage.apply("second", {"other": "other"}, target=target(policy, name="shared"))

    remedy = "choose another spec.target.name, or delete that ExternalSecret"
    await stage.broken("second", "target is owned by another ExternalSecret", f"ExternalSecret first; {remedy}")
    assert await stage.data("shared") == {"password": "v1"}
    await stage.bench.delete(ES, "first")
    await stage.until("shared", None if policy == "Merge" else {"other": "o1"})


async def test_several_external_secrets_merge_into_one_secret(stage: Scene) -> None:
    """L31, L33, R54: each removes only its own keys."""
    stage.backend(a="a1", b="b1", c="c1")
    await stage.put_secret("shared", {"own": "x"})
    await stage.sync("first", {"a": "a", "b": "b"}, target=target("Merge", name="shared"))
    await stage.sync("second", {"c": "c"}, target=target("Merge", name="shared"))
    await stage.until("shared", {"own": "x", "a": "a1", "b": "b1", "c": "c1"})

    await stage.change("first", data=[{"secretKey": "a", "remoteRef": {"key": "a"}}])

    await stage.until("shared", {"own": "x", "a": "a1", "c": "c1"})
    await stage.until_idle()
    writes = len(stage.api_calls.writes("/secrets/shared"))
    await stage.force("second")
    await stage.until_idle()
    assert await stage.data("shared") == {"own": "x", "a": "a1", "c": "c1"}
    # The annotation is copied to the target, hence one write; neither of the two wakes the other into more.
    assert len(stage.api_calls.writes("/secrets/shared")) == writes + 1


async def test_merge_takes_over_a_key_of_another_writer(stage: Scene) -> None:
    """L34, R53: by force, and from then on it is ours."""
    stage.backend(db="v1")
    await stage.put_secret("db", {"password": "theirs", "own": "x"})
    await stage.sync("db", ONE, target=target("Merge"))
    assert await stage.data("db") == {"password": "v1", "own": "x"}

    await stage.change("db", data=[{"secretKey": "other", "remoteRef": {"key": "db"}}])

    await stage.until("db", {"other": "v1", "own": "x"})


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_a_deleted_external_secret_takes_its_owned_secret_along(stage: Scene) -> None:
    """L20, R49; and no finalizer was needed for it."""
    stage.backend(db="v1")
    es = await stage.sync("db", ONE)
    assert "finalizers" not in es["metadata"]

    await stage.bench.delete(ES, "db")

    await stage.until("db", None)


async def test_with_deletion_policy_delete_the_secret_goes_before_its_external_secret(stage: Scene) -> None:
    """L21."""
    stage.backend(db="v1")
    es = await stage.sync("db", ONE, target={"deletionPolicy": "Delete"})
    assert es["metadata"]["finalizers"] == [FINALIZER]

    await stage.bench.delete(ES, "db")

    await stage.until("db", None)
    await eventually(lambda: _gone(stage, "db"), "the ExternalSecret does not go")


async def _gone(stage: Scene, name: str) -> bool:
    return await stage.bench.find(ES, name) is None


async def test_a_finalizer_of_the_go_operator_is_taken_off_in_the_end(stage: Scene) -> None:
    stage.backend(db="v1")
    await stage.sync("db", ONE, metadata={"finalizers": [FINALIZER]})

    await stage.bench.delete(ES, "db")

    await eventually(lambda: _gone(stage, "db"), "the ExternalSecret does not go")


async def test_created_once_is_once_for_each_object_not_for_each_secret(stage: Scene) -> None:
    """L26, R48."""
    stage.backend(db="v1")
    await stage.sync("db", ONE, target=target("Orphan"), refreshPolicy="CreatedOnce")
    stage.backend(db="v2")
    await stage.bench.delete(ES, "db")
    await eventually(lambda: _gone(stage, "db"), "the ExternalSecret does not go")

    await stage.sync("db", ONE, target=target("Orphan"), refreshPolicy="CreatedOnce")

    assert await stage.data("db") == {"password": "v2"}
