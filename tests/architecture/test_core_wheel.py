"""The core is shipped without any provider: proved on the wheel built of it (R60, R64, R70, R74, R109, R166)."""

from __future__ import annotations

import ast
import email
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages" / "eso-operator"
PROJECTS = {
    project["name"]: project
    for pattern in ("libs/*", "packages/*", "providers/*")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
    if (project := tomllib.loads(path.read_text())["project"])
}
PROVIDERS = {name for name in PROJECTS if name.startswith("eso-provider-")}
NOT_OF_THE_CORE = PROVIDERS | {"eso-sdk", "eso-testkit", "eso-conformance", "eso-tools", "eso-cli", "localkube"}
BACKENDS = re.compile(
    r"boto|aws|azure|msal|google-(cloud|api|auth)|hvac|onepassword|akeyless|oci\b|ibm|alibaba|yandex|kubernetes\b"
)
"""SDKs of backends, as their distributions are called."""


def canonical(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def closure(name: str) -> set[str]:
    """Everything that installing a distribution of the workspace brings along, as far as the workspace says."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for requirement in map(canonical, PROJECTS[waiting.pop()]["dependencies"]):
            if requirement not in found:
                found.add(requirement)
                waiting += [requirement] if requirement in PROJECTS else []
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Build the wheel as a release does, from the files of this repository alone."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=CORE,
        check=True,
        capture_output=True,
        timeout=100,
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def metadata_of(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def imports_of(source: bytes) -> Iterator[str]:
    """Every module that a file imports, wherever the import stands in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_the_wheel_requires_no_provider_and_no_sdk(wheel: zipfile.ZipFile) -> None:
    required = {canonical(entry) for entry in metadata_of(wheel).get_all("Requires-Dist", [])}

    assert required
    assert not required & NOT_OF_THE_CORE
    assert not [name for name in required if BACKENDS.search(name)]


def test_the_wheel_offers_no_provider(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    entry_points = wheel.read(name).decode()

    assert "eso-operator" in entry_points
    assert "eso.providers" not in entry_points
    assert {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name} == {"eso_operator"}


def test_no_file_in_the_wheel_imports_a_provider_or_an_sdk(wheel: zipfile.ZipFile) -> None:
    forbidden = {name.replace("-", "_") for name in NOT_OF_THE_CORE}
    files = [name for name in wheel.namelist() if name.endswith(".py")]

    found = [
        f"{name}: {module}"
        for name in files
        for module in imports_of(wheel.read(name))
        if module.split(".")[0] in forbidden or module.startswith("eso_provider_")
    ]

    assert len(files) > 50
    assert found == []


def test_installing_the_core_installs_no_provider_and_no_sdk() -> None:
    brought = closure("eso-operator")

    assert {"eso-api", "eso-wire", "kuberun"} <= brought
    assert not brought & NOT_OF_THE_CORE
    assert not [name for name in brought if BACKENDS.search(name)]


@pytest.mark.parametrize("provider", sorted(PROVIDERS - {"eso-provider-kubernetes"}))
def test_installing_a_provider_installs_no_kubernetes_client(provider: str) -> None:
    brought = closure(provider)

    assert "kubebase" in brought
    assert not brought & {"kuberun", "localkube", "kubernetes"}


def test_there_are_providers_that_could_have_been_found() -> None:
    """Otherwise the tests above prove nothing."""
    assert {"eso-provider-fake", "eso-provider-generators"} <= PROVIDERS
    assert "eso-sdk" in closure("eso-provider-fake")
    assert BACKENDS.search("boto3")
