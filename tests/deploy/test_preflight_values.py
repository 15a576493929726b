"""What `eso preflight` says about chart values is true of the chart: it accepts every value that the report knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eso_cli.preflight.chartvalues import VALUES

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "deploy/charts/external-secrets/values.schema.json").read_text()
)


def accepts(schema: dict[str, Any], path: list[str]) -> bool:
    """Return whether a value at this path may be set."""
    if not path:
        return True
    known = schema.get("properties", {})
    if path[0] in known:
        return accepts(known[path[0]], path[1:])
    return schema.get("additionalProperties") is not False


def test_the_chart_accepts_every_value_that_the_report_knows() -> None:
    assert [path for path in VALUES if not accepts(SCHEMA, path.split("."))] == []


def test_the_chart_refuses_a_value_that_neither_chart_knows() -> None:
    assert not accepts(SCHEMA, ["crds", "madeUp"])
    assert not accepts(SCHEMA, ["madeUp"])
