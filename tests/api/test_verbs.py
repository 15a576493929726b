"""Create, read, update, delete: responses, conflicts, and dry runs without effect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

STALE = "the object has been modified; please apply your changes to the latest version and try again"


async def test_create_returns_the_stored_object(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    read = await api.get(f"{configmaps}/a")

    assert created.status == 201
    assert read.status == 200
    assert read.body == created.body


async def test_create_twice_already_exists(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.post(configmaps, {"metadata": {"name": "a"}})

    assert (reply.status, reply.reason) == (409, "AlreadyExists")
    assert reply.message == 'configmaps "a" already exists'
    assert reply.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_create_of_a_custom_object_twice_names_its_group(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a"))

    reply = await api.post(widgets, widget("a"))

    assert reply.message == 'widgets.shop.example.com "a" already exists'
    assert reply.body["details"] == {"name": "a", "group": "shop.example.com", "kind": "widgets"}


async def test_create_in_a_missing_namespace_is_not_found(api: RawApi) -> None:
    reply = await api.post("/api/v1/namespaces/missing/configmaps", {"metadata": {"name": "a"}})

    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.message == 'namespaces "missing" not found'
    assert reply.body["details"] == {"name": "missing", "kind": "namespaces"}


async def test_a_list_in_a_missing_namespace_is_empty(api: RawApi) -> None:
    reply = await api.get("/api/v1/namespaces/missing/configmaps")

    assert reply.status == 200
    assert reply.body["items"] == []


@pytest.mark.parametrize("verb", ["get", "delete", "put", "patch"])
async def test_a_missing_object_is_not_found(api: RawApi, configmaps: str, verb: str) -> None:
    body = None if verb in {"get", "delete"} else {"metadata": {"name": "missing"}}
    media = {"Content-Type": "application/merge-patch+json"} if verb == "patch" else None

    reply = await api.send(verb.upper(), f"{configmaps}/missing", body, headers=media)

    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.message == 'configmaps "missing" not found'
    assert reply.body["details"] == {"name": "missing", "kind": "configmaps"}


async def test_a_missing_custom_object_names_its_group(api: RawApi, widgets: str) -> None:
    reply = await api.get(f"{widgets}/missing")

    assert reply.message == 'widgets.shop.example.com "missing" not found'
    assert reply.body["details"] == {"name": "missing", "group": "shop.example.com", "kind": "widgets"}


async def test_every_write_raises_the_resource_version(api: RawApi, configmaps: str) -> None:
    versions = [(await api.post(configmaps, {"metadata": {"name": "a"}})).body["metadata"]["resourceVersion"]]
    for value in ("1", "2"):
        body = {"metadata": {"name": "a"}, "data": {"k": value}}
        versions.append((await api.put(f"{configmaps}/a", body)).body["metadata"]["resourceVersion"])

    assert [int(version) for version in versions] == sorted({int(version) for version in versions})


async def test_an_update_that_changes_nothing_keeps_the_resource_version(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": "v"}})

    updated = await api.put(f"{configmaps}/a", created.body)

    assert updated.status == 200
    assert updated.body["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]


async def test_an_update_replaces_the_whole_object(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "v"}})

    updated = await api.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "data": {"other": "v"}})

    assert updated.body["data"] == {"other": "v"}
    assert "labels" not in updated.body["metadata"]


@pytest.mark.parametrize("version", [pytest.param("1", id="older"), pytest.param("999999999", id="never seen")])
async def test_an_update_with_another_resource_version_is_a_conflict(
    api: RawApi, configmaps: str, version: str
) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.put(f"{configmaps}/a", {"metadata": {"name": "a", "resourceVersion": version}})

    assert (reply.status, reply.reason) == (409, "Conflict")
    assert reply.message == f'Operation cannot be fulfilled on configmaps "a": {STALE}'
    assert reply.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_an_update_of_a_custom_object_needs_a_resource_version(api: RawApi, widgets: str, widget: Any) -> None:
    await api.post(widgets, widget("a"))

    reply = await api.put(f"{widgets}/a", widget("a", size=2))

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [
        {
            "reason": "FieldValueInvalid",
            "message": "Invalid value: 0: must be specified for an update",
            "field": "metadata.resourceVersion",
        }
    ]


async def test_a_patch_may_carry_a_resource_version(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    version = created.body["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"k": "v"}}

    first = await api.patch(f"{configmaps}/a", patch)
    second = await api.patch(f"{configmaps}/a", {**patch, "data": {"k": "w"}})

    assert first.status == 200
    assert (second.status, second.reason) == (409, "Conflict")
    assert second.message == f'Operation cannot be fulfilled on configmaps "a": {STALE}'


async def test_one_of_many_racing_updates_wins(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    bodies = [{**created.body, "data": {"writer": str(number)}} for number in range(8)]

    replies = await asyncio.gather(*(api.put(f"{configmaps}/a", body) for body in bodies))

    winners = [reply for reply in replies if reply.status == 200]
    assert len(winners) == 1
    assert [reply.status for reply in replies].count(409) == 7
    assert (await api.get(f"{configmaps}/a")).body == winners[0].body


async def test_one_of_many_racing_creates_wins(api: RawApi, configmaps: str) -> None:
    replies = await asyncio.gather(*(api.post(configmaps, {"metadata": {"name": "a"}}) for _ in range(8)))

    assert sorted(reply.status for reply in replies) == [201] + [409] * 7


async def test_racing_merge_patches_of_different_keys_all_land(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    replies = await asyncio.gather(
        *(api.patch(f"{configmaps}/a", {"data": {f"k{number}": "v"}}) for number in range(8))
    )

    assert {reply.status for reply in replies} == {200}
    assert (await api.get(f"{configmaps}/a")).body["data"] == {f"k{number}": "v" for number in range(8)}


async def test_resource_versions_are_unique_across_kinds(api: RawApi, configmaps: str, secrets: str) -> None:
    replies = await asyncio.gather(
        *(api.post(path, {"metadata": {"generateName": "a-"}}) for path in (configmaps, secrets) for _ in range(5))
    )

    versions = {reply.body["metadata"]["resourceVersion"] for reply in replies}
    assert len(versions) == 10


class TestDryRun:
    async def test_create_stores_nothing(self, api: RawApi, configmaps: str) -> None:
        reply = await api.post(configmaps, {"metadata": {"name": "a"}}, dryRun="All")

        assert reply.status == 201
        assert reply.body["metadata"]["uid"]
        assert "resourceVersion" not in reply.body["metadata"]
        assert (await api.get(f"{configmaps}/a")).status == 404

    async def test_update_shows_the_result_and_stores_nothing(self, api: RawApi, configmaps: str) -> None:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})

        reply = await api.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}}, dryRun="All")

        assert reply.body["data"] == {"k": "v"}
        assert (await api.get(f"{configmaps}/a")).body == created.body

    async def test_patch_stores_nothing(self, api: RawApi, configmaps: str) -> None:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})

        reply = await api.patch(f"{configmaps}/a", {"data": {"k": "v"}}, dryRun="All")

        assert reply.body["data"] == {"k": "v"}
        assert (await api.get(f"{configmaps}/a")).body == created.body

    async def test_delete_removes_nothing(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a"}})

        reply = await api.delete(f"{configmaps}/a", dryRun="All")

        assert reply.status == 200
        assert (await api.get(f"{configmaps}/a")).status == 200

    async def test_a_dry_run_still_validates(self, api: RawApi, widgets: str, widget: Any) -> None:
        reply = await api.post(widgets, widget("a", size=0), dryRun="All")

        assert reply.status == 422

    async def test_a_dry_run_still_sees_conflicts(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a"}})

        reply = await api.post(configmaps, {"metadata": {"name": "a"}}, dryRun="All")

        assert (reply.status, reply.reason) == (409, "AlreadyExists")
