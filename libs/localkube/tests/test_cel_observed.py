"""CEL expressions give what the CEL of a real kube-apiserver gives, errors included."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubebase.meta import JsonObject
from localkube.schema.cel import CompileError, EvaluationError, compile_program, type_of_schema

OBSERVED = Path(__file__).parent / "observed" / "expressions.json"

TEXT: JsonObject = {"type": "string", "maxLength": 5}
NAMED: JsonObject = {"type": "object", "required": ["n"], "properties": {"n": TEXT, "v": TEXT}}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "d": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": TEXT},
        "m": {"type": "object", "additionalProperties": TEXT},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "maps": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": NAMED,
        },
        "bytes": {"type": "string", "format": "byte"},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "dur": {"type": "string", "format": "duration"},
        "ios": {"x-kubernetes-int-or-string": True},
        "missing": TEXT,
    },
}
VALUE: JsonObject = {
    "s": "text",
    "i": 7,
    "d": 2,
    "b": True,
    "l": ["x", "y"],
    "m": {"k": "v"},
    "set": ["a", "b"],
    "maps": [{"n": "a", "v": "1"}, {"n": "b", "v": "2"}],
    "bytes": "aGVsbG8=",
    "when": "2020-01-01T00:00:00Z",
    "day": "2020-01-02",
    "dur": "1h",
    "ios": 5,
}


def rows() -> list[Any]:
    return [pytest.param(row, id=row["expression"]) for row in json.loads(OBSERVED.read_text())]


def outcome(expression: str) -> tuple[str, str]:
    kind = type_of_schema(SCHEMA, name="self")
    assert kind is not None
    try:
        value, _ = compile_program(expression, {"self": kind, "oldSelf": kind}).run({"self": VALUE})
    except CompileError as failure:
        return "compile", str(failure)
    except EvaluationError as failure:
        return "error", str(failure)
    return ("true" if value is True else "false"), ""


@pytest.mark.parametrize("row", rows())
def test_an_expression_gives_what_the_real_server_gives(row: JsonObject) -> None:
    kind, message = outcome(row["expression"])

    assert kind == row["outcome"]
    if kind == "compile" and "Syntax error" not in row["message"]:
        assert message.split("\n")[0] == row["message"]
