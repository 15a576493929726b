"""Custom resources are pruned, defaulted and validated as a real kube-apiserver does it, message by message."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubebase.meta import JsonObject, Resource
from localkube.schema.structural import StructuralSchema

OBSERVED = Path(__file__).parent / "observed"
THING = Resource("ex.io", "v1", "things", "Thing")


def rows(name: str) -> list[Any]:
    return [pytest.param(row, id=row["id"]) for row in json.loads((OBSERVED / name).read_text())]


def schema_of(row: JsonObject) -> StructuralSchema:
    return StructuralSchema({"type": "object", "properties": {"spec": row["schema"]}}, THING)


def thing(spec: Any) -> JsonObject:
    meta = {"name": "x", "namespace": "default"}
    return {"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": meta, "spec": copy.deepcopy(spec)}


def causes_of(schema: StructuralSchema, obj: JsonObject, old: JsonObject | None) -> list[list[str]]:
    return sorted([cause.field, cause.message, cause.reason] for cause in schema.validate(obj, old))


@pytest.mark.parametrize("row", rows("custom_resource_create.json"))
def test_a_new_object_gets_the_answer_of_the_real_server(row: JsonObject) -> None:
    schema = schema_of(row)
    obj = thing(row["value"])

    unreadable = schema.decode_error(obj)
    dropped = schema.prune(obj)
    schema.default(obj)
    causes = causes_of(schema, obj, None)

    assert unreadable == row.get("message")
    expected = sorted(row.get("causes", []))
    if row.get("summary_only"):  # the real server adds the violations of the closest alternative
        assert causes
        assert all(cause in expected for cause in causes)
    elif unreadable is None:
        assert causes == expected
    if row["code"] == 201:
        assert obj.get("spec") == row["stored"]
        assert dropped == row.get("dropped", [])


@pytest.mark.parametrize("row", rows("custom_resource_update.json"))
def test_an_update_gets_the_answer_of_the_real_server(row: JsonObject) -> None:
    schema = schema_of(row)
    old, new = thing(row["old"]), thing(row["value"])

    causes = causes_of(schema, new, old)

    assert causes == sorted(row.get("causes", []))
