"""The page about upgrades: its tests exist, and its versions, gates and protocols are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eso_operator.settings import DEFAULT_GATES, FeatureGate
from eso_wire.versions import SUPPORTED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
TESTS = [
    path
    for folder in ("libs", "packages", "providers", "tests")
    for path in (ROOT / folder).rglob("test_*.py")
    if ".venv" not in path.parts
]
PROOFS = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    _, _, rest = PAGE.partition(f"\n## {heading}\n")
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.fixture(scope="module")
def sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in TESTS)


@pytest.mark.parametrize("name", PROOFS)
def test_a_test_that_the_page_names_exists(name: str, sources: str) -> None:
    assert re.search(rf"def {name}\(", sources)


def test_every_supported_combination_names_its_test() -> None:
    """R159."""
    combinations = rows("Which versions work together")

    assert len(combinations) >= 7
    assert [row[0] for row in combinations if not row[2] and "not tested" not in row[1]] == []


def test_the_tested_kubernetes_versions_are_the_pinned_ones() -> None:
    """R151."""
    script = ROOT / "tools" / "kube-apiserver" / "build.py"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    command = [sys.executable, str(script), "--versions"]
    pinned = subprocess.run(command, env={**kept, "KUBE_VERSIONS": "all"}, capture_output=True, text=True, check=True)

    assert [row[0] for row in rows("Kubernetes versions")] == pinned.stdout.split()


def test_the_gates_are_those_of_the_operator() -> None:
    """R150, R153."""
    table = {row[0].strip("`"): row[1] for row in rows("Feature gates") if row[1] in ("on", "off")}

    assert table == {gate.value: "on" if gate in DEFAULT_GATES else "off" for gate in FeatureGate}


def test_the_protocol_versions_are_those_of_the_code() -> None:
    assert f"the protocol versions {' and '.join(map(str, SUPPORTED))}" in PAGE
