"""The chart of the operator: its flags are the command's, and its rights are enough and no more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_cli.testing.upprocess import UpProcess
from eso_operator.flags import parse
from eso_render.functions import functions
from gotmpl.template import Engine
from kuberun.meta import JsonObject

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "charts" / "eso-operator"
KUBECTL = Path(sys.executable).parent / "kubectl"
NAMESPACE = "external-secrets"
SECONDS = 100
WHAT_A_DEMO_NEEDS = ("database-url", "generated-password", "read-back")


def rendered(**values: Any) -> dict[str, JsonObject]:
    """The chart's objects by kind, as `helm template` would give them."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    image = {"repository": "registry.example.com/eso-operator", "tag": "0.1.0"}
    data = {"Values": {**defaults, "image": image, **values}, "Release": {"Namespace": NAMESPACE}}
    engine = Engine(functions(lambda: 0))
    texts = [engine.render(path.read_text(), data, name=path.name) for path in sorted(CHART.glob("templates/*.yaml"))]
    return {document["kind"]: document for text in texts for document in yaml.safe_load_all(text) if document}


def rules(objects: dict[str, JsonObject]) -> list[JsonObject]:
    return [*objects["ClusterRole"]["rules"], *objects["Role"]["rules"]]


def test_the_flags_are_those_of_the_command() -> None:
    (container,) = rendered(args=["--concurrent=20"])["Deployment"]["spec"]["template"]["spec"]["containers"]

    settings = parse(container["args"], {})

    assert (settings.core_namespace, settings.workers) == (NAMESPACE, 20)
    assert settings.leader.enabled


def test_the_rights_are_those_of_its_work() -> None:
    """No wildcard verb, nothing about workloads, rights or definitions, reviews only where they are asked for."""
    granted = rules(rendered())
    reviewing = rules(rendered(metricsAuth=True))

    assert all("*" not in rule["verbs"] + rule["apiGroups"] for rule in granted)
    groups = {group for rule in granted for group in rule["apiGroups"]}
    assert groups.isdisjoint({"apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io"})
    assert len(reviewing) == len(granted) + 2


def test_more_can_be_granted_for_providers_and_targets_of_ones_own() -> None:
    target = {"apiGroups": ["argoproj.io"], "resources": ["applications"], "verbs": ["get", "patch"]}

    granted = rules(rendered(targetRules=[target], providerGroups=["weather.example.com"]))

    assert target in granted
    assert any(rule["apiGroups"] == ["weather.example.com"] for rule in granted)


@pytest.mark.slow
def test_the_operator_does_its_work_with_these_rights_alone(tmp_path: Path) -> None:
    """The demo's stores, syncs, pushes, generators and fan-out, and their end, as the chart's service account."""
    manifests, limited = tmp_path / "manifests", tmp_path / "limited.kubeconfig"
    shutil.copytree(ROOT / "examples" / "demo", manifests)
    objects = [each for kind, each in rendered().items() if kind not in ("Deployment", "Service")]
    (manifests / "rights.yaml").write_text(yaml.safe_dump_all(objects))
    providers = ("--provider", "fake", "--provider", "generators")
    flags = (f"--kubeconfig={limited}", "--enable-leader-election")
    up = UpProcess(tmp_path, *providers, "--file", str(manifests), "--", *flags)
    try:
        up.wait_for(lambda: up.kubeconfig.exists() and rights_are_there(up), "the rights are not there")
        limited.write_text(as_account(up))
        up.wait_until_ready()
        for name in WHAT_A_DEMO_NEEDS:
            kubectl(
                up, "wait", "--for=condition=Ready", f"--timeout={SECONDS}s", "-n", "demo", f"externalsecret/{name}"
            )
        made = kubectl(up, "get", "externalsecrets", "-A", "-o", "name").count("shared-certificate")
        for kind in ("clusterexternalsecrets", "pushsecrets"):
            kubectl(up, "delete", kind, "-A", "--all", f"--timeout={SECONDS}s")
        up.wait_for(
            lambda: "shared-certificate" not in kubectl(up, "get", "externalsecrets", "-A", "-o", "name"),
            "the fan-out is not cleaned up",
        )
    finally:
        up.end()

    assert made == 3
    assert "forbidden" not in up.output.lower()


def rights_are_there(up: UpProcess) -> bool:
    return bool(kubectl(up, "get", "clusterrolebinding", NAMESPACE, "--ignore-not-found"))


def as_account(up: UpProcess) -> str:
    """A kubeconfig with a token of the chart's service account."""
    config = yaml.safe_load(up.kubeconfig.read_text())
    token = kubectl(up, "create", "token", NAMESPACE, "-n", NAMESPACE, "--duration=1h").strip()
    config["users"][0]["user"] = {"token": token}
    return json.dumps(config)


def kubectl(up: UpProcess, *arguments: str) -> str:
    environment = {**os.environ, "KUBECONFIG": str(up.kubeconfig)}
    done = subprocess.run(
        [str(KUBECTL), *arguments], env=environment, capture_output=True, text=True, check=False, timeout=SECONDS + 20
    )
    assert done.returncode == 0, f"{done.stderr}\n{up.output[-3000:]}"
    return done.stdout
