"""Helm from the release of the operator in Go to our chart, back, and away: which objects stay, and which cannot.

The chart in Go owns its CRDs without the policy to keep them. Its shape is rendered here with the names of our CRDs of
that operator's kinds; the rest of it is one object of each sort that an upgrade changes or removes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from eso_api.kinds import KINDS, provider_kinds
from kubebase.meta import JsonObject
from kubebase.testing.servers import ServerFailedError
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.kubectl import Kubectl

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "deploy" / "charts" / "external-secrets"
VERSION = yaml.safe_load((OURS / "Chart.yaml").read_text())["appVersion"]
CRDS = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
OF_GO = [
    file
    for file in CRDS
    if file.name.split(".", 1)[1] in ("external-secrets.io.yaml", "generators.external-secrets.io.yaml")
    and "provider" not in file.name
]
GUIDE = ROOT / "docs" / "guides" / "helm-upgrade.md"
NAMESPACE = RELEASE = "external-secrets"
IMAGE = "image.registry=registry.example.com/eso"
TEMPLATE = """\
{{- range $path, $text := .Files.Glob "crds-of-go/*.yaml" }}
---
{{ $crd := fromYaml ($.Files.Get $path) }}
{{- $_ := set $crd.metadata "annotations" $.Values.crds.annotations }}
{{- toYaml $crd }}
{{- end }}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: external-secrets}
{{- range $suffix := list "" "-webhook" }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: external-secrets{{ $suffix }}}
spec:
  selector:
    matchLabels: &labels
      app.kubernetes.io/name: external-secrets{{ $suffix }}
      app.kubernetes.io/instance: {{ $.Release.Name }}
  template:
    metadata:
      labels: *labels
    spec:
      serviceAccountName: external-secrets
      containers: [{name: external-secrets, image: "registry.example.com/operator-in-go:2"}]
{{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: externalsecret-validate}
webhooks: []
"""
EXTERNAL_SECRET = """\
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: database}
spec:
  refreshInterval: 1h
  secretStoreRef: {name: vault, kind: SecretStore}
  data: [{secretKey: password, remoteRef: {key: database}}]
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of its own: these tests delete CRDs."""

    helm: Helm
    kubectl: Kubectl
    go: Path
    environment: Mapping[str, str]

    def with_go(self) -> None:
        """Install the release of the operator in Go, an ExternalSecret, and the Secret that it owns."""
        if going := [each["name"] for each in self._definitions() if "deletionTimestamp" in each]:
            self.kubectl("wait", "--for=delete", "--timeout=280s", *(f"crd/{name}" for name in going))
        self.helm("install", RELEASE, str(self.go), "--create-namespace")
        # The status does not exist at first, which `--for=condition=` takes for an error.
        for state in ("jsonpath={.status.acceptedNames.kind}=ExternalSecret", "condition=Established"):
            self.kubectl("wait", f"--for={state}", "--timeout=60s", "crd/externalsecrets.external-secrets.io")
        self.kubectl("annotate", "crds", "--all", "helm.sh/resource-policy-")
        self.kubectl("apply", "-f", "-", stdin=EXTERNAL_SECRET)
        owner = self.kubectl.json("get", "externalsecret", "database")["metadata"]["uid"]
        reference = {
            "apiVersion": "external-secrets.io/v1",
            "kind": "ExternalSecret",
            "name": "database",
            "uid": owner,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "database", "ownerReferences": [reference]},
            "stringData": {"password": "of the database"},
        }
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(secret))

    def shell(self, commands: str, folder: Path) -> None:
        """Run commands as a person would, in a folder."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stderr}"

    def upgrade(self, *arguments: str) -> str:
        return self.helm("upgrade", RELEASE, str(OURS), "--set", IMAGE, *arguments)

    def kept(self) -> dict[str, str]:
        """Who and which version the ExternalSecret and its Secret are: they differ if one was made or written again."""
        found = self.kubectl.json("get", "externalsecret/database", "secret/database")["items"]
        return {each["kind"]: f"{each['metadata']['uid']} {each['metadata']['resourceVersion']}" for each in found}

    def annotate(self, crds: Iterable[str]) -> None:
        self.kubectl("annotate", "--overwrite", "crds", *crds, "helm.sh/resource-policy=keep")

    def crds(self) -> dict[str, str]:
        """The uid of each CRD by name, without those in deletion."""
        return {each["name"]: each["uid"] for each in self._definitions() if "deletionTimestamp" not in each}

    def _definitions(self) -> list[JsonObject]:
        found = [each["metadata"] for each in self.kubectl.json("get", "crds")["items"]]
        return [each for each in found if each["name"].endswith("external-secrets.io")]

    def image(self) -> str:
        spec = self.kubectl.json("get", "deployment", RELEASE)["spec"]["template"]["spec"]
        return str(spec["containers"][0]["image"])


def slim(file: Path) -> JsonObject:
    """The CRD without its schema, which would take most of the time of these tests."""
    text = file.read_text()
    plural, group = file.stem.split(".", 1)
    (kind,) = re.findall(r"^    kind: (\w+)", text, re.MULTILINE)
    (scope,) = re.findall(r"^  scope: (\w+)", text, re.MULTILINE)
    stored = re.findall(r"^  - name: (\w+)", text, re.MULTILINE)[0]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": stored, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": file.stem},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [version]},
    }


