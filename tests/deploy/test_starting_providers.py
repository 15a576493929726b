"""A first installation and a take-over by Helm: stores wait for the providers of the chart, whose pods are not up yet.

The Services are those of the chart. The operator runs as in its pod; the pod of a provider runs when a test starts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kubebase.testing.servers import ApiServer, ServerFailedError
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.kubectl import Kubectl
from kuberun.testing.kubelet import Kubelet, Pod
from kuberun.testing.localserver import LocalServer

pytestmark = [pytest.mark.live, pytest.mark.slow]

CHARTS: Final = Path(__file__).resolve().parents[2] / "deploy" / "charts"
NAMESPACE: Final = "external-secrets"
PROVIDERS: Final = ("aws", "azure", "doppler", "fake", "gcp", "gitlab", "vault")
VALUES: Final[JsonObject] = {
    "image": {"registry": "registry.example.com/eso"},
    "providers": {name: {"enabled": True} for name in PROVIDERS},
}
STORES: Final[dict[str, JsonObject]] = {
    "aws": {"aws": {"service": "SecretsManager", "region": "eu-west-1"}},
    "azure": {"azurekv": {"vaultUrl": "https://x.vault.azure.net", "authType": "ManagedIdentity"}},
    "doppler": {"doppler": {"auth": {"secretRef": {"dopplerToken": {"name": "token", "key": "token"}}}}},
    "fake": {"fake": {"data": [{"key": "database", "value": "correct-horse"}]}},
    "gcp": {"gcpsm": {"projectID": "p"}},
    "gitlab": {"gitlab": {"auth": {"SecretRef": {"accessToken": {"name": "token", "key": "token"}}}, "projectID": "1"}},
    "vault": {
        "vault": {"server": "https://vault.example.com", "auth": {"tokenSecretRef": {"name": "token", "key": "token"}}}
    },
}
SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    kubelet: Kubelet
    kubectl: Kubectl

    def apply_stores(self) -> None:
        """Create a store for each provider, and an ExternalSecret for each store."""
        documents: list[JsonObject] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}]
        secret = {"metadata": {"name": "token", "namespace": "team"}, "stringData": {"token": "t"}}
        documents.append({"apiVersion": "v1", "kind": "Secret", **secret})
        for name, provider in STORES.items():
            metadata = {"name": name, "namespace": "team"}
            data = [{"secretKey": "password", "remoteRef": {"key": "database"}}]
            read = {"refreshInterval": "1h", "secretStoreRef": {"name": name}, "data": data}
            for kind, spec in (("SecretStore", {"provider": provider}), ("ExternalSecret", read)):
                documents.append(
                    {"apiVersion": "external-secrets.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
                )
        served = ("get", "secretstores.external-secrets.io,externalsecrets.external-secrets.io", "--all-namespaces")
        self.until(lambda: self.kubectl.run(*served).returncode == 0, lambda: "the CRDs are not served")
        self.kubectl("apply", "--namespace=team", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def conditions(self, kind: str, namespace: str = "team") -> dict[str, JsonObject]:
        """Return the condition Ready of each object that has one."""
        found = self.kubectl.json("get", kind, f"--namespace={namespace}")["items"]
        return {
            each["metadata"]["name"]: condition
            for each in found
            for condition in each.get("status", {}).get("conditions", ())
            if condition["type"] == "Ready"
        }

    def forbid_writes_of_secrets(self) -> None:
        roles = self.kubectl.json("get", "clusterroles,roles", "--selector=app.kubernetes.io/name=external-secrets")
        for role in roles["items"]:
            for rule in role["rules"]:
                if "secrets" in rule["resources"]:
                    rule["verbs"] = [verb for verb in rule["verbs"] if verb in {"get", "list", "watch"}]
        self.kubectl("replace", "-f", "-", stdin=json.dumps(roles))

    def until(self, holds: Callable[[], Any], what: Callable[[], str]) -> None:
        clock = SystemClock()
        end = clock.monotonic() + SECONDS
        while not holds():
            assert clock.monotonic() < end, what()

    def warnings(self) -> list[str]:
        events = self.kubectl.json("get", "events", "--namespace=team", "--field-selector=type=Warning")["items"]
        return [f"{each['reason']}: {each['message']}" for each in events]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, operator_chart: Any, tmp_path: Path) -> Iterator[Cluster]:
    server = _server(request, tmp_path)
    _install(server, operator_chart, tmp_path)
    kubectl = Kubectl(server, tmp_path, namespace=NAMESPACE)
    yield Cluster(Kubelet(server, kubectl, tmp_path), kubectl)
    server.stop()


def _server(request: pytest.FixtureRequest, folder: Path) -> ApiServer:
    try:
        real = request.config.getoption("--apiserver") == "kube"
        return KubeApiserver(folder, find_assets()) if real else LocalServer(folder)
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)


def _install(server: ApiServer, operator_chart: Any, folder: Path) -> None:
    if server.name == "kube":
        binary = find_helm()
        if binary is None:
            pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
        helm = Helm(binary, folder, kubeconfig=server.kubeconfig, namespace=NAMESPACE)
        helm("install", "external-secrets", str(CHARTS / "external-secrets"), "--create-namespace", values=VALUES)
        return
    kubectl = Kubectl(server, folder)
    objects = [each for each in operator_chart(**VALUES) if each["kind"] != "NetworkPolicy"]
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    kubectl("create", "-f", str(CHARTS.parent / "crds"))
    kubectl("create", "-f", "-", stdin=yaml.safe_dump_all([home, *objects]))


@pytest.fixture
def pods(cluster: Cluster) -> Iterator[tuple[Pod, Pod]]:
    """The pods of the operator and of the provider fake, not started."""
    operator, provider = cluster.kubelet.pod("external-secrets"), cluster.kubelet.pod("provider-fake")
    yield operator, provider
    operator.stop()
    provider.stop()


def start(operator: Pod, provider: Pod) -> None:
    """Start the operator; the flag stands for the cluster's DNS."""
    operator.start(f"--trusted-provider={NAMESPACE}/provider-fake={provider.address('grpc')}")


