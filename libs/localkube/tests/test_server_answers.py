"""Answers of the server over HTTPS: forms of objects and lists, and watches."""

from __future__ import annotations

from typing import Any

import yaml

from kuberun.testing.rawapi import RawApi

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


# --- forms ------------------------------------------------------------------------------------------------------------


async def test_items_of_a_built_in_list_do_not_repeat_their_kind(admin: RawApi) -> None:
    await admin.post(CONFIG_MAPS, config_map("c"))

    body = (await admin.get(CONFIG_MAPS)).body

    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert not {"kind", "apiVersion"} & body["items"][0].keys()


async def test_a_table_of_a_list_and_of_one_object(admin: RawApi) -> None:
    await admin.post(CONFIG_MAPS, config_map("c", a="1", b="2"))

    many = (await admin.get(CONFIG_MAPS, accept=TABLE, fieldSelector="metadata.name=c")).body
    one = (await admin.get(f"{CONFIG_MAPS}/c", accept=TABLE, includeObject="None")).body

    assert [column["name"] for column in many["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert many["rows"][0]["cells"][:2] == ["c", 2]
    assert many["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert one["rows"][0]["object"] is None


async def test_metadata_only(admin: RawApi) -> None:
    await admin.post(CONFIG_MAPS, config_map("c", a="1"))

    one = (await admin.get(f"{CONFIG_MAPS}/c", accept=METADATA)).body
    many = (await admin.get(CONFIG_MAPS, accept=METADATA.replace("Metadata", "MetadataList", 1))).body

    assert (one["kind"], one["metadata"]["name"], "data" in one) == ("PartialObjectMetadata", "c", False)
    assert (many["kind"], many["items"][0]["kind"]) == ("PartialObjectMetadataList", "PartialObjectMetadata")


async def test_yaml_in_and_out(admin: RawApi) -> None:
    text = "metadata:\n  name: from-yaml\ndata:\n  a: 'yes'\n"

    made = await admin.send("POST", CONFIG_MAPS, text, headers={"Content-Type": "application/yaml"})
    read = await admin.get(f"{CONFIG_MAPS}/from-yaml", accept="application/yaml")

    assert made.status == 201
    assert yaml.safe_load(read.body)["data"] == {"a": "yes"}


async def test_large_lists_are_compressed(admin: RawApi) -> None:
    await admin.post(CONFIG_MAPS, config_map("big", a="x" * 300_000))

    reply = await admin.send("GET", CONFIG_MAPS, headers={"Accept-Encoding": "gzip"})

    assert reply.headers["Content-Encoding"] == "gzip"
    assert len(reply.body["items"][0]["data"]["a"]) == 300_000


# --- watches ----------------------------------------------------------------------------------------------------------


async def test_a_watch_streams_each_change_in_its_form(admin: RawApi) -> None:
    async with (
        admin.watch(CONFIG_MAPS) as plain,
        admin.watch(CONFIG_MAPS, accept=TABLE) as tables,
        admin.watch(CONFIG_MAPS, accept=METADATA) as metadata,
    ):
        await admin.post(CONFIG_MAPS, config_map("c", a="1"))
        await admin.patch(f"{CONFIG_MAPS}/c", {"data": {"a": "2"}})

        first, second = await plain.next(), await plain.next()
        row, later_row = await tables.next(), await tables.next()
        partial = await metadata.next()

    assert (first["type"], second["type"], second["object"]["data"]) == ("ADDED", "MODIFIED", {"a": "2"})
    assert row["object"]["columnDefinitions"][0]["name"] == "Name"
    assert (later_row["object"]["columnDefinitions"], later_row["object"]["rows"][0]["cells"][0]) == (None, "c")
    assert (partial["object"]["kind"], "data" in partial["object"]) == ("PartialObjectMetadata", False)


async def test_a_watch_ends_when_its_time_is_up(admin: RawApi) -> None:
    async with admin.watch(CONFIG_MAPS, timeoutSeconds=1, resourceVersion="0") as frames:
        while await frames.next_or_end() is not None:
            pass


async def test_a_watch_from_before_history_ends_with_an_error_frame(admin: RawApi) -> None:
    version = (await admin.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"]
    await admin.post(CONFIG_MAPS, config_map("c"))
    await admin.post(CONFIG_MAPS, config_map("d"))
    assert (await admin.send("POST", "/localkube/compact")).status == 200

    async with admin.watch(CONFIG_MAPS, resourceVersion=version) as frames:
        frame = await frames.next()

    assert (frame["type"], frame["object"]["code"], frame["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_initial_events_end_with_a_bookmark(admin: RawApi) -> None:
    await admin.post(CONFIG_MAPS, config_map("c"))
    wanted: dict[str, Any] = {
        "sendInitialEvents": True,
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": True,
    }

    async with admin.watch(CONFIG_MAPS, **wanted) as frames:
        added, bookmark = await frames.until("ADDED", "c"), await frames.until("BOOKMARK")

    assert added["object"]["metadata"]["name"] == "c"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_bad_watch_options_are_a_status_not_a_stream(admin: RawApi) -> None:
    assert (await admin.get(CONFIG_MAPS, watch=True, sendInitialEvents=True)).status == 422
    assert (await admin.get(CONFIG_MAPS, watch=True, timeoutSeconds="x")).status == 400
