"""The chart of a provider: a deployment of its own behind a Service that the operator finds (R98, R99, R100)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from eso_sdk.accounts import REVIEW_FOLDER
from kubebase.meta import JsonObject, Resource
from kuberun.testing.rawapi import RawApi

NAME = "provider-fake"
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SERVICES = Resource("", "v1", "services", "Service")
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")


class Rendered(Protocol):
    def __call__(self, release: str = "providers", **values: Any) -> dict[str, JsonObject]:
        """The chart's objects by kind; of several Services, the last one."""
        ...


class Chart(Protocol):
    def __call__(self, *, release: str, **values: Any) -> list[JsonObject]: ...


@pytest.fixture
def rendered(provider_chart: Chart) -> Rendered:
    def by_kind(release: str = "providers", **values: Any) -> dict[str, JsonObject]:
        return {each["kind"]: each for each in provider_chart(release=release, **values)}

    return by_kind


def port(name: str) -> JsonObject:
    return {"port": name, "protocol": "TCP"}


def container(objects: dict[str, JsonObject]) -> JsonObject:
    (only,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_a_provider_is_a_deployment_of_its_own_without_access_to_the_cluster(rendered: Rendered) -> None:
    """R98, R100: not a container of the operator's pod, nor with its rights."""
    objects = rendered()
    pod = objects["Deployment"]["spec"]["template"]["spec"]

    assert set(objects) == {"Deployment", "Service", "NetworkPolicy", "ServiceAccount"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == NAME
    assert container(objects)["image"] == "registry.example.com/eso-provider-fake:0.1.0"


def test_the_service_is_one_that_the_operator_finds_and_issues_certificates_for(rendered: Rendered) -> None:
    """R99."""
    objects = rendered()
    service, pod = objects["Service"], objects["Deployment"]["spec"]["template"]

    assert service["metadata"]["labels"]["external-secrets.io/provider"] == "true"
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["clusterIP"] == "None"
    assert [port["name"] for port in service["spec"]["ports"]] == ["grpc"]
    assert pod["spec"]["volumes"][0]["secret"] == {"secretName": f"{NAME}-provider-tls"}


KINDS, KEYS = "external-secrets.io/provider-kinds", "external-secrets.io/provider-v1-keys"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({"name": "vault"}, {KEYS: "openBao,vault"}, id="a provider of the project"),
        pytest.param({"name": "weather"}, {}, id="another one that says nothing"),
        pytest.param(
            {"name": "weather", "serves": {"kinds": ["A.v1.x.io", "B.v1.x.io"], "v1ProviderKeys": ["weather"]}},
            {KINDS: "A.v1.x.io,B.v1.x.io", KEYS: "weather"},
            id="another one that says it",
        ),
        pytest.param(
            {"name": "vault", "serves": {"v1ProviderKeys": ["vault", "bao"]}}, {KEYS: "vault,bao"}, id="more than known"
        ),
    ],
)
def test_the_service_says_what_the_provider_serves_before_a_pod_answers(
    rendered: Rendered, values: dict[str, Any], expected: dict[str, str]
) -> None:
    annotations = rendered(**values)["Service"]["metadata"].get("annotations", {})

    assert expected.items() <= annotations.items()
    assert expected or not annotations


def test_only_the_operator_may_call(rendered: Rendered) -> None:
    """R100: by the network and, whatever the network lets through, by its identity."""
    operator = {
        "namespace": "eso",
        "serviceAccount": "core",
        "trustDomain": "example.org",
        "podLabels": {"app.kubernetes.io/name": "core"},
    }
    objects = rendered(operator=operator)
    calls, probes = objects["NetworkPolicy"]["spec"]["ingress"]

    (who,) = calls["from"]
    assert who["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "eso"}
    assert who["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "core"}
    assert [each["ports"] for each in (calls, probes)] == [[port("grpc")], [port("live")]]
    assert "--allowed-client=spiffe://example.org/ns/eso/sa/core" in container(objects)["args"]


def test_what_a_provider_may_reach_can_be_narrowed(rendered: Rendered) -> None:
    """R100."""
    vault = {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"port": 8200}]}

    policy = rendered(networkPolicy={"egress": [vault]})["NetworkPolicy"]["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"][1:] == [vault]
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {53}


def test_metrics_are_for_the_pod_alone_by_default(rendered: Rendered) -> None:
    readers = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    closed, opened = (
        rendered(),
        rendered(metrics={"listen": {"port": 9000}, "service": {"enabled": True}, "from": readers}),
    )

    assert "--metrics=127.0.0.1:8081" in container(closed)["args"]
    assert [port["name"] for port in container(closed)["ports"]] == ["grpc", "live"]
    assert "--metrics=0.0.0.0:9000" in container(opened)["args"]
    assert {"name": "metrics", "containerPort": 9000, "protocol": "TCP"} in container(opened)["ports"]
    assert opened["NetworkPolicy"]["spec"]["ingress"][2] == {"ports": [port("metrics")], "from": readers}
    service = opened["Service"]  # the last one of the chart
    assert service["metadata"]["name"] == f"{NAME}-metrics"
    assert "external-secrets.io/provider" not in service["metadata"]["labels"]
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 8081, "targetPort": "metrics", "protocol": "TCP"}]


