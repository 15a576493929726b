"""Custom objects at work: defaults, pruning, status, generation, versions, names."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live


class TestDefaults:
    async def test_defaults_are_filled_in_and_stored(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        assert (await api.get(f"{widgets}/a")).body["spec"] == {"size": 1, "colour": "red"}

    async def test_defaults_reach_into_list_items(self, api: RawApi, widgets: str, widget: Any) -> None:
        reply = await api.post(widgets, widget("a", parts=[{"name": "x"}, {"name": "y", "count": 5}]))

        assert reply.body["spec"]["parts"] == [{"name": "x", "count": 1}, {"name": "y", "count": 5}]

    async def test_a_removed_field_gets_its_default_back(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", colour="blue"))

        reply = await api.patch(f"{widgets}/a", {"spec": {"colour": None}})

        assert reply.body["spec"]["colour"] == "red"

    async def test_a_default_added_later_shows_up_when_reading(
        self, api: RawApi, namespace: str, crd: Any, install: Any, eventually: Any
    ) -> None:
        schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": {"type": "string"}}}}}
        await install(crd("laters", "Later", schema=schema))
        path = f"/apis/shop.example.com/v1/namespaces/{namespace}/laters"
        kind = {"apiVersion": "shop.example.com/v1", "kind": "Later"}
        await api.post(path, {**kind, "metadata": {"name": "a"}, "spec": {}})

        pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/x/default"
        await api.patch(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/laters.shop.example.com",
            [{"op": "add", "path": pointer, "value": "filled"}],
            "application/json-patch+json",
        )

        await eventually(lambda: api.get(f"{path}/a"), lambda reply: reply.body.get("spec") == {"x": "filled"})


class TestStatus:
    async def test_status_is_dropped_on_create(self, api: RawApi, widgets: str, widget: Any) -> None:
        reply = await api.post(widgets, {**widget("a"), "status": {"phase": "Ready"}})

        assert reply.status == 201
        assert "status" not in reply.body

    async def test_a_plain_update_leaves_status_alone(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))
        ready = await api.patch(f"{widgets}/a/status", {"status": {"phase": "Ready"}})

        reply = await api.put(f"{widgets}/a", {**ready.body, "status": {"phase": "Other"}, "spec": {"size": 2}})

        assert reply.body["status"] == {"phase": "Ready"}
        assert reply.body["spec"]["size"] == 2

    async def test_a_status_update_leaves_spec_and_metadata_alone(self, api: RawApi, widgets: str, widget: Any) -> None:
        created = await api.post(widgets, widget("a", labels={"k": "v"}))
        body = {**created.body, "spec": {"size": 99}, "status": {"phase": "Ready"}}
        body["metadata"] = {**created.body["metadata"], "labels": {"k": "changed"}}

        reply = await api.put(f"{widgets}/a/status", body)

        assert reply.status == 200
        assert reply.body["status"] == {"phase": "Ready"}
        assert reply.body["spec"]["size"] == 1
        assert reply.body["metadata"]["labels"] == {"k": "v"}

    async def test_status_is_validated(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        reply = await api.patch(f"{widgets}/a/status", {"status": {"phase": 5}})

        assert reply.status == 422
        assert reply.causes[0]["field"] == "status.phase"

    async def test_a_kind_without_the_subresource_has_no_status_path(
        self, api: RawApi, namespace: str, crd: Any, install: Any
    ) -> None:
        await install(crd("bares", "Bare"))
        path = f"/apis/shop.example.com/v1/namespaces/{namespace}/bares"
        kind = {"apiVersion": "shop.example.com/v1", "kind": "Bare"}

        created = await api.post(path, {**kind, "metadata": {"name": "a"}, "status": {"phase": "kept"}})
        reply = await api.get(f"{path}/a/status")

        assert created.body["status"] == {"phase": "kept"}
        assert reply.status == 404

    async def test_the_status_path_reads_the_whole_object(self, api: RawApi, widgets: str, widget: Any) -> None:
        created = await api.post(widgets, widget("a"))

        assert (await api.get(f"{widgets}/a/status")).body == created.body


class TestGeneration:
    async def test_it_starts_at_one(self, api: RawApi, widgets: str, widget: Any) -> None:
        body = widget("a")
        body["metadata"]["generation"] = 7

        assert (await api.post(widgets, body)).body["metadata"]["generation"] == 1

    @pytest.mark.parametrize(
        ("suffix", "patch", "generation"),
        [
            pytest.param("", {"spec": {"size": 2}}, 2, id="a spec change raises it"),
            pytest.param("", {"metadata": {"labels": {"k": "v"}}}, 1, id="a label does not"),
            pytest.param("", {"metadata": {"annotations": {"k": "v"}}}, 1, id="an annotation does not"),
            pytest.param("/status", {"status": {"phase": "x"}}, 1, id="status does not"),
            pytest.param("", {"metadata": {"generation": 9}}, 1, id="clients cannot set it"),
            pytest.param("", {"spec": {"colour": "red"}}, 1, id="the same spec does not"),
        ],
    )
    async def test_a_change_of_the_spec_raises_the_generation_and_others_do_not(
        self, api: RawApi, widgets: str, widget: Any, *, suffix: str, patch: dict[str, Any], generation: int
    ) -> None:
        await api.post(widgets, widget("a"))

        reply = await api.patch(f"{widgets}/a{suffix}", patch)

        assert reply.status == 200
        assert reply.body["metadata"]["generation"] == generation


class TestVersions:
    async def test_an_object_is_served_in_every_version(
        self, api: RawApi, widgets: str, widget: Any, namespace: str
    ) -> None:
        created = await api.post(widgets, widget("a"))

        reply = await api.get(f"/apis/shop.example.com/v1beta1/namespaces/{namespace}/widgets/a")

        assert reply.body["apiVersion"] == "shop.example.com/v1beta1"
        assert reply.body["spec"] == created.body["spec"]
        assert reply.body["metadata"]["uid"] == created.body["metadata"]["uid"]

    async def test_a_deprecated_version_warns(self, api: RawApi, widgets: str) -> None:
        reply = await api.get(widgets.replace("/v1/", "/v1beta1/"))

        assert reply.warnings == ["shop.example.com/v1beta1 Widget is deprecated; use v1"]
        assert reply.body["apiVersion"] == "shop.example.com/v1beta1"

    async def test_a_version_that_is_not_served_is_not_found(self, api: RawApi, widgets: str) -> None:
        assert (await api.get(widgets.replace("/v1/", "/v1alpha1/"))).status == 404

    async def test_a_write_in_one_version_is_read_in_another(self, api: RawApi, widgets: str, widget: Any) -> None:
        old = {**widget("a"), "apiVersion": "shop.example.com/v1beta1"}
        await api.post(widgets.replace("/v1/", "/v1beta1/"), old)

        reply = await api.get(f"{widgets}/a")

        assert reply.body["apiVersion"] == "shop.example.com/v1"
        assert reply.body["metadata"]["managedFields"][0]["apiVersion"] == "shop.example.com/v1beta1"

    async def test_a_watch_shows_its_own_version(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        async with api.watch(widgets.replace("/v1/", "/v1beta1/")) as frames:
            frame = await frames.next()

        assert frame["object"]["apiVersion"] == "shop.example.com/v1beta1"


async def test_a_cluster_scoped_kind_has_no_namespace(api: RawApi, crd: Any, install: Any) -> None:
    await install(crd("planets", "Planet", scope="Cluster"))
    path = "/apis/shop.example.com/v1/planets"
    body = {"apiVersion": "shop.example.com/v1", "kind": "Planet", "metadata": {"name": "a"}}

    created = await api.post(path, body)
    misplaced = await api.get("/apis/shop.example.com/v1/namespaces/default/planets")

    assert created.status == 201
    assert "namespace" not in created.body["metadata"]
    assert misplaced.status == 404


async def test_a_large_object_is_stored_whole(api: RawApi, widgets: str, widget: Any) -> None:
    free = {f"key{number}": "x" * 1000 for number in range(1000)}

    await api.post(widgets, widget("a", free=free))

    assert (await api.get(f"{widgets}/a")).body["spec"]["free"] == free


async def test_numbers_keep_their_precision(api: RawApi, widgets: str, widget: Any) -> None:
    free = {"big": 2**53 + 1, "most": 2**63 - 1, "negative": -(2**63), "fraction": 0.1}

    reply = await api.post(widgets, widget("a", free=free))

    assert reply.body["spec"]["free"] == free
