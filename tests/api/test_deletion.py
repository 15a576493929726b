"""Deleting: answers, preconditions, finalizers, collections."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kuberun.testing.rawapi import JSON_PATCH, RawApi

pytestmark = pytest.mark.live

HELD = {"name": "a", "finalizers": ["example.com/hold"]}


async def test_delete_answers_with_a_status_and_the_uid(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.delete(f"{configmaps}/a")

    assert reply.status == 200
    assert (reply.body["kind"], reply.body["status"]) == ("Status", "Success")
    assert reply.body["details"] == {"name": "a", "kind": "configmaps", "uid": created.body["metadata"]["uid"]}
    assert (await api.get(f"{configmaps}/a")).status == 404


async def test_delete_of_a_custom_object_names_its_group(api: RawApi, widgets: str, widget: Any) -> None:
    created = await api.post(widgets, widget("a"))

    reply = await api.delete(f"{widgets}/a")

    assert reply.body["details"] == {
        "name": "a",
        "group": "shop.example.com",
        "kind": "widgets",
        "uid": created.body["metadata"]["uid"],
    }


async def test_a_recreated_object_has_another_uid(api: RawApi, configmaps: str) -> None:
    first = await api.post(configmaps, {"metadata": {"name": "a"}})
    await api.delete(f"{configmaps}/a")

    second = await api.post(configmaps, {"metadata": {"name": "a"}})

    assert second.status == 201
    assert second.body["metadata"]["uid"] != first.body["metadata"]["uid"]


async def test_delete_with_the_right_uid(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.delete(f"{configmaps}/a", {"preconditions": {"uid": created.body["metadata"]["uid"]}})

    assert reply.status == 200


async def test_delete_with_another_uid_is_a_conflict(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    wrong = str(uuid.uuid4())

    reply = await api.delete(f"{configmaps}/a", {"preconditions": {"uid": wrong}})

    assert (reply.status, reply.reason) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition '
        f"({wrong}) does not match the UID in record ({created.body['metadata']['uid']}). "
        "The object might have been deleted and then recreated"
    )


async def test_delete_with_another_resource_version_is_a_conflict(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    await api.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
    old = created.body["metadata"]["resourceVersion"]

    reply = await api.delete(f"{configmaps}/a", {"preconditions": {"resourceVersion": old}})

    assert (reply.status, reply.reason) == (409, "Conflict")
    assert f"the ResourceVersion in the precondition ({old}) does not match" in reply.message


async def test_delete_with_the_right_resource_version(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    current = created.body["metadata"]["resourceVersion"]

    reply = await api.delete(f"{configmaps}/a", {"preconditions": {"resourceVersion": current}})

    assert reply.status == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"propagationPolicy": "Perhaps"}, id="an unknown propagation policy"),
        pytest.param({"propagationPolicy": "Orphan", "orphanDependents": True}, id="both ways to say orphan"),
    ],
)
async def test_bad_delete_options_are_invalid(api: RawApi, configmaps: str, body: dict[str, Any]) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.delete(f"{configmaps}/a", body)

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.body["details"]["kind"] == "DeleteOptions"
    assert (await api.get(f"{configmaps}/a")).status == 200


class TestFinalizers:
    async def test_deletion_waits_for_finalizers(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})

        reply = await api.delete(f"{configmaps}/a")

        assert reply.status == 200
        assert reply.body["kind"] == "ConfigMap"
        assert reply.body["metadata"]["deletionTimestamp"]
        assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 0
        assert (await api.get(f"{configmaps}/a")).body == reply.body

    async def test_a_second_delete_changes_nothing(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        first = await api.delete(f"{configmaps}/a")

        second = await api.delete(f"{configmaps}/a")

        assert second.status == 200
        assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]

    async def test_removing_the_last_finalizer_completes_the_deletion(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        await api.delete(f"{configmaps}/a")

        reply = await api.patch(f"{configmaps}/a", [{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH)

        assert reply.status == 200
        assert (await api.get(f"{configmaps}/a")).status == 404

    async def test_removing_one_of_two_finalizers_keeps_the_object(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}})
        await api.delete(f"{configmaps}/a")

        reply = await api.patch(f"{configmaps}/a", {"metadata": {"finalizers": ["example.com/two"]}})

        assert reply.status == 200
        assert (await api.get(f"{configmaps}/a")).body["metadata"]["finalizers"] == ["example.com/two"]

    async def test_no_finalizer_may_be_added_while_deleting(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        await api.delete(f"{configmaps}/a")

        reply = await api.patch(
            f"{configmaps}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}}
        )

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert {cause["field"] for cause in reply.causes} == {"metadata.finalizers"}
        assert reply.causes[0]["message"] == (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            'found new finalizers []string{"example.com/late"}'
        )

    async def test_data_may_change_while_deleting(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        await api.delete(f"{configmaps}/a")

        reply = await api.patch(f"{configmaps}/a", {"data": {"k": "v"}})

        assert reply.status == 200
        assert reply.body["metadata"]["deletionTimestamp"]

    async def test_the_deletion_timestamp_cannot_be_taken_back(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        deleted = await api.delete(f"{configmaps}/a")

        reply = await api.patch(f"{configmaps}/a", {"metadata": {"deletionTimestamp": None}})

        assert reply.status == 200
        assert reply.body["metadata"]["deletionTimestamp"] == deleted.body["metadata"]["deletionTimestamp"]

    async def test_removing_finalizers_of_a_living_object_does_not_delete_it(
        self, api: RawApi, configmaps: str
    ) -> None:
        await api.post(configmaps, {"metadata": HELD})

        await api.patch(f"{configmaps}/a", {"metadata": {"finalizers": None}})

        assert (await api.get(f"{configmaps}/a")).status == 200

    async def test_deleting_a_custom_object_raises_its_generation(self, api: RawApi, widgets: str, widget: Any) -> None:
        body = widget("a")
        body["metadata"]["finalizers"] = ["example.com/hold"]
        await api.post(widgets, body)

        reply = await api.delete(f"{widgets}/a")

        assert reply.body["metadata"]["generation"] == 2

    async def test_create_while_deleting_already_exists(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        await api.delete(f"{configmaps}/a")

        reply = await api.post(configmaps, {"metadata": {"name": "a"}})

        assert (reply.status, reply.reason) == (409, "AlreadyExists")
        assert reply.message == 'object is being deleted: configmaps "a" already exists'


class TestCollections:
    async def test_delete_removes_every_object_of_the_namespace(self, api: RawApi, configmaps: str) -> None:
        for name in ("a", "b"):
            await api.post(configmaps, {"metadata": {"name": name}})

        reply = await api.delete(configmaps)

        assert reply.status == 200
        assert (await api.get(configmaps)).body["items"] == []

    async def test_delete_answers_with_the_list_of_what_it_deleted(
        self, api: RawApi, widgets: str, widget: Any
    ) -> None:
        for name in ("a", "b"):
            await api.post(widgets, widget(name))

        reply = await api.delete(widgets)

        assert reply.body["kind"] == "WidgetList"
        assert [item["metadata"]["name"] for item in reply.body["items"]] == ["a", "b"]

    async def test_delete_follows_a_label_selector(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a", "labels": {"tier": "x"}}})
        await api.post(configmaps, {"metadata": {"name": "b"}})

        await api.delete(configmaps, labelSelector="tier=x")

        assert [item["metadata"]["name"] for item in (await api.get(configmaps)).body["items"]] == ["b"]

    async def test_delete_follows_a_field_selector(self, api: RawApi, configmaps: str) -> None:
        for name in ("a", "b"):
            await api.post(configmaps, {"metadata": {"name": name}})

        await api.delete(configmaps, fieldSelector="metadata.name=a")

        assert [item["metadata"]["name"] for item in (await api.get(configmaps)).body["items"]] == ["b"]

    async def test_objects_with_finalizers_stay_marked(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": HELD})
        await api.post(configmaps, {"metadata": {"name": "b"}})

        await api.delete(configmaps)

        items = (await api.get(configmaps)).body["items"]
        assert [item["metadata"]["name"] for item in items] == ["a"]
        assert items[0]["metadata"]["deletionTimestamp"]
