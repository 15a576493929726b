"""Recorded results of Go's text/template with Sprig, one test for each (vectors/templates.jsonl)."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gotmpl.builtins import FUNCTIONS as BUILTINS
from gotmpl.errors import ExecError, ParseError, TemplateError
from gotmpl.functions import LazyFunctions
from gotmpl.sprig import families
from gotmpl.template import Engine
from gotmpl.values import StrMap, to_bytes

Vector = dict[str, Any]

NANOS = 1_700_000_000 * 10**9
ENGINE = Engine(LazyFunctions([(" ".join(BUILTINS), lambda: BUILTINS), *families(lambda: NANOS)]))
QUOTES_DATA = {
    "exec-errors-061": "Go shows the value that cannot be iterated over",
    "sprig-defaults-040": "Go shows the value that a message of fail is made with",
}
"""Where our error text differs from Go's. The only good reason: Go quotes a data value, and we never do."""


@cache
def vectors() -> list[Vector]:
    lines = (Path(__file__).parent / "vectors" / "templates.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return [json.loads(line) for line in lines]


def data_of(vector: Vector) -> StrMap:
    if "data_b64" in vector:
        decoded = {key: base64.b64decode(value) for key, value in vector["data_b64"].items()}
        return StrMap({key: value.decode("utf-8", "surrogateescape") for key, value in decoded.items()})
    return StrMap(vector["data"])


def rendered(vector: Vector) -> str:
    return ENGINE.render(
        vector["template"],
        data_of(vector),
        name=vector.get("name", "tpl"),
        left=vector.get("left") or "{{",
        right=vector.get("right") or "}}",
    )


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in vectors()])
def test_a_template_has_the_outcome_it_has_in_go(vector: Vector) -> None:
    if "expect_error_contains" in vector:
        with pytest.raises({"parse": ParseError, "exec": ExecError}[vector["phase"]]) as caught:
            rendered(vector)
        assert vector["expect_error_contains"] in str(caught.value)
        return

    output = to_bytes(rendered(vector))

    if "expect_match" in vector:
        assert re.search(vector["expect_match"], output.decode())
    elif "expect_output_b64" in vector:
        assert base64.b64encode(output).decode() == vector["expect_output_b64"]
    else:
        assert output.decode() == vector["expect_output"]


def test_no_outcome_got_lost() -> None:
    assert len({vector["id"] for vector in vectors()}) == len(vectors()) == 1432


def test_error_texts_are_gos_word_for_word_except_where_go_quotes_data() -> None:
    different: set[str] = set()

    for vector in vectors():
        if "go_error" in vector:
            with pytest.raises(TemplateError) as caught:
                rendered(vector)
            if str(caught.value) != vector["go_error"]:
                different.add(vector["id"])

    assert different == set(QUOTES_DATA)