def test_probes_ask_where_no_metrics_are(rendered: Rendered) -> None:
    only = container(rendered())

    assert "--live=0.0.0.0:8082" in only["args"]
    assert {"name": "live", "containerPort": 8082, "protocol": "TCP"} in only["ports"]
    assert {only[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")} == {"live"}


def test_the_flags_are_those_of_the_command(rendered: Rendered) -> None:
    """R98: read by the provider itself."""
    arguments = container(rendered(extraArgs={"drain": 5}))["args"]
    command = Path(sys.executable).parent / "eso-provider-fake"

    done = subprocess.run([command, *arguments, "--manifest"], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert arguments[-1] == "--drain=5"


def test_the_chart_says_who_may_use_the_identity_of_the_provider(rendered: Rendered) -> None:
    identity = {"usedBy": "namespaced", "hosts": ["vault.example.com"], "files": ["/mnt/token"]}

    arguments = container(rendered(identity=identity))["args"]

    assert arguments[-3:] == [
        "--ambient-identity=namespaced",
        "--identity-host=vault.example.com",
        "--identity-file=/mnt/token",
    ]
    assert not [each for each in container(rendered())["args"] if "identity" in each]


def test_a_provider_that_asks_about_tokens_may_do_only_that(rendered: Rendered) -> None:
    """R100: the one right it has, for an account of its own."""
    objects = rendered(callTokens={"verify": "review", "audiences": ["vault"]})
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    arguments = container(objects)["args"]

    assert pod["automountServiceAccountToken"] is False
    assert {"name": "token-review", "mountPath": str(REVIEW_FOLDER), "readOnly": True} in container(objects)[
        "volumeMounts"
    ]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "token-review")
    assert [*volume["projected"]["sources"][0]] == ["serviceAccountToken"]
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"] == NAME
    assert objects["ClusterRole"]["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    assert objects["ClusterRoleBinding"]["roleRef"]["name"] == objects["ClusterRole"]["metadata"]["name"]
    assert objects["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": NAME, "namespace": "providers"}
    ]
    assert [each for each in arguments if each.startswith("--token")] == [
        "--token-policy=required",
        f"--token-audience=external-secrets-provider/{NAME}",
        f"--token-audience=external-secrets-provider/providers/{NAME}",
        "--token-audience=vault",
        "--token-review",
    ]


@pytest.mark.parametrize(
    "account",
    [
        pytest.param({"annotations": {}}, id="by its name, as EKS Pod Identity"),
        pytest.param(
            {"create": False, "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}}, id="IRSA"
        ),
    ],
)
def test_a_cloud_may_know_the_provider_by_an_account_without_rights_in_the_cluster(
    rendered: Rendered, account: dict[str, Any]
) -> None:
    objects = rendered(serviceAccount=account)
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    made = objects["ServiceAccount"]["metadata"]

    assert set(objects) == {"Deployment", "Service", "NetworkPolicy", "ServiceAccount"}
    assert pod["serviceAccountName"] == made["name"] == NAME
    assert pod["automountServiceAccountToken"] is False
    assert made.get("annotations", {}) == account["annotations"]


def test_the_backends_sdk_may_be_told_something_by_the_environment(rendered: Rendered) -> None:
    env = [{"name": "AWS_USE_FIPS_ENDPOINT", "value": "true"}]

    assert container(rendered(extraEnv=env))["env"] == env
    assert "env" not in container(rendered())


@pytest.mark.parametrize(
    ("values", "environment"),
    [
        pytest.param({"verify": "review"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, id="by the API server"),
        pytest.param(
            {"verify": "jwks", "issuer": "https://issuer.test", "jwks": "https://issuer.test/keys"}, {}, id="by keys"
        ),
    ],
)
def test_flags_for_tokens_are_such_that_the_command_starts_with(
    rendered: Rendered, values: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    """It then waits for certificates: those of an empty folder never come."""
    arguments = container(rendered(callTokens=values))["args"]
    elsewhere = [f"--tls-dir={tmp_path}", "--tls-wait=0", "--listen=127.0.0.1:0", "--metrics=", "--live="]
    command = Path(sys.executable).parent / "eso-provider-fake"

    done = subprocess.run(
        [command, *arguments, *elsewhere],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )

    assert done.returncode == 1, done.stderr
    assert "no usable certificates" in done.stderr


@pytest.mark.live
@pytest.mark.parametrize("resource", [DEPLOYMENTS, SERVICES, POLICIES], ids=lambda one: one.kind)
async def test_an_api_server_takes_the_objects_as_they_are(
    api: RawApi, namespace: str, rendered: Rendered, resource: Resource
) -> None:
    document = rendered(namespace)[resource.kind]
    if (await api.get(resource.path(namespace))).status == 404:
        pytest.skip(f"this API server keeps no {resource.plural}")

    answer = await api.post(resource.path(namespace), document, fieldValidation="Strict")

    assert answer.status == 201, answer.body
