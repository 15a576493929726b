"""`eso crds` prints what a cluster needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from eso_api.kinds import installed_kinds
from eso_operator.process.build import this_build


def test_every_installed_kind_is_printed_once_as_yaml(
    eso_inside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = eso_inside("crds")

    printed = list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))
    assert done.returncode == 0
    assert [crd["metadata"]["name"] for crd in printed] == [kind.crd_name for kind in installed_kinds()]
    assert {crd["kind"] for crd in printed} == {"CustomResourceDefinition"}


def test_help_lists_the_commands(eso: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = eso("--help")

    assert done.returncode == 0
    assert "crds" in done.stdout
    assert "up" in done.stdout


def test_the_version_is_that_of_the_distribution(eso: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = eso("--version")

    assert (done.returncode, done.stdout) == (0, f"eso {this_build()}\n")


def test_kubectl_finds_the_command_as_its_plugin() -> None:
    plugin = Path(sys.executable).parent / "kubectl-eso"

    done = subprocess.run([str(plugin), "--version"], capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout == f"eso {this_build()}\n"
