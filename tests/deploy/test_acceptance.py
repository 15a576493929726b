"""What `helm install` makes of an image registry and one provider works: the test is the kubelet of its pods.

The processes have exactly the flags, environment, volumes and rights of the release, and one flag more for a machine
without a cluster's network. The backend is a real OpenBao.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_provider_vault.testing.openbao import OpenBao
from kubebase.meta import JsonObject
from kubebase.testing.servers import ApiServer, ServerFailedError
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.kubectl import Kubectl
from kuberun.testing.kubelet import Kubelet, Pod
from kuberun.testing.localserver import LocalServer

pytestmark = [pytest.mark.live, pytest.mark.slow]

CHART = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
NAMESPACE = RELEASE = "external-secrets"
VALUES: JsonObject = {"image": {"registry": "registry.example.com/eso"}, "providers": {"vault": {"enabled": True}}}
PATIENCE = "--timeout=100s"


class Chart(Protocol):
    def __call__(self, *, notes: bool = False, **values: Any) -> list[JsonObject]: ...


@dataclass(frozen=True, slots=True)
class Installed:
    """A release whose pods run."""

    kubectl: Kubectl
    operator: Pod
    provider: Pod
    notes: str

    def apply(self, *documents: JsonObject) -> None:
        self.kubectl("apply", "--namespace=team-a", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def ready(self, what: str) -> None:
        done = self.kubectl.run("wait", "--for=condition=Ready", PATIENCE, what, "--namespace=team-a")
        assert done.returncode == 0, f"{done.stderr}\n{self.operator.log[-3000:]}\n{self.provider.log[-3000:]}"


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    """A server of its own: the release owns CRDs."""
    folder = tmp_path / "apiserver"
    folder.mkdir()
    made: ApiServer
    try:
        real = request.config.getoption("--apiserver") == "kube"
        made = KubeApiserver(folder, find_assets()) if real else LocalServer(folder)
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)
    yield made
    made.stop()


@pytest.fixture
def notes(server: ApiServer, operator_chart: Chart, tmp_path: Path) -> str:
    """Install the release; the embedded server knows no NetworkPolicy, which Helm would want to create."""
    if server.name != "kube":
        kubectl = Kubectl(server, tmp_path)
        objects = [each for each in operator_chart(**VALUES) if each["kind"] != "NetworkPolicy"]
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        kubectl("create", "-f", str(CHART.parents[1] / "crds"))
        kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([home, *objects]))
        return str(operator_chart(notes=True, **VALUES))
    binary = find_helm()
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    helm = Helm(binary, tmp_path, kubeconfig=server.kubeconfig, namespace=NAMESPACE)
    return helm("install", RELEASE, str(CHART), "--create-namespace", values=VALUES)


@pytest.fixture
def installed(server: ApiServer, notes: str, tmp_path: Path) -> Iterator[Installed]:
    kubectl = Kubectl(server, tmp_path, namespace=NAMESPACE)
    kubelet = Kubelet(server, kubectl, tmp_path)
    operator, provider = kubelet.pod("external-secrets"), kubelet.pod("provider-vault")
    try:
        # The flag stands for the cluster's DNS, which would lead to the pods behind the Service.
        operator.start(f"--trusted-provider={NAMESPACE}/provider-vault={provider.address('grpc')}")
        provider.start("--allow-address=loopback")  # where the backend is
        operator.wait_until_ready()
        provider.wait_until_ready()
        yield Installed(kubectl, operator, provider, notes)
    finally:
        operator.stop()
        provider.stop()


@pytest.fixture
def bao(tmp_path: Path) -> Iterator[OpenBao]:
    folder = tmp_path / "openbao"
    folder.mkdir()
    with OpenBao.started(folder) as running:
        running.enable("secret")
        running.put("secret", "database", {"password": "correct-horse"})
        yield running


def manifests(bao: OpenBao) -> list[JsonObject]:
    auth = {"tokenSecretRef": {"name": "token", "key": "token"}}
    vault = {"server": bao.url, "path": "secret", "version": "v2", "auth": auth}
    remote = {"key": "database", "property": "password"}
    match = {"secretKey": "password", "remoteRef": {"remoteKey": "copy", "property": "password"}}
    objects: list[tuple[str, str, str, JsonObject]] = [
        ("v1", "Secret", "token", {"stringData": {"token": bao.root_token}}),
        ("external-secrets.io/v1", "SecretStore", "vault", {"spec": {"provider": {"vault": vault}}}),
        (
            "external-secrets.io/v1",
            "ExternalSecret",
            "database",
            {
                "spec": {
                    "refreshInterval": "1h",
                    "secretStoreRef": {"name": "vault"},
                    "data": [{"secretKey": "password", "remoteRef": remote}],
                }
            },
        ),
        (
            "external-secrets.io/v1alpha1",
            "PushSecret",
            "copy",
            {
                "spec": {
                    "secretStoreRefs": [{"name": "vault"}],
                    "selector": {"secret": {"name": "database"}},
                    "data": [{"match": match}],
                    "deletionPolicy": "Delete",
                }
            },
        ),
    ]
    made = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "team-a"}, **fields}
        for version, kind, name, fields in objects
    ]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}, *made]


def test_a_release_of_an_image_registry_and_one_provider_syncs_and_pushes(installed: Installed, bao: OpenBao) -> None:
    """With its own account and its rights alone; the provider has no account at all."""
    installed.apply(*manifests(bao))

    for what in ("secretstore/vault", "externalsecret/database", "pushsecret/copy"):
        installed.ready(what)
    secret = installed.kubectl.json("get", "secret", "database", "--namespace=team-a")
    assert base64.b64decode(secret["data"]["password"]) == b"correct-horse"
    assert bao.read("secret", "copy")["data"] == {"password": "correct-horse"}

    installed.kubectl("delete", "pushsecret", "copy", "--namespace=team-a", PATIENCE)
    assert bao.ask("GET", "secret/data/copy")[0] == 404
    lease = installed.kubectl.json("get", "lease", "external-secrets-controller")
    assert lease["spec"]["holderIdentity"]
    assert "forbidden" not in installed.operator.log.lower()

    # What the notes promise.
    commands = [line.split()[1:] for line in installed.notes.splitlines() if line.startswith("  kubectl get")]
    classes, secrets = (installed.kubectl(*command) for command in commands)
    assert "provider-vault" in classes
    assert "database" in secrets
