"""The reference page of the functions is correct: every example gives the stated result, under every name."""

from __future__ import annotations

import re
import shutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_render import RenderError, render_text

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"


def examples() -> list[Any]:
    """Return one example for every name of every function."""
    return [
        pytest.param(re.sub(rf"\b{name}\b", each, entry["template"]), entry, id=each)
        for path in sorted((REFERENCE / "functions").glob("*.yaml"))
        for name, entry in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["functions"].items()
        for each in (name, *entry.get("also", ()))
    ]


@cache
def values() -> dict[str, bytes]:
    known: dict[str, bytes] = {}
    for name, template in yaml.safe_load((REFERENCE / "values.yaml").read_text(encoding="utf-8")).items():
        known[name] = render_text(template, known)
    return known


@pytest.mark.parametrize(("template", "entry"), examples())
def test_an_example_of_the_reference_gives_what_it_says(template: str, entry: dict[str, str]) -> None:
    if "fails" in entry:
        with pytest.raises(RenderError, match=re.escape(entry["fails"])):
            render_text(template, values())
        return

    output = render_text(template, values()).decode()

    if "matches" in entry:
        assert re.fullmatch(entry["matches"], output)
    else:
        assert output == entry["result"]


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the script in this process, since one of its own would import every provider again: exit code and errors."""
    code: int = import_module("gen_docs").main(["--check", str(folder)])
    return code, capsys.readouterr().err


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(REFERENCE, capsys) == (0, "")


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        pytest.param("  hello:", "  hallo:", "function hello has no entry", id="a function without an entry"),
        pytest.param("  hello:", "  hallo:", "entry hallo names no function", id="an entry without a function"),
        pytest.param("[trimall]", "[trimall, hello]", "hello has 2 entries", id="two entries for one function"),
        pytest.param("[trimall]", "[trim]", "trim is not just another name of trimAll", id="an alias that differs"),
        pytest.param("{{ hello }}", "Hello!", "the example of hello does not call it", id="an example without it"),
        pytest.param("result: Hello!", "matches: H\n    fails: x", "exactly one of", id="two outcomes"),
        pytest.param("result: Hello!", "gives: Hello!", "unknown field `gives`", id="a misspelt field"),
        pytest.param("result: Hello!", "result: Hi!", "not up to date", id="a page that is older than its entries"),
    ],
)
def test_the_generator_refuses(
    before: str, after: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(REFERENCE, tmp_path / "reference")
    family = folder / "functions" / "strings.yaml"
    text = family.read_text(encoding="utf-8")
    assert before in text
    family.write_text(text.replace(before, after, 1), encoding="utf-8")

    code, errors = check(folder, capsys)

    assert code == 1
    assert complaint in errors