def test_stores_of_a_first_installation_wait_for_the_pods_of_their_providers(
    cluster: Cluster, pods: tuple[Pod, Pod]
) -> None:
    """No store is reported as broken, and no message advises to install what the chart installed."""
    operator, provider = pods
    cluster.apply_stores()

    start(operator, provider)
    cluster.until(
        lambda: len(cluster.conditions("secretstores")) == len(cluster.conditions("externalsecrets")) == len(STORES),
        lambda: f"{cluster.conditions('secretstores')} {operator.log[-3000:]}",
    )
    cluster.until(
        lambda: len(cluster.conditions("providerclasses", NAMESPACE)) == len(PROVIDERS),
        lambda: f"{cluster.conditions('providerclasses', NAMESPACE)} {operator.log[-3000:]}",
    )
    stores, secrets = cluster.conditions("secretstores"), cluster.conditions("externalsecrets")
    classes = cluster.conditions("providerclasses", NAMESPACE)
    warnings = cluster.warnings()

    assert {each["status"] for each in stores.values()} == {"Unknown"}
    assert {each["message"].partition(":")[0] for each in stores.values()} == {"ProviderStarting"}
    assert {each["status"] for each in secrets.values()} == {"Unknown"}
    assert set(classes) == {f"provider-{name}" for name in PROVIDERS}
    assert {each["reason"] for each in classes.values()} == {"ProviderStarting"}
    assert "NotInstalled" not in json.dumps([stores, secrets, classes])
    assert warnings == []

    provider.start()
    cluster.until(
        lambda: cluster.conditions("externalsecrets")["fake"]["status"] == "True",
        lambda: f"{cluster.conditions('externalsecrets')['fake']} {provider.log[-3000:]}",
    )
    assert cluster.warnings() == []


def test_a_store_that_was_ready_stays_so_while_operator_and_provider_start_again(
    cluster: Cluster, pods: tuple[Pod, Pod]
) -> None:
    operator, provider = pods
    cluster.apply_stores()
    start(operator, provider)
    provider.start()
    cluster.until(
        lambda: cluster.conditions("externalsecrets").get("fake", {}).get("status") == "True",
        lambda: f"{cluster.conditions('externalsecrets')} {operator.log[-3000:]}",
    )
    before = [cluster.conditions(kind)["fake"] for kind in ("secretstores", "externalsecrets")]
    operator.stop()
    provider.stop()

    start(operator, provider)
    cluster.until(
        lambda: cluster.conditions("providerclasses", NAMESPACE)["provider-fake"]["reason"] == "ProviderStarting",
        lambda: f"{cluster.conditions('providerclasses', NAMESPACE)} {operator.log[-3000:]}",
    )
    after = [cluster.conditions(kind)["fake"] for kind in ("secretstores", "externalsecrets")]

    assert [each["status"] for each in before] == ["True", "True"]
    assert after == before
    assert cluster.warnings() == []


def test_a_provider_whose_certificate_cannot_be_written_says_so(cluster: Cluster, pods: tuple[Pod, Pod]) -> None:
    """The operator has lost the right to write Secrets. It can tell that from a provider that is not installed."""
    operator, provider = pods
    cluster.apply_stores()
    cluster.forbid_writes_of_secrets()

    start(operator, provider)
    cluster.until(
        lambda: (
            len(cluster.conditions("secretstores")) == len(STORES)
            and len(cluster.conditions("providerclasses", NAMESPACE)) == len(STORES)
        ),
        lambda: f"{cluster.conditions('secretstores')} {operator.log[-3000:]}",
    )
    classes, stores = cluster.conditions("providerclasses", NAMESPACE), cluster.conditions("secretstores")

    assert {each["reason"] for each in classes.values()} == {"CertificateSecretNotWritable"}
    assert "NotInstalled" not in json.dumps([stores, classes])
