"""Tables and metadata-only forms as kube-apiserver renders them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubebase.meta import JsonObject, Resource
from localkube.model import Column, ServedKind
from localkube.table import (
    human_duration,
    jsonpath_reader,
    partial_metadata,
    partial_metadata_list,
    table,
    without_headers,
)

NOW = datetime(2026, 11, 15, 22, 30, tzinfo=UTC)
OBJ: JsonObject = {
    "apiVersion": "t.io/v1",
    "kind": "Thing",
    "metadata": {"name": "one", "creationTimestamp": "2026-11-15T22:24:57Z", "annotations": {"example.com/x": "ann"}},
    "spec": {
        "text": "hello",
        "count": 3,
        "flag": True,
        "num": 1.5,
        "st": {"b": "<2>", "a": "1"},
        "sl": ["x", "y"],
        "when": "2020-01-01T00:00:00Z",
    },
}
BARE: JsonObject = {"metadata": {"name": "bare"}}


def kind(*columns: Column, custom: bool = True) -> ServedKind:
    return ServedKind(
        resource=Resource("t.io", "v1", "things", "Thing"),
        schema=None,  # type: ignore[arg-type] # not looked at
        singular="thing",
        list_kind="ThingList",
        storage_version="v1",
        columns=columns,
        custom=custom,
    )


def column(path: str, type_: str = "string", **more: Any) -> Column:
    return Column("C", type_, jsonpath_reader(path), **more)


def cell(shown: Column, obj: JsonObject = OBJ, *, custom: bool = True) -> Any:
    result = table([obj], kind(shown, custom=custom), include="None", now=NOW, list_meta={})
    return result["rows"][0]["cells"][1]


@pytest.mark.parametrize(
    ("path", "type_", "expected"),
    [
        pytest.param(".spec.text", "string", "hello", id="text"),
        pytest.param(".spec.count", "integer", 3, id="an integer"),
        pytest.param(".spec.count", "string", "3", id="an integer as text"),
        pytest.param(".spec.num", "integer", 1, id="a number cut to an integer"),
        pytest.param(".spec.num", "number", 1.5, id="a number"),
        pytest.param(".spec.count", "number", 3, id="an integer is a number"),
        pytest.param(".spec.text", "integer", None, id="text is no integer"),
        pytest.param(".spec.flag", "integer", None, id="truth is no integer"),
        pytest.param(".spec.flag", "boolean", True, id="a boolean"),
        pytest.param(".spec.flag", "string", "true", id="a boolean as text"),
        pytest.param(".spec.st", "string", '{"a":"1","b":"\\u003c2\\u003e"}', id="a map as JSON"),
        pytest.param(".spec.sl", "string", '["x","y"]', id="a list as JSON"),
        pytest.param(".spec.none", "string", None, id="nothing"),
        pytest.param(".metadata.creationTimestamp", "date", "5m3s", id="an age"),
        pytest.param(".spec.when", "date", "6y320d", id="a long age"),
        pytest.param(".spec.text", "date", "<invalid>", id="text is no date"),
        pytest.param(".spec.none", "date", None, id="no date"),
    ],
)
def test_cells_of_a_custom_kind_have_the_type_of_their_column(path: str, type_: str, expected: Any) -> None:
    found = cell(column(path, type_))

    assert found == expected
    assert type(found) is type(expected)


def test_cells_of_a_built_in_kind_are_shown_as_they_are() -> None:
    assert cell(Column("Data", "string", lambda _: 2), custom=False) == 2
    assert cell(column(".metadata.creationTimestamp", "date"), custom=False) == "5m3s"
    assert cell(column(".metadata.creationTimestamp", "date"), BARE, custom=False) == "<unknown>"


def test_the_name_comes_first_and_columns_are_defined() -> None:
    shown = table(
        [OBJ],
        kind(Column("Count", "integer", jsonpath_reader(".spec.count"), description="the count", priority=1)),
        include="None",
        now=NOW,
        list_meta={"resourceVersion": "7", "continue": "c", "remainingItemCount": 2},
    )

    assert (shown["kind"], shown["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert shown["metadata"] == {"resourceVersion": "7", "continue": "c", "remainingItemCount": 2}
    assert [(c["name"], c["type"], c["format"], c["priority"]) for c in shown["columnDefinitions"]] == [
        ("Name", "string", "name", 0),
        ("Count", "integer", "", 1),
    ]
    assert shown["columnDefinitions"][1]["description"] == "the count"
    assert shown["rows"] == [{"cells": ["one", 3], "object": None}]


def test_a_kind_may_place_its_name_itself() -> None:
    columns = (column(".spec.text"), Column("Name", "string", lambda obj: obj["metadata"]["name"], format="name"))

    shown = table([OBJ], kind(*columns), include="None", now=NOW, list_meta={})

    assert shown["rows"][0]["cells"] == ["hello", "one"]


def test_a_kind_without_columns_shows_when_objects_were_created() -> None:
    custom = table([OBJ], kind(), include="None", now=NOW, list_meta={})
    built_in = table([OBJ], kind(custom=False), include="None", now=NOW, list_meta={})

    assert [c["name"] for c in custom["columnDefinitions"]] == ["Name", "Age"]
    assert custom["rows"][0]["cells"] == ["one", "5m3s"]
    assert [(c["name"], c["type"]) for c in built_in["columnDefinitions"]][1] == ("Created At", "date")
    assert built_in["rows"][0]["cells"] == ["one", "2026-11-15T22:24:57Z"]


def test_the_age_of_a_built_in_kind_is_called_a_string() -> None:
    shown = table([], kind(column(".metadata.x", "date"), custom=False), include="None", now=NOW, list_meta={})

    assert shown["columnDefinitions"][1]["type"] == "string"
    assert shown["rows"] == []


def test_rows_carry_what_was_asked_for() -> None:
    def row(include: Any) -> Any:
        return table([OBJ], kind(), include=include, now=NOW, list_meta={})["rows"][0]["object"]

    assert row("None") is None
    assert row("Object") == OBJ
    assert row("Metadata") == partial_metadata(OBJ)


def test_later_events_of_a_watch_have_no_headers() -> None:
    shown = table([OBJ], kind(), include="None", now=NOW, list_meta={})

    assert without_headers(shown) == {**shown, "columnDefinitions": None}
    assert shown["columnDefinitions"]


def test_metadata_only_forms() -> None:
    one = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": OBJ["metadata"]}

    assert partial_metadata(OBJ) == one
    assert partial_metadata_list([OBJ], {"resourceVersion": "7"}) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "items": [one],
    }


MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (2 * MINUTE + 3, "2m3s"),
        (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 1, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY + HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY + DAY, "8y"),
    ],
)
def test_durations_read_as_kubectl_users_know_them(seconds: float, expected: str) -> None:
    assert human_duration(seconds) == expected
