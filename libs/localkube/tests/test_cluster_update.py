"""Replacing and patching objects: optimistic locking, immutable fields, fields that the server changes."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.testing.verbs import Verbs, config_map, definition, manifest, refusal, thing

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
THINGS = "things.example.com"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def created(verbs: Verbs, resource: str, obj: JsonObject) -> JsonObject:
    return copy.deepcopy((await verbs.create(resource, obj)).object)


@pytest.fixture
async def things(verbs: Verbs) -> Verbs:
    await verbs.create(CRDS, definition())
    return verbs


class TestUpdate:
    async def test_a_change_gets_a_new_version(self, verbs: Verbs) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        before = int(obj["metadata"]["resourceVersion"])
        obj["data"] = {"x": "2"}

        written = await verbs.update("configmaps", obj)

        assert int(written.object["metadata"]["resourceVersion"]) > before
        assert (await verbs.get("configmaps", "a"))["data"] == {"x": "2"}

    async def test_an_update_that_changes_nothing_writes_nothing(self, verbs: Verbs) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        revision = verbs.cluster.store.revision

        written = await verbs.update("configmaps", copy.deepcopy(obj), manager="someone-else")

        assert written.object == obj
        assert verbs.cluster.store.revision == revision

    async def test_an_old_version_is_a_conflict(self, verbs: Verbs) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        await verbs.patch("configmaps", "a", {"data": {"y": "1"}})

        error = await refusal(verbs.update("configmaps", obj))

        assert (error.code, error.reason) == (409, "Conflict")
        assert error.message == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'

    @pytest.mark.parametrize("version", [None, "", "0"])
    async def test_built_in_kinds_may_be_replaced_without_a_version(self, verbs: Verbs, version: str | None) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        obj["metadata"]["resourceVersion"] = version
        obj["data"] = {"x": "2"}

        written = await verbs.update("configmaps", obj)

        assert written.object["data"] == {"x": "2"}

    async def test_custom_kinds_need_a_version(self, things: Verbs) -> None:
        obj = await created(things, THINGS, thing("t"))
        del obj["metadata"]["resourceVersion"]

        error = await refusal(things.update(THINGS, obj))

        assert error.code == 422
        assert error.message == (
            'things.example.com "t" is invalid: metadata.resourceVersion: Invalid value: 0: '
            "must be specified for an update"
        )

    async def test_another_uid_is_a_conflict(self, verbs: Verbs) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        uid, obj["metadata"]["uid"] = obj["metadata"]["uid"], "x"

        error = await refusal(verbs.update("configmaps", obj))

        assert error.code == 409
        assert f"Precondition failed: UID in precondition: x, UID in object meta: {uid}" in error.message

    @pytest.mark.parametrize(
        ("field", "value", "code", "text"),
        [
            pytest.param("name", "other", 400, "does not match the name on the URL (a)", id="name"),
            pytest.param("name", "", 400, "(a based on URL) was undeterminable: name must be provided", id="no name"),
            pytest.param("namespace", "other", 400, "does not match the namespace sent on the request", id="namespace"),
            pytest.param("resourceVersion", "x", 500, 'parsing "x": invalid syntax', id="version that is no number"),
            pytest.param(
                "deletionTimestamp",
                "2001-01-01T00:00:00Z",
                422,
                'metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable',
                id="deletion timestamp",
            ),
        ],
    )
    async def test_an_update_of_an_immutable_field_is_refused(
        self, verbs: Verbs, field: str, value: str, code: int, text: str
    ) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        obj["metadata"][field] = value

        error = await refusal(verbs.update("configmaps", obj, name="a"))

        assert error.code == code
        assert text in error.message

    @pytest.mark.parametrize("field", ["uid", "creationTimestamp", "namespace", "generation"])
    async def test_metadata_of_the_server_comes_back_if_it_is_left_out_or_overwritten(
        self, verbs: Verbs, field: str
    ) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        before = copy.deepcopy(obj)
        obj["metadata"].pop(field, None)
        if field == "creationTimestamp":
            obj["metadata"][field] = "2001-01-01T00:00:00Z"
        if field == "generation":
            obj["metadata"][field] = 44

        written = await verbs.update("configmaps", obj)

        assert written.object == before

    async def test_a_missing_object_is_not_created(self, verbs: Verbs) -> None:
        error = await refusal(verbs.update("configmaps", config_map("new")))

        assert (error.code, error.message) == (404, 'configmaps "new" not found')

    async def test_some_kinds_are_created_by_an_update(self, verbs: Verbs) -> None:
        kind = verbs.kind("leases.coordination.k8s.io")

        written = await verbs.update("leases.coordination.k8s.io", manifest(kind, "new", spec={}))

        assert written.created
        assert await verbs.exists("leases.coordination.k8s.io", "new")

    async def test_a_dry_run_changes_nothing(self, verbs: Verbs) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        obj["data"] = {"x": "2"}

        written = await verbs.update("configmaps", obj, dry_run=True)

        assert written.object["data"] == {"x": "2"}
        assert (await verbs.get("configmaps", "a"))["data"] == {"x": "1"}

    async def test_concurrent_updates_of_one_version_let_exactly_one_through(self, verbs: Verbs) -> None:
        obj = await created(verbs, "configmaps", config_map("a"))
        attempts = [copy.deepcopy(obj) | {"data": {"x": f"n{index}"}} for index in range(20)]

        results = await asyncio.gather(
            *(verbs.update("configmaps", attempt) for attempt in attempts), return_exceptions=True
        )

        assert sum(not isinstance(result, Exception) for result in results) == 1


class TestGeneration:
    @pytest.mark.parametrize(
        ("change", "generation"),
        [
            pytest.param({"spec": {"size": 2}}, 2, id="a change of the spec counts"),
            pytest.param({"metadata": {"labels": {"a": "b"}}}, 1, id="a change of metadata does not"),
            pytest.param({"metadata": {"generation": 9}}, 1, id="a client cannot set it"),
        ],
    )
    async def test_counting(self, things: Verbs, change: JsonObject, generation: int) -> None:
        await things.create(THINGS, thing("t"))

        written = await things.patch(THINGS, "t", change)

        assert written.object["metadata"]["generation"] == generation


class TestStatus:
    async def test_the_main_endpoint_does_not_change_the_status(self, things: Verbs) -> None:
        await things.create(THINGS, thing("t"))
        await things.patch(THINGS, "t", {"status": {"phase": "Done"}}, subresource="status")

        written = await things.patch(THINGS, "t", {"status": {"phase": "Lost"}, "spec": {"size": 2}})

        assert written.object["status"] == {"phase": "Done"}
        assert written.object["spec"] == {"size": 2}

    async def test_the_status_endpoint_changes_nothing_else(self, things: Verbs) -> None:
        obj = await created(things, THINGS, thing("t"))
        obj["status"] = {"phase": "Done"}
        obj["spec"]["size"] = 9
        obj["metadata"] |= {"labels": {"a": "b"}, "finalizers": ["a.b/c"]}

        written = await things.update(THINGS, obj, "status")

        assert written.object["status"] == {"phase": "Done"}
        assert written.object["spec"] == {"size": 1}
        assert written.object["metadata"]["generation"] == 1
        assert {"labels", "finalizers"} & written.object["metadata"].keys() == set()

    async def test_a_status_write_is_owned_through_the_subresource(self, things: Verbs) -> None:
        await things.create(THINGS, thing("t"))

        written = await things.patch(
            THINGS, "t", {"status": {"phase": "Done"}}, subresource="status", manager="controller"
        )

        entry = next(e for e in written.object["metadata"]["managedFields"] if e["manager"] == "controller")
        assert entry["subresource"] == "status"
        assert entry["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


class TestPatch:
    @pytest.mark.parametrize(
        ("how", "patch"),
        [
            pytest.param("merge", {"data": {"x": None, "y": "2"}}, id="merge"),
            pytest.param(
                "json",
                [{"op": "remove", "path": "/data/x"}, {"op": "add", "path": "/data/y", "value": "2"}],
                id="json",
            ),
            pytest.param("strategic", {"data": {"x": None, "y": "2"}}, id="strategic"),
        ],
    )
    async def test_types(self, verbs: Verbs, how: Any, patch: Any) -> None:
        await verbs.create("configmaps", config_map("a"))

        written = await verbs.patch("configmaps", "a", patch, how)

        assert written.object["data"] == {"y": "2"}

    async def test_a_patch_needs_no_version_but_may_name_one(self, verbs: Verbs) -> None:
        await verbs.create("configmaps", config_map("a"))

        error = await refusal(verbs.patch("configmaps", "a", {"metadata": {"resourceVersion": "1"}, "data": {}}))

        assert (error.code, error.reason) == (409, "Conflict")
        assert MODIFIED in error.message

    async def test_concurrent_patches_all_succeed(self, verbs: Verbs) -> None:
        await verbs.create("configmaps", config_map("a"))

        await asyncio.gather(*(verbs.patch("configmaps", "a", {"data": {f"k{n}": "v"}}) for n in range(30)))

        assert len((await verbs.get("configmaps", "a"))["data"]) == 31

    async def test_custom_kinds_take_no_strategic_patch(self, things: Verbs) -> None:
        await things.create(THINGS, thing("t"))

        error = await refusal(things.patch(THINGS, "t", {"spec": {}}, "strategic"))

        assert (error.code, error.reason) == (415, "UnsupportedMediaType")

    async def test_a_missing_object_is_not_patched(self, verbs: Verbs) -> None:
        error = await refusal(verbs.patch("configmaps", "nope", {}))

        assert error.code == 404

    @pytest.mark.parametrize(
        ("patch", "code", "text"),
        [
            pytest.param({"metadata": {"name": "b"}}, 400, "does not match the name on the URL", id="name"),
            pytest.param({"metadata": {"uid": "b"}}, 422, "metadata.uid: Invalid value", id="uid"),
            pytest.param({"kind": "Secret"}, 422, "must be ConfigMap", id="kind"),
            pytest.param({"apiVersion": "v9"}, 422, "must be v1", id="apiVersion"),
        ],
    )
    async def test_a_patch_of_an_immutable_field_is_refused(
        self, verbs: Verbs, patch: JsonObject, code: int, text: str
    ) -> None:
        await verbs.create("configmaps", config_map("a"))

        error = await refusal(verbs.patch("configmaps", "a", patch))

        assert error.code == code
        assert text in error.message

    async def test_strict_patches_refuse_unknown_fields_without_repeating_the_object(self, things: Verbs) -> None:
        await things.create(THINGS, thing("t", spec={"colour": "CANARY"}))

        error = await refusal(things.patch(THINGS, "t", {"spec": {"shape": "round"}}, validation="Strict"))

        assert (error.code, error.reason) == (422, "Invalid")
        assert 'strict decoding error: unknown field "spec.shape"' in error.message
        assert "CANARY" not in str(error.to_json())

    async def test_a_patch_with_unknown_fields_warns(self, things: Verbs) -> None:
        await things.create(THINGS, thing("t"))

        written = await things.patch(THINGS, "t", {"spec": {"shape": "round"}})

        assert written.warnings == ['unknown field "spec.shape"']
        assert written.object["spec"] == {"size": 1}


class TestApply:
    async def test_applying_creates_what_is_missing(self, things: Verbs) -> None:
        written = await things.patch(THINGS, "t", thing("t"), "apply", manager="me")

        assert written.created
        assert written.object["metadata"]["generation"] == 1
        (entry,) = written.object["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("me", "Apply")

    async def test_applying_the_same_again_writes_nothing(self, things: Verbs) -> None:
        first = await things.patch(THINGS, "t", thing("t"), "apply", manager="me")

        again = await things.patch(THINGS, "t", thing("t"), "apply", manager="me")

        assert not again.created
        assert again.object == first.object

    async def test_a_field_of_another_applier_is_a_conflict_until_forced(self, things: Verbs) -> None:
        await things.patch(THINGS, "t", thing("t"), "apply", manager="me")
        mine = thing("t", spec={"size": 2})

        error = await refusal(things.patch(THINGS, "t", copy.deepcopy(mine), "apply", manager="you"))
        forced = await things.patch(THINGS, "t", mine, "apply", manager="you", force=True)

        assert (error.code, error.message) == (
            409,
            'Apply failed with 1 conflict: conflict with "me": .spec.size',
        )
        assert forced.object["spec"] == {"size": 2}

    @pytest.mark.parametrize(
        ("config", "code", "text"),
        [
            pytest.param(thing(""), 400, "(t based on URL) was undeterminable: name must be provided", id="no name"),
            pytest.param(thing("u"), 400, "the name of the object (u) does not match", id="another name"),
            pytest.param(
                thing("t", managedFields=[{"manager": "x"}]), 400, "metadata.managedFields must be nil", id="ownership"
            ),
        ],
    )
    async def test_refusals(self, things: Verbs, config: JsonObject, code: int, text: str) -> None:
        error = await refusal(things.patch(THINGS, "t", config, "apply", manager="me"))

        assert error.code == code
        assert text in error.message

    async def test_the_status_of_a_missing_object_is_not_applied(self, things: Verbs) -> None:
        error = await refusal(things.patch(THINGS, "t", thing("t"), "apply", "status"))

        assert error.code == 404


async def test_refusals_wait_for_the_write_they_rest_on(verbs: Verbs) -> None:
    """A conflict with a write in progress is reported only after that write is on disk."""
    first = asyncio.ensure_future(verbs.create("configmaps", config_map("a")))
    second = asyncio.ensure_future(refusal(verbs.create("configmaps", config_map("a"))))

    done, _ = await asyncio.wait([second])

    assert done.pop().result().reason == "AlreadyExists"
    assert await verbs.exists("configmaps", "a")
    await first


async def test_an_object_older_than_its_schema_is_named_when_it_cannot_be_merged(verbs: Verbs) -> None:
    await verbs.create(CRDS, definition())
    await verbs.until_idle()
    await verbs.patch(CRDS, "things.example.com", [parts("atomic")], "json")
    await verbs.until_idle()
    await verbs.create(THINGS, thing("t", spec={"parts": [{}]}))
    await verbs.patch(CRDS, "things.example.com", [parts("map")], "json")
    await verbs.until_idle()

    config = thing("t", spec={"parts": [{"name": "a"}]})
    error = await refusal(verbs.patch(THINGS, "t", config, "apply", manager="me", force=True))

    assert (error.code, error.reason) == (500, "")
    assert error.message.startswith("failed to create typed live object (default/t; example.com/v1, Kind=Thing): ")


def parts(how: str) -> JsonObject:
    """The operation that makes spec.parts a list of that type, by name if that is `map`."""
    item = {"type": "object", "properties": {"name": {"type": "string"}}}
    keyed = {"x-kubernetes-list-map-keys": ["name"]} if how == "map" else {}
    required = {"required": ["name"]} if how == "map" else {}
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/parts"
    schema = {"type": "array", "items": item | required, "x-kubernetes-list-type": how, **keyed}
    return {"op": "add", "path": path, "value": schema}
