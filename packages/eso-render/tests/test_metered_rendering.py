"""Work on the event loop is always short, and gives the same results as elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eso_render import RenderError, render_text
from eso_render.functions import functions
from eso_render.metering import QUICK_SECONDS, TooSlowError, busy_seconds, pattern_nanos, wall_nanos
from eso_render.rendering import RATES, MeteredRenderer
from gotmpl.run import MissingKey
from gotmpl.sprig.regexes import compiled, replace_all

ROOT = Path(__file__).parents[3]
LINES = [
    line
    for package in ("libs/gotmpl", "packages/eso-render")
    for line in (ROOT / package / "tests/vectors/templates.jsonl").read_text(encoding="utf-8").strip().split("\n")
]


def quick() -> MeteredRenderer:
    return MeteredRenderer("{{", "}}", missing=MissingKey.ERROR)


def least_busy(act: Callable[[], None]) -> float:
    """The processor time of the cheapest of five runs: a cold cache or a garbage collection costs only one of them."""
    taken = []
    for _ in range(5):
        begun = busy_seconds()
        act()
        taken.append(busy_seconds() - begun)
    return min(taken)


def outcome(render: Any, vector: dict[str, Any]) -> object:
    if "data_b64" in vector:
        data = {key: base64.b64decode(value) for key, value in vector["data_b64"].items()}
    else:
        data = {key: value.encode() for key, value in vector["data"].items()}
    try:
        return render(vector["template"], data, name=vector.get("name", "tpl"))
    except RenderError as problem:
        return str(problem)


def test_the_loop_and_a_worker_give_the_same_result() -> None:
    renderer, done = quick(), 0
    vectors = [vector for vector in map(json.loads, LINES) if "expect_match" not in vector and not vector.get("left")]
    for vector in vectors:
        renderer.meter.begin()
        found = outcome(renderer, vector)
        if not renderer.meter.spent:
            done += 1
            assert found == outcome(render_text, vector), vector["id"]

    assert done > len(vectors) / 2, "most templates are quick"


def test_every_rate_is_one_of_a_function_that_exists() -> None:
    assert not RATES.keys() - functions(wall_nanos).keys()


LONG = {"a": b"x\n<" * 40_000, "b": b"ab" * 20}

SLOW = [
    pytest.param('{{ regexReplaceAll "(x*y|x)" .a "b" }}', id="a pattern over a long value"),
    pytest.param('{{ regexMatch "a" "b" }}', id="any pattern, which may be a program of megabytes"),
    pytest.param("{{ randAlphaNum 4000000 }}", id="random text"),
    pytest.param('{{ derivePassword 1 "long" "p" "u" "s" }}', id="key derivation"),
    pytest.param('{{ genPrivateKey "rsa" }}', id="a private key"),
    pytest.param('{{ bcrypt "a" }}', id="a slow hash"),
    pytest.param('{{ repeat 4000000 "x" }}', id="much out of little"),
    pytest.param("{{ .a | kebabcase }}", id="a slow function over a long value"),
    pytest.param("{{ range 100000 }}{{ end }}", id="many steps"),
    pytest.param("{{ range until 100000 }}{{ end }}", id="a long list"),
    pytest.param("{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 18 + "{{ $x | toJson }}", id="a list of itself"),
    pytest.param("{{ $x := .b }}" + "{{ $x = print $x $x }}" * 18, id="a text of itself"),
    pytest.param("{{ $x := list 1 }}" + "{{ $x = list $x $x }}" * 12 + "{{ $x }}" * 500, id="a long list, shown often"),
    pytest.param(
        '{{ define "a" }}{{ template "a" . }}{{ template "a" . }}{{ end }}{{ template "a" . }}', id="recursion"
    ),
    pytest.param("{{ .b }}" * 100_000, id="a long template"),
    pytest.param("{{ .a | quote }}" * 20, id="many functions over long values"),
]


@pytest.mark.parametrize("template", SLOW)
def test_slow_work_is_not_begun_on_the_loop(template: str) -> None:
    renderer = quick()
    renderer("{{ .b | quote | upper }}{{ list 1 | toJson }}{{ print .b }}", LONG, name="loads the functions")

    def render() -> None:
        renderer.meter.begin()
        with pytest.raises(RenderError):
            renderer(template, LONG, name="tpl")
        assert renderer.meter.spent

    assert least_busy(render) < 10 * QUICK_SECONDS


def test_once_the_time_is_spent_nothing_more_begins() -> None:
    renderer = quick()
    with pytest.raises(RenderError):
        renderer('{{ bcrypt "a" }}', LONG, name="tpl")

    with pytest.raises(TooSlowError):
        renderer("{{ .b }}", LONG, name="tpl")

    renderer.meter.begin()
    assert renderer("{{ .b }}", LONG, name="tpl") == LONG["b"]


@pytest.mark.parametrize(
    "pattern",
    [
        "(.+)-(.*)$",
        "(x*y|x)",
        "(((((.*)*)*)*)*)*",
        "(" * 60 + "." + ")*" * 60,
        "[^a]" * 100,
        r"\w+\s*" * 40,
        "(?i)(.)" * 40,
    ],
)
@pytest.mark.parametrize("size", [10, 60, 250])
def test_patterns_take_no_longer_than_is_said(pattern: str, size: int) -> None:
    text = "x" * size

    def replace() -> None:
        replace_all(compiled(pattern), text, "$0$0")

    assert least_busy(replace) < 5 * pattern_nanos(pattern, text) * 1e-9