@pytest.fixture(scope="module")
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KubeApiserver, Path]]:
    if request.config.getoption("--apiserver") != "kube":
        pytest.skip("deletes CRDs by Helm on a real kube-apiserver: run `make test-cluster`")
    helm = find_helm()
    if helm is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    try:
        server = KubeApiserver(tmp_path_factory.mktemp("takeover"), find_assets())
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)
    yield server, helm
    server.stop()


@pytest.fixture
def cluster(machine: tuple[KubeApiserver, Path], tmp_path: Path) -> Iterator[Cluster]:
    server, binary = machine
    chart = tmp_path / "chart-of-go"
    (chart / "templates").mkdir(parents=True)
    (chart / "crds-of-go").mkdir()
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: external-secrets\nversion: 2.8.0\n")
    shutil.copy(Path(__file__).with_name("go-values.yaml"), chart / "values.yaml")
    (chart / "templates" / "all.yaml").write_text(TEMPLATE)
    for file in OF_GO:
        (chart / "crds-of-go" / file.name).write_text(json.dumps(slim(file)))
    helm = Helm(binary, tmp_path, kubeconfig=server.kubeconfig, namespace=NAMESPACE)
    kubectl = Kubectl(server, tmp_path, namespace=NAMESPACE)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "helm").symlink_to(binary)
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**helm.environment, "PATH": path, "KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}
    yield Cluster(helm, kubectl, chart, environment)
    # Deleting CRDs takes long. The next installation adopts those that are kept, as Helm does by their annotations.
    kubectl.run("delete", "externalsecret", "database", "--ignore-not-found")
    helm.run("uninstall", RELEASE)


def test_upgrade_rollback_and_uninstall_keep_every_crd_object_and_secret(cluster: Cluster) -> None:
    cluster.with_go()
    before, crds, went = cluster.kept(), cluster.crds(), cluster.kubectl.json("get", "deployment", RELEASE)

    cluster.upgrade("--set", "providers.vault.enabled=true")
    ours = cluster.crds()
    assert cluster.kept() == before
    assert crds.items() <= ours.items()
    added = {kind.crd_name for kind in (*KINDS, *provider_kinds()["vault"])}
    assert set(ours) == added
    deployment = cluster.kubectl.json("get", "deployment", RELEASE)
    assert deployment["metadata"]["uid"] == went["metadata"]["uid"]
    assert cluster.image() == f"registry.example.com/eso/eso-operator:{VERSION}"
    gone = ("deployment/external-secrets-webhook", "validatingwebhookconfiguration/externalsecret-validate")
    assert cluster.kubectl("get", *gone, "--ignore-not-found") == ""

    cluster.helm("rollback", RELEASE, "1")
    assert cluster.kept() == before
    assert cluster.crds() == ours
    assert cluster.image() == "registry.example.com/operator-in-go:2"

    cluster.upgrade("--set", "crds.createAllGenerators=false")
    assert cluster.crds() == ours, "the CRDs of the operator in Go stay, also those of generators without a provider"
    cluster.helm("uninstall", RELEASE)
    assert cluster.kept() == before
    assert cluster.crds() == ours
    assert cluster.kubectl("get", "deployments") == ""


def test_an_upgrade_that_would_delete_crds_is_refused_until_they_are_kept(cluster: Cluster) -> None:
    """With the values of the chart in Go instead of ours, as --reuse-values hands them over."""
    cluster.with_go()
    before, crds = cluster.kept(), cluster.crds()
    upgrade = ("upgrade", RELEASE, str(OURS), "--reuse-values", "--set", f"{IMAGE},image.repository=")

    assert "image.repository names the image of the operator in Go" in cluster.helm.fails(*upgrade[:-1], IMAGE)

    assert "installCRDs=false would let Helm delete the CRD" in cluster.helm.fails(
        *upgrade, "--set", "installCRDs=false"
    )
    cluster.annotate(crds)
    cluster.helm(*upgrade, "--set", "installCRDs=false")

    assert cluster.kept() == before
    assert crds.items() <= cluster.crds().items()
    assert cluster.image() == f"registry.example.com/eso/eso-operator:{VERSION}"


def test_the_commands_of_the_guide_take_a_release_over_and_back(cluster: Cluster, tmp_path: Path) -> None:
    """Its first step makes even the uninstallation of the release in Go safe."""
    cluster.with_go()
    before, crds = cluster.kept(), cluster.crds()
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    words = {"external-secrets/external-secrets --version INSTALLED": str(cluster.go), "REVISION": "2"}
    blocks = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    *there, back = [re.sub("|".join(words), lambda found: words[found[0]], block) for block in blocks]

    for block in there:
        cluster.shell(block, tmp_path)
    assert cluster.image() == f"registry.example.com/eso/eso-operator:{VERSION}"
    assert cluster.kept() == before

    cluster.shell(back, tmp_path)
    cluster.helm("uninstall", RELEASE)
    assert cluster.kept() == before
    assert crds.items() <= cluster.crds().items()


def test_uninstalling_the_release_of_go_deletes_its_crds(cluster: Cluster) -> None:
    """What the guide warns of: an annotation on the live CRDs does not help, since Helm reads its stored manifest.

    Kubernetes then deletes their objects, and its garbage collector the Secrets that these own. The last one of this
    file, because the deletion of CRDs takes long, and an installation waits for it.
    """
    cluster.with_go()
    cluster.annotate(cluster.crds())

    cluster.helm("uninstall", RELEASE)

    assert not {file.stem for file in OF_GO} & set(cluster.crds())
