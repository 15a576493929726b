"""Recorded results of the Go operator's own engine, one test for each (vectors/templates.jsonl).

These templates use the operator's own functions, or ask for one that it removed. The language and Sprig are tested in
`gotmpl`.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eso_render import RenderError, render_text

Vector = dict[str, Any]

QUOTES_DATA = {
    "eso-jwk-021": "Go shows the key type it found in the data",
    "eso-pkcs12-020": "Go shows the tag and length it read from the first bytes of the data",
}
"""Where our error text differs from Go's. The only good reason: Go quotes a data value, and we never do."""


@cache
def vectors() -> list[Vector]:
    lines = (Path(__file__).parent / "vectors" / "templates.jsonl").read_text(encoding="utf-8").strip().split("\n")
    return [json.loads(line) for line in lines]


def data_of(vector: Vector) -> dict[str, bytes]:
    if "data_b64" in vector:
        return {key: base64.b64decode(value) for key, value in vector["data_b64"].items()}
    return {key: value.encode() for key, value in vector["data"].items()}


def rendered(vector: Vector) -> bytes:
    return render_text(
        vector["template"],
        data_of(vector),
        name=vector.get("name", "tpl"),
        left=vector.get("left") or "{{",
        right=vector.get("right") or "}}",
    )


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["id"]) for vector in vectors()])
def test_a_template_has_the_outcome_it_has_in_go(vector: Vector) -> None:
    if "expect_error_contains" in vector:
        with pytest.raises(RenderError) as caught:
            rendered(vector)
        assert vector["expect_error_contains"] in str(caught.value)
        assert caught.value.phase == {"parse": "parse", "exec": "execute"}[vector["phase"]]
        return

    output = rendered(vector)

    if "expect_match" in vector:
        assert re.search(vector["expect_match"], output.decode())
    elif "expect_output_b64" in vector:
        assert base64.b64encode(output).decode() == vector["expect_output_b64"]
    else:
        assert output.decode() == vector["expect_output"]


def test_no_outcome_got_lost() -> None:
    assert len({vector["id"] for vector in vectors()}) == len(vectors()) == 180


def test_error_texts_are_gos_word_for_word_except_where_go_quotes_data() -> None:
    different: set[str] = set()

    for vector in vectors():
        if "go_error" in vector:
            with pytest.raises(RenderError) as caught:
                rendered(vector)
            if caught.value.message != vector["go_error"]:
                different.add(vector["id"])

    assert different == set(QUOTES_DATA)
