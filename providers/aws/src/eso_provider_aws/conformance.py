"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs an account. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_AWS_REGION` | region to use; without it, no kind has a fixture |
| `ESO_CONFORMANCE_AWS_ACCESS_KEY_ID` | keys that may read, write, list and delete |
| `ESO_CONFORMANCE_AWS_SECRET_ACCESS_KEY` | |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

STORES: Final = {
    "SecretsManager": "SecretsManager",
    "ClusterSecretsManager": "SecretsManager",
    "AWSSecretManager": "SecretsManager",
    "ParameterStore": "ParameterStore",
    "ClusterParameterStore": "ParameterStore",
}
"""Kinds by the service that they configure."""
GENERATORS: Final = ("ECRAuthorizationToken", "STSSessionToken")


def fixture(region: str, keys: tuple[str, str], **known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fixture for one region of one account; `known` describes existing values by service."""
    sent = {
        "/auth/secretRef/accessKeyIDSecretRef": keys[0],
        "/auth/secretRef/secretAccessKeySecretRef": keys[1],
    }

    def of(kind: str) -> dict[str, Any]:
        namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
        references = {
            "accessKeyIDSecretRef": {"name": "aws", "key": "id", **namespace},
            "secretAccessKeySecretRef": {"name": "aws", "key": "key", **namespace},
        }
        return {
            "kind": kind,
            "spec": {"region": region, "auth": {"secretRef": references}},
            "credentials": sent,
            "invalid": [{"region": "no region of AWS"}],
        }

    stores = [{**of(kind), "property": "value", **known.get(service, {})} for kind, service in STORES.items()]
    return {"kinds": [*stores, *map(of, GENERATORS)]}


def _from_environment() -> dict[str, Any]:
    region = os.environ.get("ESO_CONFORMANCE_AWS_REGION", "")
    if not region:
        return {"kinds": []}
    keys = ("ESO_CONFORMANCE_AWS_ACCESS_KEY_ID", "ESO_CONFORMANCE_AWS_SECRET_ACCESS_KEY")
    return fixture(region, (os.environ.get(keys[0], ""), os.environ.get(keys[1], "")))


FIXTURE: Final = _from_environment()
