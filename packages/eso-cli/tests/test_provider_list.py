"""`eso provider list`: the installed providers with their maturity, and those that objects need."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.generators.local import PASSWORD
from eso_api.secretstore import SECRET_STORE
from eso_cli.providerlist import rows_of
from eso_sdk.installed import installed, load
from eso_sdk.provider import Maturity
from eso_testkit.cli.upprocess import up_running
from eso_tools.preflight.providercheck import needs_of
from eso_tools.preflight.snapshot import Stored
from kuberun.testing.kubectl import Kubectl

Eso = Callable[..., subprocess.CompletedProcess[str]]


def manifest(resource: Any, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def store(name: str, key: str) -> dict[str, Any]:
    return manifest(SECRET_STORE.resource(), name, {"provider": {key: {}}})


VAULT, MORE_VAULT, UNKNOWN = store("v", "vault"), store("w", "vault"), store("u", "chef")
GENERATED = manifest(PASSWORD.resource(), "p", {"length": 8})


def test_installed_providers_are_listed_with_their_maturity(eso: Eso) -> None:
    listed = eso("provider", "list")

    head, *rows = (line.split() for line in listed.stdout.splitlines())
    assert listed.returncode == 0
    assert head == ["NAME", "VERSION", "MATURITY"]
    assert tuple(row[0] for row in rows) == installed()
    assert {row[0]: row[2] for row in rows} == {name: load(name).maturity for name in installed()}
    assert {"stable", "unproven"} <= {row[2] for row in rows} <= set(Maturity)


def test_a_tool_reads_json(eso_inside: Eso) -> None:
    listed = json.loads(eso_inside("provider", "list", "-o", "json").stdout)

    assert {"name": "fake", "version": "0.1.0", "maturity": "stable"} in listed


def test_needed_providers_are_read_from_standard_input(eso_inside: Eso) -> None:
    objects = {"apiVersion": "v1", "kind": "List", "items": [VAULT, MORE_VAULT, GENERATED]}

    needed = eso_inside("provider", "list", "--needed", "-f", "-", stdin=json.dumps(objects))

    assert needed.returncode == 0
    assert [line.split(maxsplit=3) for line in needed.stdout.splitlines()] == [
        ["PROVIDER", "INSTALLED", "MATURITY", "NEEDED FOR"],
        ["generators", "yes", "stable", "generator Password (1 generator)"],
        ["vault", "yes", "stable", "spec.provider.vault (2 stores)"],
    ]


def test_a_provider_that_does_not_exist_is_named_by_what_needs_it(eso_inside: Eso, tmp_path: Path) -> None:
    (tmp_path / "stores.yaml").write_text(yaml.safe_dump_all([VAULT, UNKNOWN]))

    needed = eso_inside("provider", "list", "--needed", "-f", str(tmp_path))
    as_json = json.loads(eso_inside("provider", "list", "--needed", "-o", "json", "-f", str(tmp_path)).stdout)

    assert needed.returncode == 1
    assert needed.stdout.splitlines()[-1].split(maxsplit=3) == ["-", "no", "-", "spec.provider.chef (1 store)"]
    assert "spec.provider.chef: this project has no provider for it" in needed.stderr
    assert [(row["name"], row["installed"]) for row in as_json] == [("vault", True), ("", False)]
    assert as_json[1]["needs"][0]["objects"][0].startswith("SecretStore default/u")


def test_a_provider_of_this_project_that_is_not_installed_is_named() -> None:
    (row,) = rows_of(needs_of([Stored(SECRET_STORE, VAULT)]), {})

    assert row.cells == ("vault", "no", "-", "spec.provider.vault (1 store)")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        pytest.param(("--needed", "-f", "nowhere.yaml"), "nowhere.yaml: No such file", id="no file"),
        pytest.param(("--needed", "--kubeconfig", "nowhere"), "nowhere", id="no kubeconfig"),
        pytest.param(("-f", "nowhere.yaml"), "give --needed too", id="files without --needed"),
    ],
)
def test_input_that_cannot_be_used_is_explained(eso_inside: Eso, flags: tuple[str, ...], problem: str) -> None:
    refused = eso_inside("provider", "list", *flags)

    assert refused.returncode == 2
    assert problem in refused.stderr
    assert "Traceback" not in refused.stderr


def test_needed_providers_are_read_from_the_cluster(eso_inside: Eso, tmp_path: Path) -> None:
    with up_running(tmp_path, "--no-operator") as up:
        nothing = eso_inside("provider", "list", "--needed", "--kubeconfig", str(up.kubeconfig))
        Kubectl(up, up.folder)("apply", "-f", "-", stdin=json.dumps(GENERATED))
        needed = eso_inside("provider", "list", "--needed", "--kubeconfig", str(up.kubeconfig))

    assert (nothing.returncode, nothing.stdout) == (0, "no store or generator needs a provider\n")
    assert (needed.returncode, needed.stdout.splitlines()[1].split()[0]) == (0, "generators")
