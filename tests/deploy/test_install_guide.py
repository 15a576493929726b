"""The guides on installing: their commands name files, values and images that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from delivery.versions import current
from delivery.workspace import distributions, images, repository

ROOT = Path(__file__).resolve().parents[2]


def commands(page: Path) -> str:
    """The lines of a page for a shell, those that go on joined."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)).replace("\\\n", " ")


@pytest.mark.parametrize(
    "command",
    [
        command
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for command in re.findall(r"^helm (?:install|upgrade) .*$", commands(page), re.MULTILINE)
        if "deploy/charts/" in command
    ],
)
def test_a_chart_and_what_is_set_of_it_exist(command: str) -> None:
    (chart,) = re.findall(r"deploy/charts/\S+", command)
    schema = json.loads((ROOT / chart / "values.schema.json").read_text(encoding="utf-8"))

    settings = [each for given in re.findall(r"--set(?:-string)? '?(\S+)", command) for each in given.split(",")]
    for setting in settings:
        held: Any = schema
        for step in re.split(r"(?<!\\)\.", setting.partition("=")[0]):
            held = _property(held, step)
            assert held is not False, f"{chart} has no value {setting}"


def _property(schema: Any, name: str) -> Any:
    """Return the schema of a property; False if an object of this schema cannot have it."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    matching = [held for pattern, held in schema.get("patternProperties", {}).items() if re.search(pattern, name)]
    return matching[0] if matching else schema.get("additionalProperties", {})


@pytest.mark.parametrize("page", ["install.md", "compose.md"])
def test_the_guides_build_images_that_exist(page: str) -> None:
    built = re.findall(
        r"^make image NAME=(\S+) .*\bTAG=(\S+)$", commands(ROOT / "docs" / "guides" / page), re.MULTILINE
    )

    assert built
    for name, tag in built:
        assert name in images(distributions())
        assert tag.rpartition("/")[2] == f"{repository(name)}:{current()}"
