"""The operator in the chart: its flags are the command's, and its rights are enough and no more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_operator.controllers.secretstore.kinds import (
    CLUSTER_PROVIDER_KIND,
    CLUSTER_STORE,
    CLUSTER_STORE_V2,
    PROVIDER_KIND,
    STORE,
    STORE_V2,
    StoreKind,
)
from eso_operator.flags import parse
from eso_operator.settings import DEFAULT_GATES, FeatureGate, Reconcilers, Settings
from eso_operator.stores.resolved import ServiceKey
from eso_sdk.installed import load
from eso_testkit.cli.upprocess import UpProcess
from eso_tools.dashboard.settings import Settings as DashboardSettings
from eso_tools.dashboard.settings import parse as parse_dashboard
from eso_tools.providers import service_object
from kubebase.meta import JsonObject

ROOT = Path(__file__).resolve().parents[2]
KUBECTL = Path(sys.executable).parent / "kubectl"
NAMESPACE = "external-secrets"
SECONDS = 100
PROBES = {"ports": [{"port": 8082, "protocol": "TCP"}]}
WHAT_A_DEMO_NEEDS = ("database-url", "generated-password", "read-back")


class Chart(Protocol):
    def __call__(self, *, release: str = NAMESPACE, **values: Any) -> list[JsonObject]: ...


def rules(objects: list[JsonObject]) -> list[JsonObject]:
    return [rule for each in objects for rule in each.get("rules", ())]


def settings_of(objects: list[JsonObject]) -> Settings:
    """Return the operator's settings from the given flags."""
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return parse(container["args"], {})


def dashboard_of(objects: list[JsonObject]) -> tuple[DashboardSettings, JsonObject]:
    """Return the settings of the dashboard from the given flags, and its pod."""
    deployments = (each for each in objects if each["kind"] == "Deployment")
    (pod,) = (
        each["spec"]["template"]["spec"] for each in deployments if each["metadata"]["name"].endswith("-dashboard")
    )
    return parse_dashboard(pod["containers"][0]["args"]), pod


@pytest.mark.parametrize(
    ("values", "replicas", "budget"),
    [
        pytest.param({}, 1, None, id="one shard"),
        pytest.param({"shards": 3}, 3, {"maxUnavailable": 1}, id="a replica for each shard"),
        pytest.param({"shards": 3, "replicaCount": 4}, 4, {"maxUnavailable": 1}, id="a spare replica"),
        pytest.param(
            {"shards": 3, "podDisruptionBudget": {"enabled": True, "minAvailable": 2}},
            3,
            {"minAvailable": 2},
            id="a budget of one's own",
        ),
    ],
)
def test_shards_have_a_replica_each_and_are_evicted_one_at_a_time(
    operator_chart: Chart, values: JsonObject, replicas: int, budget: JsonObject | None
) -> None:
    objects = operator_chart(**values)
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    budgets = [each["spec"] for each in objects if each["kind"] == "PodDisruptionBudget"]

    assert deployment["spec"]["replicas"] == replicas
    assert [{name: value for name, value in each.items() if name != "selector"} for each in budgets] == (
        [] if budget is None else [budget]
    )


def test_the_flags_are_those_of_the_command(operator_chart: Chart) -> None:
    settings = settings_of(operator_chart(concurrent=20))

    assert (settings.core_namespace, settings.workers) == (NAMESPACE, 20)
    assert settings.leader.enabled
    assert settings.namespace == ""
    assert settings.reconcilers == Reconcilers()


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param({}, DEFAULT_GATES, id="without a value, the defaults of the operator"),
        pytest.param({"V2Stores": False}, frozenset(), id="v2 kinds are turned off, R150"),
        pytest.param({"V2Stores": True}, DEFAULT_GATES, id="and on again, R153"),
        pytest.param(
            {"V2Stores": False, "UnixSocketProviders": True}, {FeatureGate.UNIX_SOCKET_PROVIDERS}, id="several gates"
        ),
    ],
)
def test_feature_gates(operator_chart: Chart, gates: dict[str, bool], expected: frozenset[FeatureGate]) -> None:
    assert settings_of(operator_chart(featureGates=gates)).gates == expected


def test_an_operator_of_one_namespace_keeps_its_cluster_wide_kinds_unless_its_rights_are_scoped_too(
    operator_chart: Chart,
) -> None:
    narrow = settings_of(operator_chart(scopedNamespace="team-a"))
    scoped = settings_of(operator_chart(scopedNamespace="team-a", scopedRBAC=True))

    assert (narrow.namespace, narrow.reconcilers) == ("team-a", Reconcilers())
    assert scoped.namespace == "team-a"
    assert scoped.reconcilers == Reconcilers(
        cluster_store=False, cluster_external_secret=False, cluster_push_secret=False
    )


