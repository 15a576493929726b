"""What `helm install` makes of an image registry and one provider works: the test is the kubelet of its pods.

The processes have exactly the flags, environment, volumes and rights of the release, and one flag more for a machine
without a cluster's network. The backend is a real OpenBao.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from eso_provider_vault.testing.openbao import OpenBao
from kubebase.meta import JsonObject

pytestmark = [pytest.mark.live, pytest.mark.slow]

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
    assert bao.ask("GET", "secret/data/copy")[0] == 404
    lease = installed.kubectl.json("get", "lease", "external-secrets-controller")
    assert lease["spec"]["holderIdentity"]
    assert "forbidden" not in installed.operator.log.lower()

    # What the notes promise.
    commands = [line.split()[1:] for line in installed.notes.splitlines() if line.startswith("  kubectl get")]
    classes, secrets = (installed.kubectl(*command) for command in commands)
    assert "provider-vault" in classes
    assert "database" in secrets
