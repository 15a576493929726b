"""One installed provider that cannot be imported is named and left out; everything else works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from eso_api.kinds import installed_kinds
from eso_testkit.cli.upprocess import up_running

ESO = Path(sys.executable).parent / "eso"
SECONDS = 60.0
LEFT_OUT = "provider broken is left out because it cannot be loaded: ZeroDivisionError at brokenprovider.py:1"


@pytest.fixture
def broken(tmp_path: Path) -> Mapping[str, str]:
    """Return an environment in which a provider is installed whose code fails at once."""
    (tmp_path / "brokenprovider.py").write_text("1 / 0\n")
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[eso.kinds]\nbroken = brokenprovider:KINDS\n[eso.providers]\nbroken = brokenprovider:PROVIDER\n"
    )
    return {"PYTHONPATH": str(tmp_path)}


def run(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ESO), *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def test_crds_prints_the_kinds_of_all_others(broken: Mapping[str, str]) -> None:
    done = run(broken, "crds")

    assert done.returncode == 0
    assert done.stderr.startswith(f"eso crds: {LEFT_OUT}")
    assert len(list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))) == len(installed_kinds())


@pytest.mark.parametrize("command", [("provider", "serve", "broken"), ("up", "--provider", "broken")])
def test_to_run_it_is_refused(broken: Mapping[str, str], command: tuple[str, ...], tmp_path: Path) -> None:
    extra = ("--data-dir", str(tmp_path / "data")) if command[0] == "up" else ()

    done = run(broken, *command, *extra)

    assert done.returncode == 1
    assert LEFT_OUT in done.stderr
    assert "Traceback" not in done.stderr


def test_everything_runs_without_it(broken: Mapping[str, str], tmp_path: Path) -> None:
    with up_running(tmp_path / "up", environment=broken) as up:
        up.wait_for(lambda: LEFT_OUT in up.output, "the provider is not named")
