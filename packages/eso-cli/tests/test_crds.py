"""`eso crds` prints what a cluster needs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import yaml

from eso_api.kinds import installed_kinds


def test_every_installed_kind_is_printed_once_as_yaml(eso: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = eso("crds")

    printed = list(yaml.safe_load_all(done.stdout))
    assert done.returncode == 0
    assert [crd["metadata"]["name"] for crd in printed] == [kind.crd_name for kind in installed_kinds()]
    assert {crd["kind"] for crd in printed} == {"CustomResourceDefinition"}


def test_help_lists_the_commands(eso: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = eso("--help")

    assert done.returncode == 0
    assert "crds" in done.stdout
    assert "up" in done.stdout
