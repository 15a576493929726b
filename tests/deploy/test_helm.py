"""The charts under a real Helm: lint, schema, the same objects as our own renderer, and a server that takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from kubebase.meta import JsonObject
from kubebase.testing.servers import ApiServer
from kuberun.testing.helm import Helm, find_helm
from kuberun.testing.kubectl import Kubectl

pytestmark = pytest.mark.live

CHARTS = Path(__file__).resolve().parents[2] / "deploy" / "charts"
UMBRELLA, PROVIDER = CHARTS / "external-secrets", CHARTS / "eso-provider"
GO = yaml.safe_load(Path(__file__).with_name("go-values.yaml").read_text())
IMAGE = {"image": {"registry": "registry.example.com/eso"}}
ALL = sorted(file.parent.name for file in CHARTS.parents[1].glob("providers/*/pyproject.toml"))
EVERYTHING: JsonObject = {
    **IMAGE,
    "replicaCount": 2,
    "commonLabels": {"team": "platform"},
    "providers": {
        **{name: {"enabled": True} for name in ALL},
        "shared": {"enabled": True, "names": ["webhook", "generators"], "podDisruptionBudget": {"enabled": True}},
        "aws": {"enabled": True, "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "x"}}},
        "vault": {"enabled": True, "callTokens": {"verify": "review", "audiences": ["vault"]}},
    },
    "providerDefaults": {"metrics": {"service": {"enabled": True}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "podDisruptionBudget": {"enabled": True},
    "dashboard": {"enabled": True, "certificateSecret": "tls"},
    "metrics": {"listen": {"secure": {"enabled": True}, "auth": {"enabled": True}}, "service": {"enabled": True}},
    "prometheusRule": {"enabled": True},
    "genericTargets": {"enabled": True, "resources": [{"apiGroup": "", "resources": ["pods"], "verbs": ["get"]}]},
    "systemAuthDelegator": True,
    "grafanaDashboard": {"enabled": True},
    "extraArgs": {"cert-interval": "5m", "provider-namespace": ["a", "b"]},
    "networkPolicy": {"egress": [{"ports": [{"port": 6443}]}]},
}
SCOPED: JsonObject = {**IMAGE, "scopedRBAC": True, "providers": {"fake": {"enabled": True}}}
OPENSHIFT: JsonObject = {**IMAGE, "global": {"compatibility": {"openshift": {"adaptSecurityContext": "force"}}}}
SETS = [
    pytest.param(IMAGE, id="defaults"),
    pytest.param(EVERYTHING, id="everything"),
    pytest.param(SCOPED, id="scoped"),
    pytest.param(OPENSHIFT, id="OpenShift"),
    pytest.param({**GO, **IMAGE}, id="values of the chart in Go"),
]


class Chart(Protocol):
    def __call__(self, *, release: str, **values: Any) -> list[JsonObject]: ...


@pytest.fixture
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    binary = find_helm()
    if binary is None and request.config.getoption("--apiserver") != "kube":
        pytest.skip("no Helm in the cache: `make test-cluster` builds one (it needs Go once)")
    if binary is None:
        pytest.fail("no Helm in the cache: `make test-cluster` builds one (it needs Go once)", pytrace=False)
    return Helm(binary, tmp_path, namespace="external-secrets")


def by_name(objects: list[JsonObject]) -> dict[str, JsonObject]:
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        pytest.param(UMBRELLA, EVERYTHING, id="external-secrets"),
        pytest.param(PROVIDER, {"name": "x", "image": {"repository": "r/x", "tag": "1"}}, id="eso-provider"),
    ],
)
def test_the_charts_pass_lint(helm: Helm, chart: Path, values: JsonObject) -> None:
    said = helm("lint", "--strict", str(chart), values=values)

    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("values", SETS)
def test_helm_renders_what_our_own_renderer_does(helm: Helm, operator_chart: Chart, values: JsonObject) -> None:
    """`make test` checks the charts with the latter, CRDs aside."""
    kinds = ("ServiceMonitor", "PrometheusRule")
    monitors = [part for kind in kinds for part in ("--api-versions", f"monitoring.coreos.com/v1/{kind}")]
    by_helm = helm.template("external-secrets", UMBRELLA, "--no-hooks", *monitors, **{**values, "installCRDs": False})
    ours = operator_chart(release="external-secrets", **values)

    assert by_name(by_helm) == by_name(ours)


def test_every_crd_is_rendered_as_it_is_and_kept(helm: Helm) -> None:
    switched = {"annotations": {"a": "b"}, "createPushSecret": False, "providers": ALL}
    objects = helm.template("external-secrets", UMBRELLA, **IMAGE, crds=switched)
    crds = {each["metadata"]["name"]: each for each in objects if each["kind"] == "CustomResourceDefinition"}
    files = {file.stem: file.read_text() for file in (CHARTS.parent / "crds").glob("*.yaml")}
    del files["pushsecrets.external-secrets.io"]
    written = {name: yaml.load(text, Loader=yaml.CSafeLoader) for name, text in files.items()}

    assert {name: crd["spec"] for name, crd in crds.items()} == {name: crd["spec"] for name, crd in written.items()}
    marks = [crd["metadata"]["annotations"] for crd in crds.values()]
    kept = {"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false"}
    assert marks == [{"a": "b", **kept}] * len(files)


@pytest.mark.parametrize(
    ("chart", "values", "said"),
    [
        pytest.param(UMBRELLA, {"replicacount": 3}, "additional properties 'replicacount' not allowed", id="a typo"),
        pytest.param(UMBRELLA, {"crds": {"keep": True}}, "at '/crds': additional properties 'keep'", id="below"),
        pytest.param(UMBRELLA, {"image": {"tag": 1.10}}, "at '/image/tag': got number, want string", id="a number"),
        pytest.param(
            UMBRELLA, {"image": {"pullPolicy": "always"}}, "at '/image/pullPolicy': value must be", id="a word"
        ),
        pytest.param(
            UMBRELLA,
            {"providers": {"vault": {"enable": True}}},
            "at '/providers/vault': additional properties 'enable' not allowed",
            id="in a provider",
        ),
        pytest.param(
            UMBRELLA,
            {"providers": {"valt": {"enabled": True}}},
            "at '/providers': additional properties 'valt' not allowed",
            id="a provider that does not exist",
        ),
        pytest.param(
            UMBRELLA,
            {"extraProviders": {"acme": {"enabled": True}}},
            "at '/extraProviders/acme': missing property 'image'",
            id="a provider of others without an image",
        ),
        pytest.param(
            UMBRELLA,
            {"extraProviders": {"acme": {"image": {"repository": "", "tag": "1"}}}},
            "at '/extraProviders/acme/image/repository': minLength",
            id="a provider of others with an empty image",
        ),
        pytest.param(
            UMBRELLA,
            {"global": {"compatibility": {"openshift": {"adaptSecurityContext": "on"}}}},
            "value must be one of 'auto', 'force', 'disabled'",
            id="a word below global",
        ),
        pytest.param(
            UMBRELLA,
            {"prometheusRule": {"renderMode": "never"}},
            "at '/prometheusRule/renderMode': value must be one of",
            id="how to render rules",
        ),
        pytest.param(
            UMBRELLA,
            {"prometheusRule": {"enabled": True, "renderMode": "failIfMissing"}},
            "install the Prometheus operator first, or set prometheusRule.renderMode to skipIfMissing.",
            id="no kind for rules",
        ),
        pytest.param(
            UMBRELLA,
            {"serviceMonitor": {"enabled": True, "renderMode": "failIfMissing"}},
            "install the Prometheus operator first, or set serviceMonitor.renderMode to skipIfMissing.",
            id="no kind for monitors",
        ),
        pytest.param(UMBRELLA, {"replicaCount": "3"}, "at '/replicaCount': got string, want integer", id="a text"),
        pytest.param(UMBRELLA, {"image": {"registry": ""}}, "set image.registry to the registry path", id="no image"),
        pytest.param(PROVIDER, {"replicas": 3}, "additional properties 'replicas' not allowed", id="eso-provider"),
        pytest.param(PROVIDER, {"name": ""}, "name is empty: set it to the NAME of eso-provider-NAME", id="no name"),
        pytest.param(PROVIDER, {"name": "x"}, "image.tag is empty", id="no tag"),
    ],
)
def test_wrong_values_are_refused(helm: Helm, chart: Path, values: JsonObject, said: str) -> None:
    image = {**IMAGE["image"], **values.get("image", {})}
    off = {"installCRDs": False} if chart is UMBRELLA else {}

    assert said in helm.fails("template", "x", str(chart), values={**off, **values, "image": image})


@pytest.fixture
def restricted(request: pytest.FixtureRequest, api_server: ApiServer, namespace: str, tmp_path: Path) -> Kubectl:
    """A namespace that enforces the restricted Pod Security standard."""
    if request.config.getoption("--apiserver") != "kube":
        pytest.skip("the embedded API server keeps no networkpolicies, and checks less of a Deployment")
    kubectl = Kubectl(api_server, tmp_path, namespace=namespace)
    marks = (f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn"))
    kubectl("label", "namespace", namespace, *marks)
    return kubectl


@pytest.fixture
def render(helm: Helm, restricted: Kubectl) -> Callable[..., str]:
    def text(values: JsonObject) -> str:
        place: JsonObject = {"namespaceOverride": restricted.namespace, "installCRDs": False}
        objects = helm.template("external-secrets", UMBRELLA, "--no-hooks", **{**values, **place})
        return yaml.safe_dump_all(objects)

    return text


@pytest.mark.parametrize("values", SETS)
def test_a_real_api_server_takes_the_objects(
    restricted: Kubectl, render: Callable[..., str], values: JsonObject
) -> None:
    done = restricted.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=render(values))

    assert done.returncode == 0, done.stderr
    assert "would violate PodSecurity" not in done.stderr


@pytest.mark.parametrize("values", SETS)
def test_a_namespace_that_enforces_restricted_pods_admits_ours(
    helm: Helm, restricted: Kubectl, values: JsonObject
) -> None:
    """A Deployment is only warned about; what counts is the Pod."""
    objects = helm.template("external-secrets", UMBRELLA, **{**values, "installCRDs": False})
    specs = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    specs += [each["spec"] for each in objects if each["kind"] == "Pod"]
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}"},
            "spec": {key: value for key, value in spec.items() if key != "serviceAccountName"},
        }
        for number, spec in enumerate(specs)
    ]
    restricted("wait", "--for=create", "--timeout=60s", "serviceaccount/default")

    done = restricted.run("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(pods))

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created") == len(pods) >= 2