def test_scoped_rights_are_in_that_namespace_and_the_operators_own_and_nowhere_else(operator_chart: Chart) -> None:
    objects = operator_chart(scopedNamespace="team-a", scopedRBAC=True)

    kinds = Counter((each["kind"], each["metadata"]["namespace"]) for each in objects if "rbac" in each["apiVersion"])
    assert kinds == {(kind, place): 1 for kind in ("Role", "RoleBinding") for place in ("team-a", NAMESPACE)}
    subjects = [subject for each in objects for subject in each.get("subjects", ())]
    account = {"kind": "ServiceAccount", "name": NAMESPACE, "namespace": NAMESPACE}
    assert subjects == [account, account]


def test_rights_are_scoped_to_the_operators_own_namespace_if_none_is_named(operator_chart: Chart) -> None:
    objects = operator_chart(scopedRBAC=True)

    assert settings_of(objects).namespace == NAMESPACE
    assert {each["metadata"].get("namespace") for each in objects if "rbac" in each["apiVersion"]} == {NAMESPACE}


def test_the_rights_are_those_of_its_work(operator_chart: Chart) -> None:
    """No wildcard verb, nothing about workloads, rights or definitions, reviews only where they are asked for."""
    granted = rules(operator_chart())
    reviewing = rules(operator_chart(metrics={"listen": {"secure": {"enabled": True}, "auth": {"enabled": True}}}))

    assert all("*" not in rule["verbs"] + rule["apiGroups"] for rule in granted)
    groups = {group for rule in granted for group in rule["apiGroups"]}
    assert groups.isdisjoint({"apps", "rbac.authorization.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io"})
    assert len(reviewing) == len(granted) + 2


def of_kind(objects: list[JsonObject], kind: str) -> list[JsonObject]:
    return [each for each in objects if each["kind"] == kind]


def test_metrics_are_for_the_pod_alone_by_default(operator_chart: Chart) -> None:
    closed = operator_chart()
    opened = operator_chart(metrics={"service": {"enabled": True}, "from": [{"podSelector": {}}]})

    assert settings_of(closed).metrics.listen.host == "127.0.0.1"
    assert of_kind(closed, "Service") == []
    assert settings_of(opened).metrics.listen.host == ""
    assert [each["metadata"]["name"] for each in of_kind(opened, "Service")] == ["external-secrets-metrics"]
    (policy,) = of_kind(opened, "NetworkPolicy")
    assert policy["spec"]["ingress"] == [
        PROBES,
        {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [{"podSelector": {}}]},
    ]


def test_the_dashboard_is_a_switch_and_asks_every_reader_for_a_token(operator_chart: Chart) -> None:
    off, on = operator_chart(), operator_chart(dashboard={"enabled": True, "port": 9443, "from": [{"podSelector": {}}]})
    own = operator_chart(dashboard={"enabled": True, "certificateSecret": "dashboard-tls"})

    assert len(of_kind(off, "Deployment")) == 1
    dashboard, pod = dashboard_of(on)
    assert (dashboard.listen.port, dashboard.authenticated, dashboard.certificate_folder) == (9443, True, None)
    assert pod["serviceAccountName"] == "external-secrets-dashboard"
    (service,) = of_kind(on, "Service")
    assert service["metadata"]["name"] == "external-secrets-dashboard"
    assert service["spec"]["ports"] == [{"name": "https", "port": 443, "targetPort": "dashboard", "protocol": "TCP"}]
    policy = next(each for each in of_kind(on, "NetworkPolicy") if each["metadata"]["name"].endswith("-dashboard"))
    assert policy["spec"]["ingress"] == [
        {"ports": [{"port": "dashboard", "protocol": "TCP"}], "from": [{"podSelector": {}}]}
    ]
    settings, pod = dashboard_of(own)
    assert pod["volumes"] == [{"name": "dashboard-tls", "secret": {"secretName": "dashboard-tls"}}]
    assert settings.certificate_folder == Path(pod["containers"][0]["volumeMounts"][0]["mountPath"])


def test_no_selector_of_the_operator_selects_the_dashboard(operator_chart: Chart) -> None:
    objects = operator_chart(dashboard={"enabled": True}, metrics={"service": {"enabled": True}})
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind(objects, "Deployment")]
    selectors = [each["spec"]["selector"] for each in of_kind(objects, "Service")]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(objects, "NetworkPolicy")]

    assert [sum(selector.items() <= each.items() for each in labels) for selector in selectors] == [1, 1, 1, 1]


