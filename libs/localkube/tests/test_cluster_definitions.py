"""CustomResourceDefinitions: when their kinds are served, how versions share objects, how they end."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from localkube.cluster import Cluster
from localkube.testing.verbs import Verbs, definition, refusal, take, thing

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
THINGS = "things.example.com"


def condition(obj: JsonObject, name: str) -> JsonObject:
    found: JsonObject = next(one for one in obj["status"]["conditions"] if one["type"] == name)
    return found


def with_versions(**schemas: JsonObject) -> JsonObject:
    """A definition that serves several versions; the first is stored."""
    obj = definition()
    base = obj["spec"]["versions"][0]
    obj["spec"]["versions"] = [
        {**copy.deepcopy(base), "name": name, "storage": index == 0, "schema": {"openAPIV3Schema": schema}}
        for index, (name, schema) in enumerate(schemas.items())
    ]
    return obj


def schema_of(**fields: Any) -> JsonObject:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}


async def change(verbs: Verbs, edit: Any) -> JsonObject:
    obj = await verbs.get(CRDS, "things.example.com")
    edit(obj)
    return (await verbs.update(CRDS, obj)).object


async def test_a_kind_is_served_as_soon_as_its_definition_is_acknowledged(verbs: Verbs) -> None:
    before = verbs.cluster.catalog.counter

    await verbs.create(CRDS, definition())
    await verbs.create(THINGS, thing("t"))

    assert await verbs.exists(THINGS, "t")
    assert verbs.cluster.catalog.counter > before


async def test_the_status_says_established_with_accepted_names_and_stored_versions(verbs: Verbs) -> None:
    await verbs.create(CRDS, definition())

    obj = await verbs.get(CRDS, "things.example.com")

    assert condition(obj, "NamesAccepted")["reason"] == "NoConflicts"
    assert condition(obj, "Established")["reason"] == "InitialNamesAccepted"
    assert obj["status"]["acceptedNames"] == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
    }
    assert obj["status"]["storedVersions"] == ["v1"]
    assert obj["metadata"]["generation"] == 1


class TestNameConflicts:
    async def test_the_second_definition_of_a_kind_waits_for_the_first_to_go(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        await verbs.create(CRDS, definition("stuff", "Thing"))

        refused = await verbs.get(CRDS, "stuff.example.com")
        served_before = verbs.serves("stuff.example.com")
        await verbs.delete(CRDS, "things.example.com")
        await verbs.until_gone(CRDS, "things.example.com")
        await verbs.until_idle()

        assert condition(refused, "NamesAccepted")["status"] == "False"
        assert condition(refused, "Established")["reason"] == "NotAccepted"
        assert not served_before
        assert verbs.serves("stuff.example.com")

    async def test_two_at_the_same_moment_do_not_both_get_the_name(self, verbs: Verbs) -> None:
        await asyncio.gather(
            verbs.create(CRDS, definition("things", "Thing")), verbs.create(CRDS, definition("stuff", "Thing"))
        )

        assert [verbs.serves("things.example.com"), verbs.serves("stuff.example.com")] == [True, False]


class TestVersions:
    async def test_an_object_is_seen_through_every_served_version(self, verbs: Verbs) -> None:
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        await verbs.create(CRDS, with_versions(v1=loose, v2=loose))
        await verbs.create("things.v1.example.com", thing("t"))

        second = await verbs.get("things.v2.example.com", "t")
        listed = (await verbs.list("things.v2.example.com")).items
        (event,) = await take(verbs.watch("things.v2.example.com"), 1)
        updated = await verbs.patch("things.v2.example.com", "t", {"spec": {"size": 2}})
        first = await verbs.get("things.v1.example.com", "t")

        assert {obj["apiVersion"] for obj in (second, listed[0], event.object, updated.object)} == {"example.com/v2"}
        assert (first["apiVersion"], first["spec"]) == ("example.com/v1", {"size": 2})
        assert first["metadata"]["uid"] == second["metadata"]["uid"]

    async def test_fields_that_the_stored_version_does_not_have_are_not_kept(self, verbs: Verbs) -> None:
        size, colour = {"type": "integer"}, {"type": "string"}
        await verbs.create(CRDS, with_versions(v1=schema_of(size=size), v2=schema_of(size=size, colour=colour)))

        await verbs.create("things.v2.example.com", thing("t", "v2", spec={"size": 1, "colour": "red"}))

        assert (await verbs.get("things.v2.example.com", "t"))["spec"] == {"size": 1}

    async def test_a_new_storage_version_is_added_to_the_stored_ones(self, verbs: Verbs) -> None:
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        await verbs.create(CRDS, with_versions(v1=loose, v2=loose))

        def swap(obj: JsonObject) -> None:
            for version in obj["spec"]["versions"]:
                version["storage"] = version["name"] == "v2"

        await change(verbs, swap)

        assert (await verbs.get(CRDS, "things.example.com"))["status"]["storedVersions"] == ["v1", "v2"]

    async def test_a_version_that_is_no_longer_served_is_not_found(self, verbs: Verbs) -> None:
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        await verbs.create(CRDS, with_versions(v1=loose, v2=loose))

        await change(verbs, lambda obj: obj["spec"]["versions"][1].update(served=False))

        assert verbs.serves("things.v1.example.com")
        assert not verbs.serves("things.v2.example.com")


class TestSchemaChanges:
    async def test_objects_from_before_are_read_as_the_new_schema_sees_them(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        await verbs.create(THINGS, thing("t", spec={"size": 1, "colour": "red"}))

        def narrow(obj: JsonObject) -> None:
            schema = obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            del schema["colour"]
            schema["shape"] = {"type": "string", "default": "round"}

        await change(verbs, narrow)

        assert (await verbs.get(THINGS, "t"))["spec"] == {"size": 1, "shape": "round"}
        assert (await verbs.list(THINGS)).items[0]["spec"] == {"size": 1, "shape": "round"}

    async def test_watches_end_so_that_clients_start_again(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        watch = verbs.watch(THINGS)
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.wait([waiting], timeout=0)

        await change(verbs, lambda obj: obj["spec"]["versions"][0].update(additionalPrinterColumns=[]))
        await change(
            verbs,
            lambda obj: obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
                "properties"
            ].update(shape={"type": "string"}),
        )

        assert await waiting is None

    async def test_a_change_of_labels_does_not_disturb_anyone(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        kind = verbs.kind(THINGS)

        await verbs.patch(CRDS, "things.example.com", {"metadata": {"labels": {"a": "b"}}})

        assert verbs.kind(THINGS) is kind


class TestDeletion:
    async def test_objects_go_first(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        await verbs.create(THINGS, thing("free"))
        await verbs.create(THINGS, thing("held", finalizers=["a.b/c"]))

        answer = await verbs.delete(CRDS, "things.example.com")
        await verbs.until_gone(THINGS, "free")
        await verbs.until_idle()
        waiting = await verbs.get(CRDS, "things.example.com")
        await verbs.patch(THINGS, "held", {"metadata": {"finalizers": None}})
        await verbs.until_gone(CRDS, "things.example.com")

        assert answer["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        assert condition(answer, "Terminating")["reason"] == "InstanceDeletionPending"
        assert condition(waiting, "Terminating")["reason"] == "InstanceDeletionInProgress"
        assert not verbs.serves(THINGS)
        assert verbs.cluster.store.scan("things.example.com") == []

    async def test_nothing_is_created_meanwhile(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        await verbs.create(THINGS, thing("held", finalizers=["a.b/c"]))
        await verbs.delete(CRDS, "things.example.com")

        error = await refusal(verbs.create(THINGS, thing("new")))

        assert error.code == 403
        assert error.message == (
            'things.example.com "new" is forbidden: create not allowed while custom resource definition is terminating'
        )

    async def test_watches_see_the_objects_go_and_end(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        await verbs.create(THINGS, thing("t"))
        watch = verbs.watch(THINGS)
        (first,) = await take(watch, 1)

        await verbs.delete(CRDS, "things.example.com")
        rest = [event.type async for event in watch]

        assert (first.type, rest) == ("ADDED", ["DELETED"])

    async def test_the_name_can_be_used_again(self, verbs: Verbs) -> None:
        await verbs.create(CRDS, definition())
        await verbs.create(THINGS, thing("t"))
        await verbs.delete(CRDS, "things.example.com")
        await verbs.until_gone(CRDS, "things.example.com")

        await verbs.create(CRDS, definition())

        assert await verbs.names(THINGS) == []


async def test_definitions_are_served_after_a_restart(tmp_path: Path) -> None:
    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        verbs = Verbs(cluster)
        await verbs.create(CRDS, definition())
        await verbs.create(THINGS, thing("t"))

    async with Cluster(tmp_path, clock=SystemClock()) as cluster:
        assert (await Verbs(cluster).get(THINGS, "t"))["spec"] == {"size": 1}


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        pytest.param(
            lambda crd: crd["metadata"].update(name="wrong.example.com"), "must be spec.names.plural", id="name"
        ),
        pytest.param(lambda crd: crd["spec"]["versions"][0].update(storage=False), "storage", id="no stored version"),
    ],
)
async def test_a_definition_that_makes_no_sense_is_refused(verbs: Verbs, edit: Any, text: str) -> None:
    obj = definition()
    edit(obj)

    error = await refusal(verbs.create(CRDS, obj))

    assert (error.code, error.reason) == (422, "Invalid")
    assert text in error.message
