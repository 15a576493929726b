"""Deleting: answers, preconditions, finalizers, propagation, collections."""

from __future__ import annotations

from typing import Any

import pytest

from localkube.model import DeleteOptions, ListQuery
from localkube.testing.verbs import ADMIN, Verbs, config_map, definition, manifest, refusal, take, thing

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
THINGS = "things.example.com"


async def test_a_plain_deletion_answers_with_success(verbs: Verbs) -> None:
    uid = (await verbs.create("configmaps", config_map("a"))).object["metadata"]["uid"]

    answer = await verbs.delete("configmaps", "a")

    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    assert not await verbs.exists("configmaps", "a")


async def test_some_kinds_answer_with_what_was_deleted(verbs: Verbs) -> None:
    await verbs.create("serviceaccounts", manifest(verbs.kind("serviceaccounts"), "robot"))

    answer = await verbs.delete("serviceaccounts", "robot")

    assert (answer["kind"], answer["metadata"]["name"]) == ("ServiceAccount", "robot")


async def test_a_missing_object_cannot_be_deleted(verbs: Verbs) -> None:
    error = await refusal(verbs.delete("configmaps", "nope"))

    assert (error.code, error.reason, error.message) == (404, "NotFound", 'configmaps "nope" not found')


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"uid": "x"}, "the UID in the precondition (x) does not match the UID in record", id="uid"),
        pytest.param(
            {"resource_version": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record",
            id="resource version",
        ),
    ],
)
async def test_preconditions(verbs: Verbs, options: dict[str, Any], text: str) -> None:
    await verbs.create("configmaps", config_map("a"))

    error = await refusal(verbs.delete("configmaps", "a", **options))

    assert (error.code, error.reason) == (409, "Conflict")
    assert error.message.startswith(f'Operation cannot be fulfilled on ConfigMap "a": {text}')
    assert await verbs.exists("configmaps", "a")


async def test_a_dry_run_deletes_nothing(verbs: Verbs) -> None:
    await verbs.create("configmaps", config_map("a"))

    answer = await verbs.delete("configmaps", "a", dry_run=True)

    assert answer["status"] == "Success"
    assert await verbs.exists("configmaps", "a")


class TestFinalizers:
    @pytest.fixture(autouse=True)
    async def _definition(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())

    async def test_a_held_object_is_marked_and_stays(self, verbs: Verbs) -> None:
        await verbs.create(THINGS, thing("t", finalizers=["a.b/c"]))

        answer = await verbs.delete(THINGS, "t")

        metadata = answer["metadata"]
        assert metadata["deletionTimestamp"]
        assert metadata["deletionGracePeriodSeconds"] == 0
        assert metadata["generation"] == 2
        assert metadata == (await verbs.get(THINGS, "t"))["metadata"]

    async def test_deleting_again_changes_nothing(self, verbs: Verbs) -> None:
        await verbs.create(THINGS, thing("t", finalizers=["a.b/c"]))
        first = await verbs.delete(THINGS, "t")

        again = await verbs.delete(THINGS, "t")

        assert again == first

    async def test_the_last_finalizer_takes_the_object_with_it(self, verbs: Verbs) -> None:
        await verbs.create(THINGS, thing("t", finalizers=["a.b/c", "d.e/f"]))
        await verbs.delete(THINGS, "t")

        await verbs.patch(THINGS, "t", {"metadata": {"finalizers": ["d.e/f"]}})
        still_there = await verbs.exists(THINGS, "t")
        last = await verbs.patch(THINGS, "t", {"metadata": {"finalizers": None}})

        assert still_there
        assert "finalizers" not in last.object["metadata"]
        assert not await verbs.exists(THINGS, "t")

    async def test_a_terminating_object_accepts_no_new_finalizer(self, verbs: Verbs) -> None:
        await verbs.create(THINGS, thing("t", finalizers=["a.b/c"]))
        await verbs.delete(THINGS, "t")

        error = await refusal(verbs.patch(THINGS, "t", {"metadata": {"finalizers": ["a.b/c", "d.e/f"]}}))

        assert error.code == 422
        assert "no new finalizers can be added if the object is being deleted" in error.message

    async def test_a_deletion_cannot_be_taken_back(self, verbs: Verbs) -> None:
        await verbs.create(THINGS, thing("t", finalizers=["a.b/c"]))
        marked = await verbs.delete(THINGS, "t")

        written = await verbs.patch(THINGS, "t", {"metadata": {"deletionTimestamp": None}})

        assert written.object["metadata"] == marked["metadata"]

    async def test_a_held_object_still_changes_and_keeps_its_grace_period(self, verbs: Verbs) -> None:
        await verbs.create(THINGS, thing("t", finalizers=["a.b/c"]))
        await verbs.delete(THINGS, "t")

        written = await verbs.patch(THINGS, "t", {"status": {"phase": "Leaving"}}, subresource="status")

        assert written.object["status"] == {"phase": "Leaving"}
        assert written.object["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_the_deleted_event_carries_the_last_state_and_its_own_version(verbs: Verbs) -> None:
    created = (await verbs.create("configmaps", config_map("a"))).object
    watch = verbs.watch("configmaps", resource_version=created["metadata"]["resourceVersion"])
    await verbs.delete("configmaps", "a")

    (event,) = await take(watch, 1)

    assert event.type == "DELETED"
    assert event.object["data"] == {"x": "1"}
    assert int(event.object["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    watch.close()


class TestCollections:
    async def delete_all(self, verbs: Verbs, **query: Any) -> list[str]:
        kind = verbs.kind("configmaps")
        found = await verbs.cluster.delete_collection(kind, ListQuery("default", **query), DeleteOptions(ADMIN))
        return [obj["metadata"]["name"] for obj in found.items]

    async def test_objects_that_the_selector_matches_are_deleted_and_listed(self, verbs: Verbs) -> None:
        for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
            await verbs.create("configmaps", config_map(name, labels={"l": label}))

        deleted = await self.delete_all(verbs, label_selector="l=x")

        assert deleted == ["a", "c"]
        assert await verbs.names("configmaps") == ["b"]

    async def test_held_objects_are_marked(self, verbs: Verbs) -> None:
        await verbs.create("configmaps", config_map("a", finalizers=["a.b/c"]))

        deleted = await self.delete_all(verbs)

        assert deleted == ["a"]
        assert (await verbs.get("configmaps", "a"))["metadata"]["deletionTimestamp"]

    async def test_a_large_collection_goes_in_pieces(self, verbs: Verbs) -> None:
        for index in range(1200):
            verbs.cluster.store.put(_key(index), _stored(index))
        await verbs.cluster.store.wait_committed()

        deleted = await self.delete_all(verbs)

        assert len(deleted) == 1200
        assert await verbs.names("configmaps") == []


def _key(index: int) -> Any:
    from localkube.storage import Key

    return Key("configmaps", "default", f"n{index:04}")


def _stored(index: int) -> dict[str, Any]:
    return config_map(f"n{index:04}", namespace="default", uid=f"u{index}")
