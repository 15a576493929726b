"""Watches: what a stream shows first, what it shows next, how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import Frames, RawApi

pytestmark = pytest.mark.live


STREAMING_LIST: dict[str, Any] = {
    "sendInitialEvents": True,
    "allowWatchBookmarks": True,
    "resourceVersionMatch": "NotOlderThan",
}


def seen(frame: dict[str, Any]) -> tuple[str, str]:
    return frame["type"], frame["object"]["metadata"]["name"]


async def version(api: RawApi, collection: str) -> str:
    return str((await api.get(collection)).body["metadata"]["resourceVersion"])


async def test_a_watch_shows_every_kind_of_change(api: RawApi, configmaps: str) -> None:
    async with api.watch(configmaps, resourceVersion=await version(api, configmaps)) as frames:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})
        updated = await api.put(f"{configmaps}/a", {"metadata": {"name": "a"}, "data": {"k": "v"}})
        await api.delete(f"{configmaps}/a")

        added, modified, deleted = [await frames.next() for _ in range(3)]

    assert (added["type"], added["object"]) == ("ADDED", created.body)
    assert (modified["type"], modified["object"]) == ("MODIFIED", updated.body)
    assert seen(deleted) == ("DELETED", "a")


async def test_a_deleted_object_carries_the_version_of_its_deletion(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    async with api.watch(configmaps, resourceVersion=await version(api, configmaps)) as frames:
        await api.delete(f"{configmaps}/a")

        deleted = await frames.next()

    assert deleted["object"]["data"] == {"k": "v"}
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(created.body["metadata"]["resourceVersion"])


@pytest.mark.parametrize("start", [pytest.param(None, id="no version"), pytest.param("0", id="version zero")])
async def test_a_watch_without_a_version_starts_with_what_exists(
    api: RawApi, configmaps: str, start: str | None
) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    await api.get(configmaps, resourceVersion=created.body["metadata"]["resourceVersion"])

    async with api.watch(configmaps, resourceVersion=start) as frames:
        first = await frames.next()
        await api.post(configmaps, {"metadata": {"name": "b"}})
        second = await frames.next()

    assert (first["type"], first["object"]) == ("ADDED", created.body)
    assert seen(second) == ("ADDED", "b")


async def test_a_watch_from_a_version_replays_what_came_after(api: RawApi, configmaps: str) -> None:
    start = await version(api, configmaps)
    for name in ("a", "b"):
        await api.post(configmaps, {"metadata": {"name": name}})
    await api.delete(f"{configmaps}/a")

    async with api.watch(configmaps, resourceVersion=start) as frames:
        events = [seen(await frames.next()) for _ in range(3)]

    assert events == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_an_update_without_a_change_is_not_shown(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})
    async with api.watch(configmaps, resourceVersion=created.body["metadata"]["resourceVersion"]) as frames:
        await api.put(f"{configmaps}/a", created.body)
        await api.post(configmaps, {"metadata": {"name": "b"}})

        assert seen(await frames.next()) == ("ADDED", "b")


async def test_frames_of_a_built_in_kind_name_the_kind(api: RawApi, configmaps: str) -> None:
    await api.post(configmaps, {"metadata": {"name": "a"}})

    async with api.watch(configmaps) as frames:
        frame = await frames.next()

    assert (frame["object"]["kind"], frame["object"]["apiVersion"]) == ("ConfigMap", "v1")


async def test_one_object_is_watched_by_a_field_selector(api: RawApi, configmaps: str) -> None:
    start = await version(api, configmaps)
    for name in ("a", "b"):
        await api.post(configmaps, {"metadata": {"name": name}})

    async with api.watch(configmaps, resourceVersion=start, fieldSelector="metadata.name=b") as frames:
        assert seen(await frames.next()) == ("ADDED", "b")


async def test_a_watch_across_namespaces(api: RawApi, configmaps: str, namespace: str) -> None:
    start = await version(api, "/api/v1/configmaps")
    async with api.watch("/api/v1/configmaps", resourceVersion=start) as frames:
        await api.post(configmaps, {"metadata": {"name": "across"}})

        frame = await frames.until("ADDED", "across")

    assert frame["object"]["metadata"]["namespace"] == namespace


class TestSelectors:
    async def test_an_object_that_comes_into_view_is_added(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a"}})
        start = await version(api, configmaps)
        async with api.watch(configmaps, resourceVersion=start, labelSelector="on=yes") as frames:
            await api.patch(f"{configmaps}/a", {"metadata": {"labels": {"on": "yes"}}})

            assert seen(await frames.next()) == ("ADDED", "a")

    async def test_an_object_that_leaves_the_view_is_deleted_as_it_was(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a", "labels": {"on": "yes"}}})
        start = await version(api, configmaps)
        async with api.watch(configmaps, resourceVersion=start, labelSelector="on=yes") as frames:
            changed = await api.patch(f"{configmaps}/a", {"metadata": {"labels": {"on": "no"}}})

            frame = await frames.next()

        assert seen(frame) == ("DELETED", "a")
        assert frame["object"]["metadata"]["labels"] == {"on": "yes"}
        assert frame["object"]["metadata"]["resourceVersion"] == changed.body["metadata"]["resourceVersion"]

    async def test_a_change_within_the_view_is_modified(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a", "labels": {"on": "yes"}}})
        start = await version(api, configmaps)
        async with api.watch(configmaps, resourceVersion=start, labelSelector="on") as frames:
            await api.patch(f"{configmaps}/a", {"metadata": {"labels": {"on": "no"}}})

            assert seen(await frames.next()) == ("MODIFIED", "a")

    async def test_a_change_out_of_view_is_not_shown(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a"}})
        start = await version(api, configmaps)
        async with api.watch(configmaps, resourceVersion=start, labelSelector="on") as frames:
            await api.patch(f"{configmaps}/a", {"data": {"k": "v"}})
            await api.post(configmaps, {"metadata": {"name": "b", "labels": {"on": ""}}})

            assert seen(await frames.next()) == ("ADDED", "b")

    async def test_a_field_of_a_custom_object_moves_it_out_of_view(
        self, api: RawApi, widgets: str, widget: Any
    ) -> None:
        await api.post(widgets, widget("a", colour="green"))
        start = await version(api, widgets)
        async with api.watch(widgets, resourceVersion=start, fieldSelector="spec.colour=green") as frames:
            await api.patch(f"{widgets}/a", {"spec": {"colour": "blue"}})

            assert seen(await frames.next()) == ("DELETED", "a")


class TestInitialEvents:
    async def test_existing_objects_come_first_then_a_marked_bookmark(self, api: RawApi, configmaps: str) -> None:
        for name in ("a", "b"):
            await api.post(configmaps, {"metadata": {"name": name}})

        async with api.watch(configmaps, **STREAMING_LIST) as frames:
            first, second, bookmark = [await frames.next() for _ in range(3)]

        assert [seen(first), seen(second)] == [("ADDED", "a"), ("ADDED", "b")]
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(
            second["object"]["metadata"]["resourceVersion"]
        )

    async def test_the_stream_continues_after_the_bookmark(self, api: RawApi, configmaps: str) -> None:
        async with api.watch(configmaps, **STREAMING_LIST) as frames:
            await frames.until("BOOKMARK")
            await api.post(configmaps, {"metadata": {"name": "later"}})

            assert seen(await frames.until("ADDED")) == ("ADDED", "later")

    async def test_a_bookmark_names_the_kind_and_nothing_else(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        async with api.watch(widgets, **STREAMING_LIST) as frames:
            bookmark = await frames.until("BOOKMARK")

        assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("Widget", "shop.example.com/v1")
        assert "spec" not in bookmark["object"]
        assert "name" not in bookmark["object"]["metadata"]

    @pytest.mark.parametrize(
        "query",
        [
            pytest.param({"sendInitialEvents": True}, id="without a version match"),
            pytest.param(
                {"sendInitialEvents": True, "resourceVersionMatch": "Exact", "resourceVersion": "1"},
                id="with an exact version",
            ),
        ],
    )
    async def test_a_wrong_combination_is_invalid(self, api: RawApi, configmaps: str, query: dict[str, Any]) -> None:
        reply = await api.get(configmaps, watch=True, **query)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert "resourceVersionMatch" in {cause["field"] for cause in reply.causes}


class TestEnds:
    async def test_a_watch_ends_after_its_timeout(self, api: RawApi, configmaps: str) -> None:
        async with api.watch(configmaps, timeoutSeconds=1) as frames:
            assert await frames.next_or_end() is None

    async def test_bookmarks_come_before_the_timeout(self, api: RawApi, configmaps: str) -> None:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})
        start = created.body["metadata"]["resourceVersion"]

        frame = None
        for _ in range(3):  # none is guaranteed: a busy server leaves one out
            since = {"resourceVersion": start, "allowWatchBookmarks": True, "timeoutSeconds": 4}
            async with api.watch(configmaps, **since) as frames:
                frame = await frames.next_or_end()
            if frame is not None:
                break

        assert frame is not None, "three watches ended without a bookmark"
        assert frame["type"] == "BOOKMARK"
        assert int(frame["object"]["metadata"]["resourceVersion"]) >= int(start)

    async def test_a_version_that_is_not_a_number_is_refused(self, api: RawApi, configmaps: str) -> None:
        reply = await api.get(configmaps, watch=True, resourceVersion="rubbish")

        assert reply.status == 500
        assert reply.message.startswith('resourceVersion: Invalid value: "rubbish"')

    async def test_a_compacted_version_ends_the_watch_as_expired(
        self, api: RawApi, api_server: ApiServer, configmaps: str
    ) -> None:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})
        for value in range(5):
            await api.patch(f"{configmaps}/a", {"data": {"k": str(value)}})
        api_server.compact()

        async with api.watch(configmaps, resourceVersion=created.body["metadata"]["resourceVersion"]) as frames:
            await assert_expired(frames)

    async def test_a_compacted_page_is_expired(self, api: RawApi, api_server: ApiServer, configmaps: str) -> None:
        for name in ("a", "b"):
            await api.post(configmaps, {"metadata": {"name": name}})
        first = await api.get(configmaps, limit=1)
        await api.patch(f"{configmaps}/b", {"data": {"k": "v"}})
        api_server.compact()

        reply = await api.get(configmaps, limit=1, **{"continue": first.body["metadata"]["continue"]})

        assert (reply.status, reply.reason) == (410, "Expired")
        assert reply.body["metadata"]["continue"], "an inconsistent continuation is offered"

    async def test_an_inconsistent_continuation_goes_on_after_an_expired_page(
        self, api: RawApi, api_server: ApiServer, configmaps: str
    ) -> None:
        for name in ("a", "b", "c"):
            await api.post(configmaps, {"metadata": {"name": name}})
        first = await api.get(configmaps, limit=1)
        await api.delete(f"{configmaps}/b")
        api_server.compact()
        expired = await api.get(configmaps, limit=1, **{"continue": first.body["metadata"]["continue"]})

        reply = await api.get(configmaps, limit=5, **{"continue": expired.body["metadata"]["continue"]})

        assert [item["metadata"]["name"] for item in reply.body["items"]] == ["c"]

    async def test_an_exact_list_of_a_compacted_version_is_expired(
        self, api: RawApi, api_server: ApiServer, configmaps: str
    ) -> None:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})
        await api.patch(f"{configmaps}/a", {"data": {"k": "v"}})
        api_server.compact()
        old = created.body["metadata"]["resourceVersion"]

        reply = await api.get(configmaps, resourceVersion=old, resourceVersionMatch="Exact")

        assert (reply.status, reply.reason) == (410, "Expired")

    async def test_objects_survive_a_restart_and_a_watch_goes_on(
        self, api: RawApi, api_server: ApiServer, configmaps: str
    ) -> None:
        created = await api.post(configmaps, {"metadata": {"name": "a"}})

        api_server.restart()
        read = await api.get(f"{configmaps}/a")
        async with api.watch(configmaps) as frames:
            first = await frames.next()

        assert read.body == created.body
        assert first["object"] == created.body


async def assert_expired(frames: Frames) -> None:
    """A watch from the past gets 200 and one ERROR frame, or the same Status as the answer itself."""
    frame = await frames.next()
    status = frame["object"] if "type" in frame else frame
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["kind"] == "Status"
