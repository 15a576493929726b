"""The installation guide: its commands name existing files, and the images contain exactly what they need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "install.md").read_text(encoding="utf-8")
COMMANDS = "\n".join(re.findall(r"^```sh\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)).replace("\\\n", " ")
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
TEMPLATES = {"eso-render", "gotmpl"}
"""Some providers have templates of their own; they are in the image of every provider."""
PROJECTS: dict[str, dict[str, Any]] = {
    project["name"]: project
    for file in ROOT.glob("p[ar]*/*/pyproject.toml")
    for project in [tomllib.loads(file.read_text(encoding="utf-8"))["project"]]
}


def helm_commands() -> list[str]:
    """Return the commands of every page that install or upgrade a chart."""
    pages = (page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))
    blocks = "\n".join(
        block for page in pages for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    )
    return re.findall(r"^helm (?:install|upgrade) .*$", blocks.replace("\\\n", " "), re.MULTILINE)


@pytest.mark.parametrize("command", helm_commands())
def test_a_chart_and_what_is_set_of_it_exist(command: str) -> None:
    (chart,) = re.findall(r"deploy/charts/\S+", command)
    values = yaml.safe_load((ROOT / chart / "values.yaml").read_text(encoding="utf-8"))

    for setting in re.findall(r"([\w.]+)=", command.partition("--set ")[2].partition(" --set-string ")[0]):
        held: Any = values
        for step in setting.split("."):
            assert step in held, f"{chart} has no value {setting}"
            held = held[step]


def test_the_images_are_targets_of_the_containerfile() -> None:
    built = set(re.findall(r"-f deploy/Containerfile --target (\w+)", COMMANDS))

    assert built == {"operator", "provider"}
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


def needed(distribution: str) -> set[str]:
    """The distribution and those of this workspace that it depends on."""
    own = [re.split(r"[^\w.-]", each)[0] for each in PROJECTS[distribution]["dependencies"]]
    return {distribution}.union(*(needed(each) for each in own if each in PROJECTS))
