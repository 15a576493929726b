"""`eso crds` prints what a cluster needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from eso_api.kinds import KINDS, installed_kinds, provider_kinds
from eso_operator.build import this_build


def test_every_installed_kind_is_printed_once_as_yaml(
    eso_inside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = eso_inside("crds")

    printed = list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))
    assert done.returncode == 0
    assert [crd["metadata"]["name"] for crd in printed] == [kind.crd_name for kind in installed_kinds()]
    assert {crd["kind"] for crd in printed} == {"CustomResourceDefinition"}


@pytest.mark.parametrize(
    ("chosen", "core", "providers"),
    [
        pytest.param(["--core"], True, [], id="the core"),
        pytest.param(["--provider", "vault"], False, ["vault"], id="a provider"),
        pytest.param(["--provider=vault", "--provider=aws"], False, ["aws", "vault"], id="two providers"),
        pytest.param(["--core", "--provider", "fake"], True, ["fake"], id="what a cluster with one provider needs"),
    ],
)
def test_the_crds_of_the_core_and_of_providers_can_be_chosen(
    eso_inside: Callable[..., subprocess.CompletedProcess[str]], chosen: list[str], core: bool, providers: list[str]
) -> None:
    done = eso_inside("crds", *chosen)

    printed = {crd["metadata"]["name"]: crd for crd in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)}
    own = {kind.crd_name: name for name in providers for kind in provider_kinds()[name]}
    assert done.returncode == 0
    assert set(printed) == {*(kind.crd_name for kind in KINDS if core), *own}
    labels = {name: crd["metadata"]["labels"].get("external-secrets.io/provider-name") for name, crd in printed.items()}
    assert {name: label for name, label in labels.items() if label} == own


def test_a_provider_that_is_not_installed_is_named_with_those_that_are(
    eso_inside: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = eso_inside("crds", "--provider", "vault", "--provider", "valt")

    assert (done.returncode, done.stdout) == (2, "")
    assert 'no installed provider "valt" has CRDs (installed: akeyless, aws, ' in done.stderr


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
