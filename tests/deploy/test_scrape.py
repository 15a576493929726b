"""Every query of our rules and dashboard, and every series of the dashboard in Go, on a release that runs.

A query must find its series with their labels in a scrape, so a metric that is renamed fails here. Where Debian's
Prometheus is installed, it scrapes the release too, and evaluates every rule and query.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from eso_provider_vault.testing.openbao import OpenBao
from eso_testkit.operator.promql import parse
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject
from kubebase.testing.servers import Child, find_program, free_ports

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = yaml.safe_load((ROOT / "deploy" / "monitoring" / "rules.yaml").read_text())["spec"]
DASHBOARD: Final = json.loads((ROOT / "deploy" / "monitoring" / "dashboard.json").read_text())
RECORDED: Final = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
ADDED: Final = {"pod", "service", "job", "instance", "le", "exported_namespace", "exported_service"}
"""Labels that Prometheus adds."""
OF_GO: Final = {
    "controller_runtime_reconcile_total": {"controller", "result"},
    "controller_runtime_reconcile_errors_total": {"controller"},
    "controller_runtime_reconcile_time_seconds_bucket": {"controller", "le"},
    "controller_runtime_active_workers": {"controller"},
    "controller_runtime_max_concurrent_reconciles": {"controller"},
    "workqueue_depth": {"name", "controller"},
    "externalsecret_status_condition": {"name", "namespace", "condition", "status"},
    "externalsecret_sync_calls_error": {"name", "namespace"},
    "externalsecret_provider_api_calls_count": {"provider", "call", "status"},
}
"""The series that the dashboard of the operator in Go queries, without those of its webhook."""
SILENT: Final = {"eso_provider_subscription_lag_seconds_bucket"}
"""Series that need an event which no backend here sends; their names are in the scrape nevertheless."""
CONDITIONS: Final = (
    *("secretstore", "clustersecretstore", "secretstore_v2", "clustersecretstore_v2", "provider", "clusterprovider"),
    *("providerclass", "clusterproviderclass", "pushsecret", "externalsecret"),
)
SECONDS: Final = 90.0


def queries() -> Iterator[str]:
    for group in RULES["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"].replace("$controller", ".*") for target in panel.get("targets", ()))


def objects(bao: OpenBao) -> list[JsonObject]:
    """One object of each kind that has a condition; it need not become ready."""
    auth = {"tokenSecretRef": {"name": "token", "key": "token", "namespace": "team-b"}}
    spec: JsonObject = {"server": bao.url, "path": "secret", "version": "v2", "auth": auth}
    v1, v2 = "external-secrets.io/v1", "secretstore.external-secrets.io/v2alpha1"
    config = {"apiVersion": "provider.secretstore.external-secrets.io/v2alpha1", "kind": "Vault", "name": "none"}
    address = {"address": "provider-vault.external-secrets.svc:8080", "providerRef": config}
    remote = {"secretKey": "a", "remoteRef": {"key": "database", "property": "password"}}
    match = {"secretKey": "a", "remoteRef": {"remoteKey": "copy-b", "property": "a"}}
    made: list[tuple[str, str, str, JsonObject]] = [
        (v1, "SecretStore", "vault", {"provider": {"vault": spec}}),
        (v1, "ClusterSecretStore", "vault", {"provider": {"vault": spec}}),
        (v2, "SecretStore", "vault", {"providerConfig": address}),
        (v2, "ClusterSecretStore", "vault", {"providerConfig": address}),
        ("external-secrets.io/v1alpha1", "Provider", "vault", {"config": address}),
        ("external-secrets.io/v1alpha1", "ClusterProvider", "vault", {"config": address}),
        ("external-secrets.io/v1alpha1", "ClusterProviderClass", "vault", {"address": address["address"]}),
        (v1, "ExternalSecret", "one", {"secretStoreRef": {"name": "vault"}, "data": [remote]}),
        (v1, "ExternalSecret", "broken", {"secretStoreRef": {"name": "none"}, "data": [remote]}),
        (
            "external-secrets.io/v1alpha1",
            "PushSecret",
            "copy",
            {
                "secretStoreRefs": [{"name": "vault"}],
                "selector": {"secret": {"name": "one"}},
                "data": [{"match": match}],
            },
        ),
    ]
    return [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name} if kind.startswith("Cluster") else {"name": name, "namespace": "team-b"},
            "spec": fields,
        }
        for version, kind, name, fields in made
    ]


def read(url: str) -> str:
    with urllib.request.urlopen(f"http://{url}", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="session")
def busy(installed: Any, bao: OpenBao) -> Any:
    """The release, once it has a condition of each kind and called its backend."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}}
    token = {"name": "token", "namespace": "team-b"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": token, "stringData": {"token": bao.root_token}}
    installed.kubectl("apply", "--namespace=team-b", "-f", "-", stdin=yaml.safe_dump_all([home, secret, *objects(bao)]))
    clock = SystemClock()
    end = clock.monotonic() + SECONDS
    wanted = {f"{kind}_status_condition" for kind in CONDITIONS} | {"externalsecret_provider_api_calls_count"}
    while missing := wanted - {name for name, labels in series(installed).items() if labels}:
        assert clock.monotonic() < end, f"not in the scrape: {missing}\n{installed.operator.log[-3000:]}"
    return installed


def series(release: Any) -> dict[str, set[str]]:
    """Return the labels of each series that operator and provider serve; none for those without a value."""
    found: dict[str, set[str]] = {}
    for address in release.scraped:
        for family in text_string_to_metric_families(read(f"{address}/metrics")):
            ends = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("", "_total")
            for end in ends:
                found.setdefault(f"{family.name}{end}", set())
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_finds_its_series_with_their_labels_in_a_scrape(busy: Any) -> None:
    served = series(busy)
    served |= {name: set(ADDED) for name in RECORDED}

    for query in queries():
        for name, labels in parse(query).selectors:
            assert name in served, query
            assert served[name] or not labels or name in SILENT, f"{name} has no value"
            assert name in SILENT or labels <= served[name] | ADDED, query
    assert {name: labels <= served[name] for name, labels in OF_GO.items()} == dict.fromkeys(OF_GO, True)


def test_the_calls_of_a_provider_have_the_names_that_dashboards_know(busy: Any) -> None:
    families = text_string_to_metric_families(read(f"{busy.scraped[1]}/metrics"))
    calls = [
        sample.labels
        for family in families
        for sample in family.samples
        if sample.name == "externalsecret_provider_api_calls_count"
    ]

    assert {call["provider"] for call in calls} == {"HashiCorp/Vault"}
    assert "ReadSecretData" in {call["call"] for call in calls}


class Prometheus:
    """A real one that scrapes a release every second."""

    def __init__(self, program: Path, folder: Path, targets: tuple[str, ...]) -> None:
        (port,) = free_ports(1)
        self._url = f"127.0.0.1:{port}"
        (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
        jobs = [{"job_name": "external-secrets", "static_configs": [{"targets": list(targets)}]}]
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        command = [
            str(program),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
        ]
        self.child = Child([*command, f"--web.listen-address={self._url}"], folder / "prometheus.log")

    def ask(self, path: str, **query: str) -> Any:
        return json.loads(read(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"))["data"]

    def has(self, query: str) -> bool:
        try:
            return bool(self.ask("query", query=query)["result"])
        except OSError:
            return False


def prometheus(name: str) -> Path:
    found = find_program(name)
    if found is None:
        pytest.skip(f"{name} is not installed: `make prometheus`")
    return found


def test_prometheus_evaluates_every_rule_and_query(busy: Any, tmp_path: Path) -> None:
    running = Prometheus(prometheus("prometheus"), tmp_path, busy.scraped)
    try:
        running.child.wait_until(
            lambda: running.has("eso:available == 1 and eso:sync_wait_seconds:p99_rate30m >= 0"), seconds=SECONDS
        )
        rules = [rule for group in running.ask("rules")["groups"] for rule in group["rules"]]
        answers = {query: running.ask("query", query=query)["resultType"] for query in queries()}
        not_ready = running.ask(
            "query", query='secretstore_v2_status_condition{condition="Ready", status="False"} == 1'
        )
    finally:
        running.child.stop()

    assert {
        (rule["name"], rule["health"], rule.get("lastError", "")) for rule in rules if rule["health"] != "ok"
    } == set()
    assert set(answers.values()) == {"vector"}
    assert [each["metric"]["name"] for each in not_ready["result"]] == ["vault"]


def test_alerts_fire_for_what_they_name(tmp_path: Path) -> None:
    """With the labels that a scrape of Prometheus leaves: the namespace of an object is exported_namespace."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    store = {"name": "vault", "namespace": "external-secrets", "exported_namespace": "team-a"}
    labels = ", ".join(f'{key}="{value}"' for key, value in {**store, "condition": "Ready", "status": "False"}.items())
    tests = [
        {
            "input_series": [{"series": f"secretstore_status_condition{{{labels}}}", "values": "1x60"}],
            "alert_rule_test": [
                fires("StoreNotReady", "store team-a/vault is not ready", **store, condition="Ready", status="False")
            ],
        },
        {
            "input_series": [{"series": "leader_election_master_status{name='x'}", "values": "0x60"}],
            "alert_rule_test": [fires("OperatorUnavailable", "no operator is scraped that leads: nothing is synced")],
        },
        {
            "input_series": [],
            "alert_rule_test": [fires("OperatorUnavailable", "no operator is scraped that leads: nothing is synced")],
        },
        {
            "input_series": [{"series": "eso_build_info{version='1'}", "values": "1x60"}],
            "alert_rule_test": [{"alertname": "OperatorUnavailable", "eval_time": "30m"}],
        },
    ]
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **each} for each in tests],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))

    done = subprocess.run(
        [str(prometheus("promtool")), "test", "rules", "tests.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def fires(alert: str, summary: str, **labels: str) -> JsonObject:
    (rule,) = (rule for group in RULES["groups"] for rule in group["rules"] if rule.get("alert") == alert)
    annotations = {**rule["annotations"], "summary": summary}
    return {
        "alertname": alert,
        "eval_time": "30m",
        "exp_alerts": [{"exp_labels": {**rule["labels"], **labels}, "exp_annotations": annotations}],
    }