def test_the_dashboard_reads_metrics_that_are_open_and_may_do_so(operator_chart: Chart) -> None:
    service = {"service": {"enabled": True}, "from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}
    closed = operator_chart(dashboard={"enabled": True})
    opened = operator_chart(dashboard={"enabled": True}, metrics=service)
    secure = operator_chart(dashboard={"enabled": True}, metrics={**service, "listen": {"secure": {"enabled": True}}})

    assert dashboard_of(closed)[0].metrics.url == dashboard_of(secure)[0].metrics.url == ""
    url = dashboard_of(opened)[0].metrics.url
    assert url == "http://external-secrets-metrics.external-secrets.svc:8080/metrics"
    (policy,) = (each for each in of_kind(opened, "NetworkPolicy") if each["metadata"]["name"].endswith("-policy"))
    assert len(policy["spec"]["ingress"][-1]["from"]) == 2


def test_each_service_says_what_its_provider_serves_before_a_pod_answers(operator_chart: Chart) -> None:
    """Without it, every store of a first installation would be told to install what is being started."""
    alone, together = ("vault", "generators", "webhook"), ("aws", "fake")
    values: dict[str, Any] = {name: {"enabled": True} for name in alone}
    values["shared"] = {"enabled": True, "names": list(together)}

    objects = operator_chart(providers=values)

    found = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {})
        for each in objects
        if each["kind"] == "Service" and "external-secrets.io/provider" in each["metadata"]["labels"]
    }
    assert found == {
        f"provider-{name}": service_object(ServiceKey("", ""), 0, load(name).kind_infos)["metadata"]["annotations"]
        for name in (*alone, *together)
    }


def test_only_probes_reach_the_operator(operator_chart: Chart) -> None:
    (policy,) = of_kind(operator_chart(), "NetworkPolicy")

    assert "Ingress" in policy["spec"]["policyTypes"]
    assert policy["spec"]["ingress"] == [PROBES]
    assert of_kind(operator_chart(networkPolicy={"enabled": False}), "NetworkPolicy") == []


@pytest.mark.parametrize(
    ("wanted", "patches"), [pytest.param(True, 1, id="by default"), pytest.param(False, 0, id="not")]
)
def test_namespaces_are_changed_only_to_clean_up_after_the_existing_operator(
    operator_chart: Chart, wanted: bool, patches: int
) -> None:
    granted = rules(operator_chart(namespaceFinalizers=wanted))

    assert sum("namespaces" in rule["resources"] and "patch" in rule["verbs"] for rule in granted) == patches


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        pytest.param(
            {}, (STORE, STORE_V2, PROVIDER_KIND, CLUSTER_STORE, CLUSTER_STORE_V2, CLUSTER_PROVIDER_KIND), id="cluster"
        ),
        pytest.param(
            {"scopedNamespace": "team-a", "scopedRBAC": True}, (STORE, STORE_V2, PROVIDER_KIND), id="one namespace"
        ),
    ],
)
def test_stores_can_be_held_for_as_long_as_something_pushed_to_them_is_to_be_deleted(
    operator_chart: Chart, values: dict[str, Any], kinds: tuple[StoreKind, ...]
) -> None:
    granted = {
        (group, resource)
        for rule in rules(operator_chart(**values))
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "patch" in rule["verbs"]
    }

    assert {(kind.resource.group, kind.resource.plural) for kind in kinds} <= granted


def test_more_can_be_granted_for_providers_and_targets_of_ones_own(operator_chart: Chart) -> None:
    target = {"apiGroup": "argoproj.io", "resources": ["applications"], "verbs": ["get", "patch"]}
    objects = operator_chart(
        genericTargets={"enabled": True, "resources": [target]}, configGroups=["weather.example.com"]
    )

    granted = rules(objects)

    assert {**target, "apiGroups": ["argoproj.io"]}.items() >= next(
        rule for rule in granted if rule["apiGroups"] == ["argoproj.io"]
    ).items()
    assert any("weather.example.com" in rule["apiGroups"] for rule in granted)
    assert settings_of(objects).sync.generic_targets


@pytest.mark.slow
def test_the_operator_does_its_work_with_these_rights_alone(operator_chart: Chart, tmp_path: Path) -> None:
    """The demo's stores, syncs, pushes, generators and fan-out, and their end, as the chart's service account."""
    manifests, limited = tmp_path / "manifests", tmp_path / "limited.kubeconfig"
    shutil.copytree(ROOT / "examples" / "demo", manifests)
    objects = [each for each in operator_chart() if each["kind"] not in ("Deployment", "Service", "NetworkPolicy")]
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
    return bool(kubectl(up, "get", "clusterrolebinding", f"{NAMESPACE}-controller", "--ignore-not-found"))


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
