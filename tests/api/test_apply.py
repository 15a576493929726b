"""Server-side apply: owners of fields, conflicts, removed fields."""

from __future__ import annotations

from typing import Any

import pytest

from kuberun.testing.rawapi import APPLY_PATCH, RawApi

pytestmark = pytest.mark.live


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def owned(body: dict[str, Any], manager: str) -> Any:
    """The fields of one manager; fails unless it has exactly one entry."""
    (entry,) = [one for one in body["metadata"]["managedFields"] if one["manager"] == manager]
    return entry["fieldsV1"]


class TestOwnership:
    async def test_apply_creates_what_is_missing(self, api: RawApi, configmaps: str) -> None:
        reply = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        assert reply.status == 201
        (entry,) = reply.body["metadata"]["managedFields"]
        assert entry["time"]
        assert {key: value for key, value in entry.items() if key != "time"} == {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:k": {}}},
        }

    async def test_applying_the_same_again_writes_nothing(self, api: RawApi, configmaps: str) -> None:
        first = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        second = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        assert second.status == 200
        assert second.body == first.body

    async def test_a_field_that_its_manager_no_longer_applies_is_removed(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v", gone="x"), manager="one")

        reply = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        assert reply.body["data"] == {"k": "v"}

    async def test_a_field_that_another_manager_owns_too_is_kept(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v", shared="x"), manager="one")
        await api.apply(f"{configmaps}/a", config_map(shared="x"), manager="two")

        reply = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        assert reply.body["data"] == {"k": "v", "shared": "x"}
        assert owned(reply.body, "two") == {"f:data": {"f:shared": {}}}

    async def test_two_managers_of_different_keys_do_not_disturb_each_other(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(one="1"), manager="one")

        reply = await api.apply(f"{configmaps}/a", config_map(two="2"), manager="two")

        assert reply.status == 200
        assert reply.body["data"] == {"one": "1", "two": "2"}

    async def test_an_update_takes_ownership_of_what_it_changes(self, api: RawApi, configmaps: str) -> None:
        applied = await api.apply(f"{configmaps}/a", config_map(k="v", other="x"), manager="one")
        changed = {**applied.body, "data": {"k": "changed", "other": "x"}}

        reply = await api.put(f"{configmaps}/a", changed, fieldManager="editor")

        assert owned(reply.body, "one") == {"f:data": {"f:other": {}}}
        assert owned(reply.body, "editor") == {"f:data": {"f:k": {}}}

    async def test_a_create_is_recorded_for_its_manager(self, api: RawApi, configmaps: str) -> None:
        body = config_map(k="v")
        body["metadata"]["labels"] = {"l": "1"}

        reply = await api.post(configmaps, body, fieldManager="creator")

        (entry,) = reply.body["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("creator", "Update")
        assert entry["fieldsV1"] == {
            "f:data": {".": {}, "f:k": {}},
            "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        }

    async def test_without_a_manager_the_user_agent_is_recorded(self, api: RawApi, configmaps: str) -> None:
        reply = await api.send("POST", configmaps, config_map(k="v"), headers={"User-Agent": "robot/1.2 (linux)"})

        assert [one["manager"] for one in reply.body["metadata"]["managedFields"]] == ["robot"]

    async def test_status_is_managed_apart(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.apply(f"{widgets}/w", widget(), manager="one")

        reply = await api.apply(
            f"{widgets}/w/status",
            {
                "apiVersion": "shop.example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "w"},
                "status": {"phase": "x"},
            },
            manager="one",
        )

        assert reply.status == 200
        entries = {one.get("subresource", ""): one["fieldsV1"] for one in reply.body["metadata"]["managedFields"]}
        assert entries == {"": {"f:spec": {"f:size": {}}}, "status": {"f:status": {"f:phase": {}}}}

    async def test_managed_fields_can_be_cleared(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        reply = await api.patch(f"{configmaps}/a", {"metadata": {"managedFields": [{}]}})

        assert reply.status == 200
        assert "managedFields" not in reply.body["metadata"]


class TestConflicts:
    async def test_another_value_for_an_owned_field_is_a_conflict(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        reply = await api.apply(f"{configmaps}/a", config_map(k="other"), manager="two")

        assert (reply.status, reply.reason) == (409, "Conflict")
        assert reply.message == 'Apply failed with 1 conflict: conflict with "one": .data.k'
        assert reply.causes == [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}
        ]

    async def test_several_conflicts_are_listed_by_manager(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v", x="1", y="2"), manager="one")

        reply = await api.apply(f"{configmaps}/a", config_map(x="0", y="0"), manager="two")

        assert reply.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.x\n- .data.y'
        assert [cause["field"] for cause in reply.causes] == [".data.x", ".data.y"]

    async def test_a_conflict_with_an_update_names_the_operation(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, config_map(k="v"), fieldManager="editor")

        reply = await api.apply(f"{configmaps}/a", config_map(k="other"), manager="two")

        assert reply.status == 409
        assert reply.causes[0]["message"].startswith('conflict with "editor" using v1')

    async def test_force_takes_the_field_over(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v", mine="x"), manager="one")

        reply = await api.apply(f"{configmaps}/a", config_map(k="other"), manager="two", force=True)

        assert reply.status == 200
        assert reply.body["data"] == {"k": "other", "mine": "x"}
        assert owned(reply.body, "one") == {"f:data": {"f:mine": {}}}
        assert owned(reply.body, "two") == {"f:data": {"f:k": {}}}

    async def test_the_same_value_is_shared_without_conflict(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        reply = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="two")

        assert reply.status == 200
        assert owned(reply.body, "one") == owned(reply.body, "two") == {"f:data": {"f:k": {}}}

    async def test_a_conflict_in_a_custom_object_names_the_list_item(
        self, api: RawApi, widgets: str, widget: Any
    ) -> None:
        await api.apply(f"{widgets}/w", widget(parts=[{"name": "bolt", "note": "x"}]), manager="one")

        body = widget(parts=[{"name": "bolt", "note": "y"}])
        reply = await api.apply(f"{widgets}/w", body, manager="two")

        assert reply.status == 409
        assert [cause["field"] for cause in reply.causes] == ['.spec.parts[name="bolt"].note']

    async def test_a_stale_resource_version_is_a_conflict(self, api: RawApi, configmaps: str) -> None:
        first = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")
        await api.apply(f"{configmaps}/a", config_map(k="w"), manager="one")
        body = config_map(k="x")
        body["metadata"]["resourceVersion"] = first.body["metadata"]["resourceVersion"]

        reply = await api.apply(f"{configmaps}/a", body, manager="one")

        assert (reply.status, reply.reason) == (409, "Conflict")
        assert "the object has been modified" in reply.message


class TestLists:
    async def test_map_lists_are_merged_by_key(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.apply(f"{widgets}/w", widget(parts=[{"name": "bolt"}]), manager="one")

        reply = await api.apply(f"{widgets}/w", widget(parts=[{"name": "nut", "count": 3}]), manager="two")

        assert reply.body["spec"]["parts"] == [{"name": "bolt", "count": 1}, {"name": "nut", "count": 3}]
        assert owned(reply.body, "two")["f:spec"]["f:parts"] == {
            'k:{"name":"nut"}': {".": {}, "f:name": {}, "f:count": {}}
        }

    async def test_a_map_list_item_goes_with_its_last_owner(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.apply(f"{widgets}/w", widget(parts=[{"name": "bolt"}, {"name": "nut"}]), manager="one")

        reply = await api.apply(f"{widgets}/w", widget(parts=[{"name": "nut"}]), manager="one")

        assert [part["name"] for part in reply.body["spec"]["parts"]] == ["nut"]

    async def test_sets_are_united(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.apply(f"{widgets}/w", widget(tags=["a"]), manager="one")

        reply = await api.apply(f"{widgets}/w", widget(tags=["b"]), manager="two")

        assert sorted(reply.body["spec"]["tags"]) == ["a", "b"]
        assert owned(reply.body, "two")["f:spec"]["f:tags"] == {'v:"b"': {}}

    async def test_plain_lists_are_atomic(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.apply(f"{widgets}/w", widget(steps=["a"]), manager="one")

        reply = await api.apply(f"{widgets}/w", widget(steps=["b"]), manager="two")

        assert reply.status == 409
        assert [cause["field"] for cause in reply.causes] == [".spec.steps"]

    async def test_containers_of_a_deployment_are_merged_by_name(self, api: RawApi, namespace: str) -> None:
        def deployment(**images: str) -> dict[str, Any]:
            containers = [{"name": name, "image": image} for name, image in images.items()]
            template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}
            spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
            return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}

        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/a"
        await api.apply(path, deployment(one="one:1"), manager="one")

        reply = await api.apply(path, deployment(two="two:1"), manager="two")

        names = [one["name"] for one in reply.body["spec"]["template"]["spec"]["containers"]]
        assert reply.status == 200
        assert names == ["one", "two"]


class TestBadRequests:
    async def test_a_manager_is_required(self, api: RawApi, configmaps: str) -> None:
        reply = await api.patch(f"{configmaps}/a", config_map(k="v"), APPLY_PATCH)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert reply.causes == [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: is required for apply patch",
                "field": "fieldManager",
            }
        ]

    async def test_force_is_only_for_apply(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, config_map(k="v"))

        reply = await api.patch(f"{configmaps}/a", {"data": {"k": "w"}}, force=True)

        assert (reply.status, reply.reason) == (422, "Invalid")
        assert [cause["field"] for cause in reply.causes] == ["force"]

    async def test_managed_fields_must_be_absent(self, api: RawApi, configmaps: str) -> None:
        applied = await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        reply = await api.apply(f"{configmaps}/a", applied.body, manager="one")

        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert "metadata.managedFields must be nil" in reply.message

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"apiVersion": "v2"}, id="another version"),
            pytest.param({"kind": None}, id="no kind"),
            pytest.param({"apiVersion": 1}, id="a version that is no text"),
            pytest.param({"kind": ["ConfigMap"]}, id="a kind that is no text"),
        ],
    )
    async def test_kind_and_version_must_be_right(self, api: RawApi, configmaps: str, change: dict[str, Any]) -> None:
        reply = await api.apply(f"{configmaps}/a", {**config_map(k="v"), **change}, manager="one")

        assert reply.status == 400

    async def test_yaml_is_accepted(self, api: RawApi, configmaps: str) -> None:
        text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"

        reply = await api.apply(f"{configmaps}/a", text, manager="one")

        assert reply.status == 201
        assert reply.body["data"] == {"k": "v"}

    async def test_a_dry_run_shows_the_conflict_and_stores_nothing(self, api: RawApi, configmaps: str) -> None:
        await api.apply(f"{configmaps}/a", config_map(k="v"), manager="one")

        conflict = await api.apply(f"{configmaps}/a", config_map(k="w"), manager="two", dryRun="All")
        forced = await api.apply(f"{configmaps}/a", config_map(k="w"), manager="two", dryRun="All", force=True)

        assert conflict.status == 409
        assert forced.body["data"] == {"k": "w"}
        assert (await api.get(f"{configmaps}/a")).body["data"] == {"k": "v"}

    async def test_a_duplicate_list_key_is_refused(self, api: RawApi, widgets: str, widget: Any) -> None:
        body = widget(parts=[{"name": "bolt"}, {"name": "bolt"}])

        reply = await api.apply(f"{widgets}/w", body, manager="one")

        assert reply.status == 500
        assert "duplicate entries for key" in reply.message


class TestPorts:
    """Items told apart by a field that has a default."""

    async def test_a_port_without_protocol_is_known_by_the_default_one(self, api: RawApi, namespace: str) -> None:
        reply = await api.apply(f"/api/v1/namespaces/{namespace}/services/s", service(8080), manager="one")

        assert reply.status == 201
        assert list(owned(reply.body, "one")["f:spec"]["f:ports"]) == ['k:{"port":8080,"protocol":"TCP"}']

    async def test_a_port_that_is_applied_with_another_number_is_replaced(self, api: RawApi, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/services/s"
        await api.apply(path, service(8080), manager="one")

        reply = await api.apply(path, service(9090), manager="one")

        assert reply.status == 200
        assert [port["port"] for port in reply.body["spec"]["ports"]] == [9090]


def service(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"ports": [{"name": "grpc", "port": port}]},
    }
