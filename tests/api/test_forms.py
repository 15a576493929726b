"""The same objects in other forms: tables for people, metadata only, YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kuberun.testing.rawapi import RawApi

pytestmark = pytest.mark.live

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class TestTables:
    async def test_a_table_of_custom_objects_has_the_declared_columns(
        self, api: RawApi, widgets: str, widget: Any
    ) -> None:
        await api.post(widgets, widget("a", colour="green", size=7, note="hello"))

        reply = await api.get(widgets, accept=TABLE)

        columns = reply.body["columnDefinitions"]
        assert (reply.body["kind"], reply.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [(one["name"], one["type"], one["priority"]) for one in columns] == [
            ("Name", "string", 0),
            ("Colour", "string", 0),
            ("Size", "integer", 0),
            ("Ready", "string", 0),
            ("Note", "string", 1),
            ("Age", "date", 0),
        ]
        assert columns[0]["format"] == "name"
        assert reply.body["rows"][0]["cells"][:5] == ["a", "green", 7, None, "hello"]

    async def test_a_condition_is_read_by_a_filter(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))
        status = {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}
        await api.patch(f"{widgets}/a/status", {"status": status})

        reply = await api.get(widgets, accept=TABLE)

        assert reply.body["rows"][0]["cells"][3] == "True"

    async def test_a_wildcard_column_reads_the_member_that_has_the_field(
        self, api: RawApi, namespace: str, crd: Any, install: Any
    ) -> None:
        paced = crd("runners", "Runner")
        column = {"name": "Pace", "type": "string", "jsonPath": ".*.pace"}
        paced["spec"]["versions"][0]["additionalPrinterColumns"] = [column]
        await install(paced)
        path = f"/apis/shop.example.com/v1/namespaces/{namespace}/runners"
        members: dict[str, Any] = {
            "a": {"spec": {"pace": "slow"}},
            "b": {"spec": {}, "status": {"pace": "fast"}},
            "c": {},
        }
        for name, parts in members.items():
            runner = {"apiVersion": "shop.example.com/v1", "kind": "Runner", "metadata": {"name": name}}
            await api.post(path, {**runner, **parts})

        reply = await api.get(path, accept=TABLE)

        assert [row["cells"] for row in reply.body["rows"]] == [["a", "slow"], ["b", "fast"], ["c", None]]

    async def test_rows_carry_metadata_and_no_spec(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a", labels={"k": "v"}))

        row = (await api.get(widgets, accept=TABLE)).body["rows"][0]["object"]

        assert (row["kind"], row["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert row["metadata"]["labels"] == {"k": "v"}
        assert "spec" not in row

    @pytest.mark.parametrize(("include", "kind"), [("Object", "Widget"), ("None", None)])
    async def test_rows_include_what_is_asked_for(
        self, api: RawApi, widgets: str, widget: Any, include: str, kind: str | None
    ) -> None:
        await api.post(widgets, widget("a"))

        row = (await api.get(widgets, accept=TABLE, includeObject=include)).body["rows"][0]

        assert (row.get("object") or {}).get("kind") == kind

    async def test_one_object_is_a_table_of_one_row(self, api: RawApi, widgets: str, widget: Any) -> None:
        created = await api.post(widgets, widget("a"))

        reply = await api.get(f"{widgets}/a", accept=TABLE)

        assert len(reply.body["rows"]) == 1
        assert reply.body["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]

    async def test_a_kind_without_columns_shows_name_and_age(
        self, api: RawApi, namespace: str, crd: Any, install: Any
    ) -> None:
        await install(crd("plains", "Plain"))
        path = f"/apis/shop.example.com/v1/namespaces/{namespace}/plains"
        await api.post(path, {"apiVersion": "shop.example.com/v1", "kind": "Plain", "metadata": {"name": "a"}})

        reply = await api.get(path, accept=TABLE)

        assert [one["name"] for one in reply.body["columnDefinitions"]] == ["Name", "Age"]
        assert reply.body["rows"][0]["cells"][0] == "a"

    @pytest.mark.parametrize(
        ("plural", "body", "cells"),
        [
            pytest.param("configmaps", {"data": {"a": "1", "b": "2"}}, {"Name": "x", "Data": 2}, id="config maps"),
            pytest.param(
                "secrets", {"stringData": {"a": "1"}}, {"Name": "x", "Type": "Opaque", "Data": 1}, id="secrets"
            ),
            pytest.param("serviceaccounts", {}, {"Name": "x"}, id="service accounts"),
        ],
    )
    async def test_built_in_kinds_have_their_own_columns(
        self, api: RawApi, namespace: str, plural: str, body: dict[str, Any], cells: dict[str, Any]
    ) -> None:
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        await api.post(path, {"metadata": {"name": "x"}, **body})

        reply = await api.get(f"{path}/x", accept=TABLE)

        names = [one["name"] for one in reply.body["columnDefinitions"]]
        shown = dict(zip(names, reply.body["rows"][0]["cells"], strict=True))
        assert cells.items() <= shown.items()
        assert names[-1] == "Age"

    async def test_a_watch_can_be_a_table(self, api: RawApi, widgets: str, widget: Any) -> None:
        await api.post(widgets, widget("a"))

        async with api.watch(widgets, accept=TABLE) as frames:
            first = await frames.next()
            await api.post(widgets, widget("b"))
            second = await frames.next()

        assert (first["type"], first["object"]["kind"]) == ("ADDED", "Table")
        assert first["object"]["columnDefinitions"]
        assert first["object"]["rows"][0]["cells"][0] == "a"
        assert not second["object"].get("columnDefinitions"), "columns come with the first frame only"
        assert second["object"]["rows"][0]["cells"][0] == "b"

    async def test_a_failure_is_a_status_not_a_table(self, api: RawApi, widgets: str) -> None:
        reply = await api.get(f"{widgets}/missing", accept=TABLE)

        assert reply.status == 404
        assert reply.body["kind"] == "Status"

    async def test_a_table_falls_back_to_json_for_an_unknown_form(self, api: RawApi, configmaps: str) -> None:
        reply = await api.get(
            configmaps, accept=f"application/json;as=Chart;g=meta.k8s.io;v=v1,{TABLE},application/json"
        )

        assert reply.body["kind"] == "Table"

    async def test_an_unknown_form_alone_is_not_acceptable(self, api: RawApi, configmaps: str) -> None:
        reply = await api.get(configmaps, accept="application/json;as=Chart;g=meta.k8s.io;v=v1")

        assert (reply.status, reply.reason) == (406, "NotAcceptable")


class TestMetadataOnly:
    async def test_a_list(self, api: RawApi, secrets: str) -> None:
        created = await api.post(secrets, {"metadata": {"name": "a", "labels": {"k": "v"}}, "stringData": {"p": "x"}})

        reply = await api.get(secrets, accept=METADATA_LIST)

        assert (reply.body["kind"], reply.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
        assert reply.body["items"][0]["metadata"] == created.body["metadata"]
        assert set(reply.body["items"][0]) <= {"kind", "apiVersion", "metadata"}

    async def test_one_object(self, api: RawApi, secrets: str) -> None:
        await api.post(secrets, {"metadata": {"name": "a"}, "stringData": {"p": "x"}})

        reply = await api.get(f"{secrets}/a", accept=METADATA)

        assert reply.body["kind"] == "PartialObjectMetadata"
        assert "data" not in reply.body

    async def test_a_watch(self, api: RawApi, secrets: str) -> None:
        await api.post(secrets, {"metadata": {"name": "a"}, "stringData": {"p": "x"}})

        async with api.watch(secrets, accept=METADATA) as frames:
            frame = await frames.next()

        assert (frame["type"], frame["object"]["kind"]) == ("ADDED", "PartialObjectMetadata")
        assert frame["object"]["metadata"]["name"] == "a"
        assert "data" not in frame["object"]

    async def test_a_patch_can_answer_with_metadata_only(self, api: RawApi, configmaps: str) -> None:
        await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": "v"}})

        reply = await api.send(
            "PATCH",
            f"{configmaps}/a",
            {"metadata": {"labels": {"x": "y"}}},
            headers={"Accept": METADATA, "Content-Type": "application/merge-patch+json"},
        )

        assert reply.body["kind"] == "PartialObjectMetadata"
        assert reply.body["metadata"]["labels"] == {"x": "y"}

    async def test_pages(self, api: RawApi, configmaps: str) -> None:
        for name in ("a", "b"):
            await api.post(configmaps, {"metadata": {"name": name}})

        first = await api.get(configmaps, accept=METADATA_LIST, limit=1)

        assert len(first.body["items"]) == 1
        assert first.body["metadata"]["continue"]


async def test_an_answer_can_be_yaml(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}, "data": {"k": "v"}})

    reply = await api.get(f"{configmaps}/a", accept="application/yaml")

    assert reply.headers["Content-Type"] == "application/yaml"
    assert yaml.load(reply.body, yaml.BaseLoader)["data"] == created.body["data"]  # noqa: S506 - scalars stay text


async def test_pretty_answers_are_the_same_object(api: RawApi, configmaps: str) -> None:
    created = await api.post(configmaps, {"metadata": {"name": "a"}})

    reply = await api.get(f"{configmaps}/a", pretty="true")

    assert json.dumps(reply.body, sort_keys=True) == json.dumps(created.body, sort_keys=True)
