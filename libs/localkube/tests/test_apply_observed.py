"""Server-side apply and field tracking do what a real kube-apiserver did with the same sequences of writes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.errors import StatusError
from localkube.patch import apply, keep_times, merge_patch, track_update

OBSERVED = json.loads((Path(__file__).parent / "observed" / "apply.json").read_text())
NAME = "gadget"
VERSIONS = ("t.io/v1", "t.io/v1beta1")


class Server:
    """As much of a server as the sequences need: one object, its status endpoint, one default."""

    def __init__(self) -> None:
        self.live: JsonObject | None = None

    def handle(self, step: JsonObject) -> JsonObject:
        version = "t.io/" + step.get("version", "v1")
        subresource = step.get("subresource", "")
        live = self.live and {**self.live, "apiVersion": version}
        body = copy.deepcopy(step["body"])
        named = {
            "apiVersion": version,
            "kind": "Gadget",
            **body,
            "metadata": {"name": NAME, **body.get("metadata", {})},
        }
        common: dict[str, Any] = {
            "manager": step["manager"],
            "schema": OBSERVED["schema"],
            "now": "2026-01-01T00:00:00Z",
            "subresource": subresource,
            "api_version": version,
            "versions": VERSIONS,
        }
        if step["verb"] == "apply":
            new = copy.deepcopy(apply(live, named, force=step.get("force", False), **common))
            fill_defaults(new)
        else:
            new = named if step["verb"] == "create" else merge_patch(live, body)
            fill_defaults(new)
            new = track_update(live, new, **common)
        self.live = keep_times(live, stored(live, new, subresource))
        return self.live


def fill_defaults(obj: JsonObject) -> None:
    for item in (obj.get("spec") or {}).get("pl") or []:
        item.setdefault("protocol", "TCP")


def stored(live: JsonObject | None, new: JsonObject, subresource: str) -> JsonObject:
    """The status endpoint writes status only, the other one everything else."""
    if not subresource:
        status = (live or {}).get("status")
        return {key: value for key, value in new.items() if key != "status"} | ({"status": status} if status else {})
    assert live is not None
    kept = {key: value for key, value in live.items() if key != "status"}
    metadata = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    managed = {key: value for key, value in new["metadata"].items() if key == "managedFields"}
    return kept | {"metadata": metadata | managed} | ({"status": new["status"]} if "status" in new else {})


def view(obj: JsonObject) -> JsonObject:
    managed = [
        [
            entry["manager"],
            entry["operation"],
            entry["apiVersion"],
            entry.get("subresource", ""),
            "time" in entry,
            entry["fieldsV1"],
        ]
        for entry in obj["metadata"].get("managedFields", [])
    ]
    parts = {
        "labels": obj["metadata"].get("labels"),
        "spec": obj.get("spec"),
        "status": obj.get("status"),
        "managed": by_manager(managed),
    }
    return {name: part for name, part in parts.items() if part is not None}


def by_manager(managed: list[Any]) -> list[Any]:
    """Entries of one second sort by name; the recording may have crossed a second."""
    return sorted(managed, key=json.dumps)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in OBSERVED["sequences"]])
def test_a_sequence_of_writes_gives_the_objects_and_conflicts_of_the_real_server(row: JsonObject) -> None:
    server = Server()

    for step in row["steps"]:
        if step["code"] >= 300:
            with pytest.raises(StatusError) as caught:
                server.handle(step)
            assert (caught.value.code, caught.value.message) == (step["code"], step["message"])
        else:
            expected = step["object"]
            assert view(server.handle(step)) == {**expected, "managed": by_manager(expected["managed"])}
