"""The guides on installing: their commands name existing files, and the images contain exactly what they need."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def commands(page: Path) -> str:
    """The lines of a page for a shell, those that go on joined."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)).replace("\\\n", " ")


COMMANDS = commands(ROOT / "docs" / "guides" / "install.md")
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
TEMPLATES = {"eso-render", "gotmpl"}
"""Some providers have templates of their own; they are in the image of every provider."""
PROJECTS: dict[str, dict[str, Any]] = {
    project["name"]: project
    for file in ROOT.glob("p[ar]*/*/pyproject.toml")
    for project in [tomllib.loads(file.read_text(encoding="utf-8"))["project"]]
}


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
            held = held.get("properties", {}).get(step, held.get("additionalProperties", {}))
            assert held is not False, f"{chart} has no value {setting}"


def test_the_images_are_targets_of_the_containerfile() -> None:
    built = set(re.findall(r"-f deploy/Containerfile --target (\w+)", COMMANDS))

    assert built == {"operator", "provider", "providers"}
    assert built <= set(re.findall(r"^FROM base AS (\w+)", CONTAINERFILE, re.MULTILINE))


@pytest.mark.parametrize(
    ("target", "distribution"),
    [
        pytest.param("operator", "eso-operator", id="the operator, without any provider"),
        pytest.param("provider", "eso-provider-fake", id="a provider, without the operator"),
        pytest.param("provider", "eso-provider-generators", id="another provider"),
        pytest.param("provider", "eso-provider-webhook", id="a provider with templates"),
        pytest.param("provider", "eso-provider-aws", id="a provider with an SDK of its own"),
        pytest.param("provider", "eso-provider-kubernetes", id="the provider with a Kubernetes client"),
    ],
)
def test_an_image_holds_a_distribution_with_those_it_needs(target: str, distribution: str) -> None:
    """R63, R98."""
    stage = CONTAINERFILE.partition(f"FROM base AS {target}")[2].partition("\nFROM ")[0]
    name = distribution.removeprefix("eso-provider-")
    if name != "kubernetes":
        stage = re.sub(r'\$\(\[ "\$NAME" != kubernetes \] .*?\)', "", stage)
    wheels = {wheel.replace("_", "-") for wheel in re.findall(r"\./(\w+)-\*", stage.replace('"$NAME"', name))}

    assert wheels >= needed(distribution)
    assert wheels - needed(distribution) <= TEMPLATES
    entry = re.findall(r'^ENTRYPOINT \["(.+)"\]', stage, re.MULTILINE)[0]
    assert distribution.startswith(entry)
    assert distribution in PROJECTS[distribution]["scripts"]


def test_the_image_of_several_providers_holds_what_they_need() -> None:
    stage = CONTAINERFILE.partition("FROM base AS providers")[2].partition("\nFROM ")[0]
    wheels = {wheel.replace("_", "-") for wheel in re.findall(r"\./(\w+)-\*", stage)}

    providers = {name for name in PROJECTS if name.startswith("eso-provider-")}
    assert wheels >= set().union(*map(needed, providers)) - providers
    (entry,) = re.findall(r'^ENTRYPOINT \["(.+)"\]', stage, re.MULTILINE)
    assert entry in PROJECTS["eso-sdk"]["scripts"]


def needed(distribution: str) -> set[str]:
    """The distribution and those of this workspace that it depends on."""
    own = [re.split(r"[^\w.-]", each)[0] for each in PROJECTS[distribution]["dependencies"]]
    return {distribution}.union(*(needed(each) for each in own if each in PROJECTS))
