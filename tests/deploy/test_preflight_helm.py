"""`eso preflight` beside a real Helm: what it calls a blocker stops the upgrade, and its advice lets the upgrade go on.

The release in Go is a chart with the names and labels of that of the operator in Go, and three of its CRDs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import AnyKind
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from kubebase.meta import JsonObject
from kubebase.testing.servers import ServerFailedError
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.kubectl import Kubectl

pytestmark = [pytest.mark.live, pytest.mark.slow]

CHART: Final = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
IMAGE: Final = "image.registry=registry.example.com/eso"
KINDS: Final[tuple[AnyKind, ...]] = (EXTERNAL_SECRET, SECRET_STORE, PUSH_SECRET)
HELPERS: Final = """\
{{- define "external-secrets.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- define "external-secrets.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}
{{- define "external-secrets.selectorLabels" -}}
app.kubernetes.io/name: {{ include "external-secrets.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
"""
"""Names and selectors as in the chart of the operator in Go."""
TEMPLATE: Final = """\
{{- range $path, $_ := .Files.Glob "definitions/*.yaml" }}
---
{{ $.Files.Get $path }}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "external-secrets.fullname" . }}
  labels: {app.kubernetes.io/managed-by: Helm, app.kubernetes.io/name: external-secrets}
spec:
  selector:
    matchLabels: &labels
      {{- include "external-secrets.selectorLabels" . | nindent 6 }}
      {{- with .Values.kustomized }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  template:
    metadata: {labels: *labels}
    spec:
      containers:
        - {name: external-secrets, image: "registry.example.com/external-secrets/external-secrets:v2.9.0"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ include "external-secrets.fullname" . }}-webhook}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: external-secrets-webhook}}
  template:
    metadata: {labels: {app.kubernetes.io/name: external-secrets-webhook}}
    spec:
      containers:
        - name: webhook
          image: registry.example.com/external-secrets/external-secrets:v2.9.0
          args: [webhook]
