"""Which objects `eso preflight` finds to use the identity of a provider's own process."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.kinds import KINDS
from eso_tools.preflight.findings import Level
from eso_tools.preflight.identitycheck import process_identities, uses_of
from eso_tools.preflight.snapshot import Snapshot, Stored

SECRET = {"name": "s", "key": "k"}


def stored(kind: str, spec: Any) -> Stored:
    custom = next(each for each in KINDS if each.name == kind)
    home = {"namespace": "team"} if custom.namespaced else {}
    metadata = {"name": "o", **home}
    return Stored(
        custom, {"apiVersion": custom.resource().api_version, "kind": kind, "metadata": metadata, "spec": spec}
    )


def store(block: Any, kind: str = "SecretStore") -> Stored:
    return stored(kind, {"provider": block})


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        pytest.param(store({"aws": {"region": "r"}}), "spec.provider.aws.auth", id="AWS without auth"),
        pytest.param(store({"gcpsm": {"auth": {}}}), "spec.provider.gcpsm.auth", id="Google with an empty auth"),
        pytest.param(
            store({"gcpsm": {"auth": {"workloadIdentityFederation": {"credConfig": SECRET}}}}),
            "spec.provider.gcpsm.auth.workloadIdentityFederation.credConfig",
            id="a credConfig of Google",
        ),
        pytest.param(
            store({"azurekv": {"authType": "ManagedIdentity"}}), "spec.provider.azurekv.authType", id="managed identity"
        ),
        pytest.param(
            store({"azurekv": {"authType": "WorkloadIdentity"}}), "spec.provider.azurekv.authType", id="token file"
        ),
        pytest.param(
            store({"vault": {"server": "https://v", "auth": {"kubernetes": {"role": "r"}}}}),
            "spec.provider.vault.auth.kubernetes",
            id="token of the pod to Vault",
        ),
        pytest.param(
            store({"infisical": {"auth": {"awsAuthCredentials": {"identityId": SECRET}}}}),
            "spec.provider.infisical.auth.awsAuthCredentials",
            id="AWS role to Infisical",
        ),
        pytest.param(stored("STSSessionToken", {"region": "r"}), "spec.auth", id="temporary keys of AWS"),
        pytest.param(stored("GCRAccessToken", {"auth": {}}), "spec.auth", id="a token of Google"),
        pytest.param(
            stored("ACRAccessToken", {"auth": {"managedIdentity": {}}}), "spec.auth", id="a registry login of Azure"
        ),
        pytest.param(
            stored("VaultDynamicSecret", {"provider": {"server": "https://v", "auth": {"gcp": {"role": "r"}}}}),
            "spec.provider.auth.gcp",
            id="a generator of Vault",
        ),
    ],
)
def test_a_use_of_the_providers_identity_is_found(obj: Stored, field: str) -> None:
    assert [use.field for use in uses_of(obj)] == [field]


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(store({"aws": {"auth": {"jwt": {"serviceAccountRef": {"name": "a"}}}}}), id="AWS"),
        pytest.param(store({"gcpsm": {"auth": {"secretRef": {"secretAccessKeySecretRef": SECRET}}}}), id="Google"),
        pytest.param(store({"azurekv": {"authType": "ServicePrincipal"}}), id="Azure"),
        pytest.param(
            store({"azurekv": {"authType": "WorkloadIdentity", "serviceAccountRef": {"name": "a"}}}), id="an account"
        ),
        pytest.param(
            store({"vault": {"server": "https://v", "auth": {"kubernetes": {"secretRef": SECRET}}}}), id="Vault"
        ),
        pytest.param(store({"fake": {"data": []}}), id="a backend without identities"),
        pytest.param(store({"aws": None}), id="an empty block"),
        pytest.param(stored("SecretStore", None), id="no spec"),
    ],
)
def test_an_object_with_credentials_of_its_own_is_not_reported(obj: Stored) -> None:
    assert list(uses_of(obj)) == []


def test_a_namespaced_store_blocks_until_the_values_open_the_identity() -> None:
    obj = store({"aws": {"region": "r"}})

    (finding,) = process_identities(Snapshot(objects=(obj,)))
    opened = process_identities(
        Snapshot(objects=(obj,), values={"providers": {"aws": {"identity": {"usedBy": "namespaced"}}}})
    )

    assert finding.level is Level.BLOCKER
    assert "providers.aws.identity.usedBy=namespaced" in finding.next
    assert [detail.subject for detail in finding.details] == ["SecretStore team/o"]
    assert list(opened) == []


def test_a_cluster_scoped_store_of_a_cloud_needs_nothing() -> None:
    assert list(process_identities(Snapshot(objects=(store({"aws": {"region": "r"}}, "ClusterSecretStore"),)))) == []


def test_a_server_that_receives_proofs_must_be_listed_even_for_a_cluster_scoped_store() -> None:
    block = {"vault": {"server": "https://vault.corp:8200", "auth": {"iam": {"vaultRole": "r"}}}}
    obj = store(block, "ClusterSecretStore")

    (finding,) = process_identities(Snapshot(objects=(obj,)))
    listed = process_identities(
        Snapshot(objects=(obj,), values={"providerDefaults": {"identity": {"hosts": [".corp"]}}})
    )

    assert finding.next.startswith("set providers.vault.identity.hosts=[vault.corp]")
    assert list(listed) == []
