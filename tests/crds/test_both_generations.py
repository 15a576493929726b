"""Kinds of both generations share names; kubectl must list each of them, and the plain name must stay what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.kinds import KINDS, V2_KINDS
from kuberun.testing.kubectl import Kubectl

pytestmark = pytest.mark.live

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "status.md"
V1: dict[str, Any] = {"provider": {"fake": {"data": []}}}
V2: dict[str, Any] = {"providerConfig": {"inline": {"kind": "Fake", "spec": {}}}}


def store(api_version: str, name: str, spec: object) -> str:
    return yaml.safe_dump({"apiVersion": api_version, "kind": "SecretStore", "metadata": {"name": name}, "spec": spec})


@pytest.fixture
def stores(kubectl: Kubectl, our_crds: str, namespace: str) -> list[str]:
    """One store of each generation; the namespace option of kubectl."""
    assert our_crds
    option = ["--namespace", namespace]
    kubectl("create", *option, "-f", "-", stdin=store("external-secrets.io/v1", "first", V1))
    kubectl("create", *option, "-f", "-", stdin=store("secretstore.external-secrets.io/v2alpha1", "second", V2))
    return option


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        pytest.param("secretstore", "secretstore.external-secrets.io/first", id="the plain name lists v1"),
        pytest.param("secretstores", "secretstore.external-secrets.io/first", id="the plural lists v1"),
        pytest.param("ss", "secretstore.external-secrets.io/first", id="the known short name lists v1"),
        pytest.param("ssv2", "secretstore.secretstore.external-secrets.io/second", id="a short name of its own"),
        pytest.param(
            "secretstores.secretstore.external-secrets.io",
            "secretstore.secretstore.external-secrets.io/second",
            id="the full name lists v2",
        ),
    ],
)
def test_kubectl_lists_each_generation(kubectl: Kubectl, stores: list[str], resource: str, expected: str) -> None:
    assert kubectl("get", resource, *stores, "--output", "name").split() == [expected]


def test_short_names_are_unique() -> None:
    names = [name for kind in KINDS for name in (*kind.short_names, kind.plural)]
    short = [name for kind in KINDS for name in kind.short_names]

    assert [name for name in short if names.count(name) > 1] == []


@pytest.mark.parametrize("kind", V2_KINDS, ids=lambda kind: kind.crd_name)
def test_the_guide_shows_how_to_list_each_v2_kind(kind: object) -> None:
    row = f"| `{kind.name}` | `kubectl get {kind.short_names[0]}` | `{kind.crd_name}` |"  # type: ignore[attr-defined]  # a CustomKind

    assert row in GUIDE.read_text(encoding="utf-8")