"""


def definition(kind: AnyKind, *more_versions: str, converted: bool = False) -> JsonObject:
    """A CRD of the operator in Go, with an open schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    stored = kind.versions[0]
    versions = [
        {"name": name, "served": True, "storage": name == stored, "schema": schema}
        for name in (*kind.versions, *more_versions)
    ]
    spec: JsonObject = {
        "group": kind.group,
        "names": kind.crd()["spec"]["names"],
        "scope": "Namespaced",
        "versions": versions,
    }
    if converted:
        service = {"namespace": "default", "name": "external-secrets-webhook", "path": "/convert"}
        webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
        spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    metadata = {"name": kind.crd_name, "annotations": {"helm.sh/resource-policy": "keep"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class Go:
    """A release of the operator in Go, in a namespace of its own."""

    helm: Helm
    kubectl: Kubectl
    chart: Path
    kubeconfig: Path

    def install(self, release: str, *crds: JsonObject, **values: object) -> None:
        for each in crds or map(definition, KINDS):
            (self.chart / "definitions" / f"{each['metadata']['name']}.yaml").write_text(yaml.safe_dump(each))
        self.helm("install", release, str(self.chart), values=dict(values))
        for kind in KINDS:
            for state in (f"jsonpath={{.status.acceptedNames.kind}}={kind.name}", "condition=Established"):
                self.kubectl("wait", f"--for={state}", "--timeout=60s", f"crd/{kind.crd_name}")

    def preflight(self, check: str) -> list[JsonObject]:
        """Return the findings of one check, without facts."""
        return [each for each in self.findings(check) if each["level"] != "fact"]

    def findings(self, check: str) -> list[JsonObject]:
        command = [str(Path(sys.executable).with_name("eso")), "preflight", "--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 1), done.stderr
        return [each for each in json.loads(done.stdout)["findings"] if each["check"] == check]

    def follow(self, advice: str) -> None:
        """Run the commands of an advice: everything after its first colon and space."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", advice.partition(": ")[2]],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{advice}\n{done.stderr}"

    def upgrade(self, release: str, *arguments: str, **values: object) -> str:
        return self.helm("upgrade", release, str(CHART), "--set", IMAGE, *arguments, values=dict(values))

    def upgrade_fails(self, release: str, **values: object) -> str:
        return self.helm.fails("upgrade", release, str(CHART), "--set", IMAGE, values=dict(values))

    def image(self, deployment: str) -> str:
        spec = self.kubectl.json("get", "deployment", deployment)["spec"]["template"]["spec"]
        return str(spec["containers"][0]["image"])


@pytest.fixture
def go(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Go]:
    """A cluster of its own: to delete CRDs takes longer than to start one."""
    if request.config.getoption("--apiserver") != "kube":
        pytest.skip("upgrades a release by Helm on a real kube-apiserver: run `make test-cluster`")
    binary = find_helm()
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    try:
        server = KubeApiserver(tmp_path, find_assets(), controllers="")
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)
    chart = tmp_path / "chart-of-go"
    for folder in ("templates", "definitions"):
        (chart / folder).mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: external-secrets\nversion: 2.9.0\n")
    (chart / "templates" / "_helpers.tpl").write_text(HELPERS)
    (chart / "templates" / "all.yaml").write_text(TEMPLATE)
    helm = Helm(binary, tmp_path, kubeconfig=server.kubeconfig, namespace="default")
    kubectl = Kubectl(server, tmp_path, namespace="default")
    yield Go(helm, kubectl, chart, server.kubeconfig)
    server.stop()


@pytest.mark.parametrize(
    ("release", "values", "deployment"),
    [
        pytest.param("external-secrets", {}, "external-secrets", id="the defaults"),
        pytest.param("eso", {"nameOverride": "operator"}, "eso-operator", id="another name"),
        pytest.param("eso", {"fullnameOverride": "secrets"}, "secrets", id="another full name"),
    ],
)
def test_a_deployment_with_the_same_selector_is_upgraded_in_place_without_advice(
    go: Go, release: str, values: JsonObject, deployment: str
) -> None:
    go.install(release, **values)
    before = go.kubectl.json("get", "deployment", deployment)["metadata"]["uid"]

    (finding,) = go.findings("selectors")
    go.upgrade(release, **values)

    assert (finding["level"], finding["next"]) == ("fact", "")
    assert go.image(deployment).startswith("registry.example.com/eso/eso-operator:")
    assert go.kubectl.json("get", "deployment", deployment)["metadata"]["uid"] == before


def test_a_deployment_with_another_selector_stops_the_upgrade_until_it_is_deleted(go: Go) -> None:
    """As Kustomize leaves it, whose common labels become part of selectors."""
    go.install("external-secrets", kustomized={"team": "platform"})

    (finding,) = go.preflight("selectors")
    refused = go.upgrade_fails("external-secrets")
    go.follow(finding["next"])
    go.upgrade("external-secrets")

    assert finding["level"] == "blocker"
    assert [each["subject"] for each in finding["details"]] == ["team"]
    assert "field is immutable" in refused
    assert go.image("external-secrets").startswith("registry.example.com/eso/eso-operator:")
    assert go.preflight("selectors") == []


def test_a_crd_of_another_owner_stops_the_upgrade_until_the_release_takes_it(go: Go) -> None:
    go.install("external-secrets")
    name = "providerclasses.external-secrets.io"
    go.kubectl("create", "-f", str(CHART.parents[1] / "crds" / f"{name}.yaml"))

    (finding,) = go.preflight("unowned_crds")
    refused = go.upgrade_fails("external-secrets")
    go.upgrade("external-secrets", "--take-ownership")

    assert (finding["level"], [each["subject"] for each in finding["details"]]) == ("blocker", [f"CRD {name}"])
    assert f'"{name}"' in refused
    assert "invalid ownership metadata" in refused
    assert "--take-ownership" in finding["next"]
    assert go.preflight("unowned_crds") == []


def test_a_stored_version_that_our_crd_does_not_have_stops_the_upgrade_until_it_is_removed(go: Go) -> None:
    go.install(
        "external-secrets", definition(EXTERNAL_SECRET), definition(SECRET_STORE, "v1alpha1"), definition(PUSH_SECRET)
    )
    versions = {"status": {"storedVersions": ["v1alpha1", "v1"]}}
    go.kubectl(
        "patch", "crd", SECRET_STORE.crd_name, "--subresource=status", "--type=merge", "-p", json.dumps(versions)
    )
    store = {"apiVersion": "external-secrets.io/v1", "kind": "SecretStore", "metadata": {"name": "old"}}
    go.kubectl("apply", "-f", "-", stdin=json.dumps({**store, "spec": {"provider": {"fake": {"data": []}}}}))

    (finding,) = go.preflight("stored_versions")
    refused = go.upgrade_fails("external-secrets")
    go.follow(finding["next"])
    go.upgrade("external-secrets")

    assert (finding["level"], finding["detailsCount"]) == ("blocker", 1)
    assert "status.storedVersions" in refused
    assert go.preflight("stored_versions") == []
    assert go.kubectl("get", "secretstore", "old")


def test_a_conversion_webhook_outside_the_manifest_is_left_behind_until_it_is_removed(go: Go) -> None:
    """That of the ExternalSecrets is in the manifest of the release, and Helm removes it; that of the stores is not."""
    converted = (definition(EXTERNAL_SECRET, converted=True), definition(SECRET_STORE), definition(PUSH_SECRET))
    go.install("external-secrets", *converted)
    conversion = {"spec": {"conversion": converted[0]["spec"]["conversion"]}}
    go.kubectl("patch", "crd", SECRET_STORE.crd_name, "--type=merge", "-p", json.dumps(conversion))

    (finding,) = go.preflight("conversions")
    go.upgrade("external-secrets")
    strategies = [_strategy(go, kind) for kind in (EXTERNAL_SECRET, SECRET_STORE)]
    (left,) = go.preflight("conversions")
    go.follow(left["next"])

    assert (finding["level"], [each["subject"] for each in finding["details"]]) == (
        "warning",
        [f"CRD {SECRET_STORE.crd_name}"],
    )
    assert strategies == ["None", "Webhook"]
    assert left["level"] == "blocker"
    assert _strategy(go, SECRET_STORE) == "None"
    assert go.preflight("conversions") == []


def _strategy(go: Go, kind: AnyKind) -> str:
    return str(go.kubectl.json("get", "crd", kind.crd_name)["spec"]["conversion"]["strategy"])


def test_the_crds_that_the_report_counts_are_those_that_the_upgrade_installs(go: Go) -> None:
    go.install("external-secrets")
    store = {"apiVersion": "external-secrets.io/v1", "kind": "SecretStore", "metadata": {"name": "vault"}}
    go.kubectl(
        "apply", "-f", "-", stdin=json.dumps({**store, "spec": {"provider": {"vault": {"server": "https://v"}}}})
    )

    (finding,) = go.findings("chart_crds")
    (needed,) = go.findings("providers")
    flags = needed["next"].partition("--set ")[2].partition(";")[0]
    go.upgrade("external-secrets", "--set", flags)

    installed = go.kubectl("get", "crds", "--output", "name").split()
    assert finding["level"] == "fact"
    assert finding["says"].endswith(f"it replaces 3 and creates {len(installed) - 3}")
