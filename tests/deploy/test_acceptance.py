"""What `helm install` makes of an image registry and one provider works: the test is the kubelet of its pods.

The processes have exactly the flags, environment, volumes and rights of the release, and one flag more for a machine
without a cluster's network. The backend is a real OpenBao.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from eso_provider_vault.testing.openbao import OpenBao
from kubebase.meta import JsonObject

pytestmark = [pytest.mark.live, pytest.mark.slow]

CHART = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
PATIENCE = "--timeout=100s"


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


def test_a_release_of_an_image_registry_and_one_provider_syncs_and_pushes(installed: Any, bao: OpenBao) -> None:
    """With its own account and its rights alone; the provider has no account at all."""
    installed.apply(*manifests(bao))

    for what in ("secretstore/vault", "externalsecret/database", "pushsecret/copy"):
        installed.ready(what)
    secret = installed.kubectl.json("get", "secret", "database", "--namespace=team-a")
    assert base64.b64decode(secret["data"]["password"]) == b"correct-horse"
    assert bao.read("secret", "copy")["data"] == {"password": "correct-horse"}

    installed.kubectl("delete", "pushsecret", "copy", "--namespace=team-a", PATIENCE)
    assert bao.call("GET", "secret/data/copy")[0] == 404
    lease = installed.kubectl.json("get", "lease", "external-secrets-controller")
    assert lease["spec"]["holderIdentity"]
    assert "forbidden" not in installed.operator.log.lower()

    # What the notes promise.
    commands = [line.split()[1:] for line in installed.notes.splitlines() if line.startswith("  kubectl get")]
    classes, secrets = (installed.kubectl(*command) for command in commands)
    assert "  eso why externalsecret NAME --namespace NAMESPACE" in installed.notes.splitlines()
    assert "provider-vault" in classes
    assert "database" in secrets


def test_helm_test_passes_and_names_a_provider_that_is_not_there(
    installed: Any, operator_chart: Any, tmp_path: Path
) -> None:
    """The script of its pod, with the account and the address that the kubelet would give it."""
    (hook,) = operator_chart(hooks=True, providers={"vault": {"enabled": True}}, metrics={"service": {"enabled": True}})
    (container,) = hook["spec"]["containers"]
    assert container["command"] == ["python3", "-c"]
    server, kubectl = installed.kubelet.server, installed.kubectl
    (tmp_path / "token").write_text(kubectl("create", "token", hook["spec"]["serviceAccountName"]).strip())
    shutil.copy(server.ca_file, tmp_path / "ca.crt")
    address = urllib.parse.urlsplit(server.url)
    given = {each["name"]: each["value"] for each in container["env"]}
    pod = {"KUBERNETES_SERVICE_HOST": address.hostname, "KUBERNETES_SERVICE_PORT": str(address.port)}
    here = {"ACCOUNT": str(tmp_path), "METRICS": f"http://{installed.scraped[0]}/metrics", "PATH": os.environ["PATH"]}

    def check(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", container["args"][0]]
        environment = {**given, **pod, **here, **more}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    assert given["METRICS"] == "http://external-secrets-metrics.external-secrets.svc:8080/metrics"
    assert (check().returncode, check().stderr) == (0, "")
    assert "providerclasses/provider-none" in check(PROVIDERS="none", SECONDS="0").stderr
    assert "404" in check(METRICS=f"http://{installed.scraped[0]}/nothing", SECONDS="0").stderr


def test_notes_name_the_providers_that_stores_of_the_cluster_need(installed: Any, bao: OpenBao) -> None:
    if installed.helm is None:
        pytest.skip("looks into the cluster with a real Helm: run `make test-cluster`")
    installed.apply(*manifests(bao))
    gcp = {"provider": {"gcpsm": {"projectID": "p"}}}
    store = {
        "apiVersion": "external-secrets.io/v1",
        "kind": "ClusterSecretStore",
        "metadata": {"name": "gcp"},
        "spec": gcp,
    }
    installed.apply(store)

    upgrade = ("upgrade", "external-secrets", str(CHART), "--dry-run=server", "--reset-then-reuse-values")
    notes = installed.helm(*upgrade, "--set", "providers.vault.enabled=false,installCRDs=true")

    assert re.search(r"Provider vault is not enabled, but \d stores of this cluster need it", notes)
    assert (
        "Provider gcp is not enabled, but 1 stores of this cluster need it: --set providers.gcp.enabled=true" in notes
    )
    assert "not enabled" not in installed.notes
