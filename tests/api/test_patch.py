"""JSON, merge and strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, RawApi

pytestmark = pytest.mark.live


@pytest.fixture
async def target(api: RawApi, configmaps: str) -> str:
    """A map with data a=1, b=2; its path."""
    await api.post(configmaps, {"metadata": {"name": "a", "labels": {"k": "v"}}, "data": {"a": "1", "b": "2"}})
    return f"{configmaps}/a"


class TestJsonPatch:
    @pytest.mark.parametrize(
        ("operations", "data"),
        [
            pytest.param([{"op": "add", "path": "/data/c", "value": "3"}], {"a": "1", "b": "2", "c": "3"}, id="add"),
            pytest.param([{"op": "replace", "path": "/data/a", "value": "x"}], {"a": "x", "b": "2"}, id="replace"),
            pytest.param([{"op": "remove", "path": "/data/a"}], {"b": "2"}, id="remove"),
            pytest.param([{"op": "move", "from": "/data/a", "path": "/data/z"}], {"b": "2", "z": "1"}, id="move"),
            pytest.param(
                [{"op": "copy", "from": "/data/a", "path": "/data/z"}], {"a": "1", "b": "2", "z": "1"}, id="copy"
            ),
            pytest.param(
                [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data/b"}],
                {"a": "1"},
                id="a test that holds",
            ),
            pytest.param([], {"a": "1", "b": "2"}, id="no operation"),
        ],
    )
    async def test_operations(
        self, api: RawApi, target: str, operations: list[dict[str, Any]], data: dict[str, str]
    ) -> None:
        reply = await api.patch(target, operations, JSON_PATCH)

        assert reply.status == 200
        assert reply.body["data"] == data

    async def test_slashes_and_tildes_are_escaped(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", settings={"a/b~c": "1"}))

        reply = await api.patch(
            f"{widgets}/a", [{"op": "replace", "path": "/spec/settings/a~1b~0c", "value": "2"}], JSON_PATCH
        )

        assert reply.body["spec"]["settings"] == {"a/b~c": "2"}

    async def test_replacing_a_missing_key_adds_it(self, api: RawApi, target: str) -> None:
        reply = await api.patch(target, [{"op": "replace", "path": "/data/missing", "value": "3"}], JSON_PATCH)

        assert reply.status == 200
        assert reply.body["data"]["missing"] == "3"

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            pytest.param("/spec/steps/-", ["one", "two", "new"], id="at the end"),
            pytest.param("/spec/steps/0", ["new", "one", "two"], id="at the front"),
            pytest.param("/spec/steps/1", ["one", "new", "two"], id="in the middle"),
        ],
    )
    async def test_items_are_inserted_into_lists(
        self, api: RawApi, widgets: str, widget: Any, path: str, expected: list[str]
    ) -> None:
        await api.post(widgets, widget("a", steps=["one", "two"]))

        reply = await api.patch(f"{widgets}/a", [{"op": "add", "path": path, "value": "new"}], JSON_PATCH)

        assert reply.body["spec"]["steps"] == expected

    @pytest.mark.parametrize(
        "operation",
        [
            pytest.param({"op": "test", "path": "/data/a", "value": "other"}, id="a test that fails"),
            pytest.param({"op": "remove", "path": "/data/missing"}, id="removing what is not there"),
            pytest.param({"op": "add", "path": "/nothing/here", "value": "1"}, id="adding below what is not there"),
        ],
    )
    async def test_an_operation_that_cannot_be_done_is_invalid(
        self, api: RawApi, target: str, operation: dict[str, Any]
    ) -> None:
        before = await api.get(target)

        reply = await api.patch(target, [operation], JSON_PATCH)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert (await api.get(target)).body == before.body

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param({"op": "add", "path": "/data/c", "value": "3"}, id="an operation that is not in a list"),
            pytest.param("not json", id="text"),
        ],
    )
    async def test_a_malformed_patch_is_a_bad_request(self, api: RawApi, target: str, body: object) -> None:
        reply = await api.patch(target, body, JSON_PATCH)

        assert (reply.status, reply.reason) == (400, "BadRequest")


class TestMergePatch:
    @pytest.mark.parametrize(
        ("patch", "data"),
        [
            pytest.param({"data": {"c": "3"}}, {"a": "1", "b": "2", "c": "3"}, id="add a key"),
            pytest.param({"data": {"a": "x"}}, {"a": "x", "b": "2"}, id="change a key"),
            pytest.param({"data": {"a": None}}, {"b": "2"}, id="null removes a key"),
            pytest.param({"data": None}, None, id="null removes a whole map"),
            pytest.param({}, {"a": "1", "b": "2"}, id="an empty patch"),
        ],
    )
    async def test_merging(self, api: RawApi, target: str, patch: dict[str, Any], data: dict[str, str] | None) -> None:
        reply = await api.patch(target, patch, MERGE_PATCH)

        assert reply.status == 200
        assert reply.body.get("data") == data

    async def test_an_empty_patch_writes_nothing(self, api: RawApi, target: str) -> None:
        before = await api.get(target)

        reply = await api.patch(target, {}, MERGE_PATCH)

        assert reply.body == before.body

    async def test_lists_are_replaced(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", steps=["one", "two"]))

        reply = await api.patch(f"{widgets}/a", {"spec": {"steps": ["three"]}})

        assert reply.body["spec"]["steps"] == ["three"]

    async def test_a_patched_object_is_validated(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        reply = await api.patch(f"{widgets}/a", {"spec": {"size": 0}})

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [cause["field"] for cause in reply.causes] == ["spec.size"]

    @pytest.mark.parametrize("body", [pytest.param("not json", id="text"), pytest.param("[1]", id="a list")])
    async def test_a_malformed_patch_is_a_bad_request(self, api: RawApi, target: str, body: str) -> None:
        reply = await api.patch(target, body, MERGE_PATCH)

        assert (reply.status, reply.reason) == (400, "BadRequest")

    async def test_the_name_cannot_be_patched(self, api: RawApi, target: str) -> None:
        reply = await api.patch(target, {"metadata": {"name": "b"}})

        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert reply.message == "the name of the object (b) does not match the name on the URL (a)"


class TestStrategicMergePatch:
    @pytest.fixture
    async def deployment(self, api: RawApi, namespace: str) -> str:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        containers = [{"name": "one", "image": "one:1"}, {"name": "two", "image": "two:1"}]
        created = await api.post(
            path,
            {
                "metadata": {"name": "a"},
                "spec": {
                    "selector": {"matchLabels": {"app": "a"}},
                    "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}},
                },
            },
        )
        assert created.status == 201, created.body
        return f"{path}/a"

    async def test_list_items_are_merged_by_key(self, api: RawApi, deployment: str) -> None:
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "two", "image": "two:2"}]}}}}

        reply = await api.patch(deployment, patch, STRATEGIC_PATCH)

        containers = reply.body["spec"]["template"]["spec"]["containers"]
        assert sorted((one["name"], one["image"]) for one in containers) == [("one", "one:1"), ("two", "two:2")]

    async def test_a_list_item_is_deleted_by_directive(self, api: RawApi, deployment: str) -> None:
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "two", "$patch": "delete"}]}}}}

        reply = await api.patch(deployment, patch, STRATEGIC_PATCH)

        assert [one["name"] for one in reply.body["spec"]["template"]["spec"]["containers"]] == ["one"]

    async def test_a_list_is_replaced_by_directive(self, api: RawApi, deployment: str) -> None:
        replacement = [{"$patch": "replace"}, {"name": "new", "image": "new:1"}]
        patch = {"spec": {"template": {"spec": {"containers": replacement}}}}

        reply = await api.patch(deployment, patch, STRATEGIC_PATCH)

        assert [one["name"] for one in reply.body["spec"]["template"]["spec"]["containers"]] == ["new"]

    async def test_a_map_is_replaced_by_directive(self, api: RawApi, target: str) -> None:
        reply = await api.patch(target, {"data": {"$patch": "replace", "z": "9"}}, STRATEGIC_PATCH)

        assert reply.body["data"] == {"z": "9"}

    async def test_maps_are_merged_and_null_removes(self, api: RawApi, target: str) -> None:
        reply = await api.patch(target, {"data": {"a": None, "c": "3"}}, STRATEGIC_PATCH)

        assert reply.body["data"] == {"b": "2", "c": "3"}

    async def test_primitive_lists_with_a_merge_strategy_are_united(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "f", "finalizers": ["example.com/one"]}})

        reply = await api.patch(f"{configmaps}/f", {"metadata": {"finalizers": ["example.com/two"]}}, STRATEGIC_PATCH)
        kept = await api.patch(
            f"{configmaps}/f",
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}},
            STRATEGIC_PATCH,
        )

        assert sorted(reply.body["metadata"]["finalizers"]) == ["example.com/one", "example.com/two"]
        assert kept.body["metadata"]["finalizers"] == ["example.com/two"]
        await api.patch(f"{configmaps}/f", {"metadata": {"finalizers": None}})

    async def test_owner_references_are_merged_by_uid(self, api: RawApi, target: str, configmaps: str) -> None:
        owner = await api.post(configmaps, {"metadata": {"name": "owner"}})
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner.body["metadata"]["uid"],
        }
        await api.patch(target, {"metadata": {"ownerReferences": [reference]}}, STRATEGIC_PATCH)

        reply = await api.patch(
            target, {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}, STRATEGIC_PATCH
        )

        assert reply.body["metadata"]["ownerReferences"] == [{**reference, "controller": True}]


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_PATCH])
async def test_a_patch_does_not_create(api: RawApi, configmaps: str, content_type: str) -> None:
    reply = await api.patch(f"{configmaps}/missing", {"data": {"k": "v"}}, content_type)

    assert (reply.status, reply.reason) == (404, "NotFound")
