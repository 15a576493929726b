"""What `eso conformance` may expect of this provider; found through the entry point group `eso.conformance`.

The suite needs an account. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_AWS_REGION` | region to use; without it, no kind has a fixture |
| `ESO_CONFORMANCE_AWS_ACCESS_KEY_ID` | keys that may read, write, list and delete |
| `ESO_CONFORMANCE_AWS_SECRET_ACCESS_KEY` | |
"""

from __future__ import annotations

import os
from typing import Any, Final

KINDS: Final = ("SecretsManager", "ClusterSecretsManager", "AWSSecretManager")


def fixture(region: str, keys: tuple[str, str], **known: Any) -> dict[str, Any]:
    """The fixture for one region of one account; `known` describes values that it holds."""

    def of(kind: str) -> dict[str, Any]:
        namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
        references = {
            "accessKeyIDSecretRef": {"name": "aws", "key": "id", **namespace},
            "secretAccessKeySecretRef": {"name": "aws", "key": "key", **namespace},
        }
        return {
            "kind": kind,
            "spec": {"region": region, "auth": {"secretRef": references}},
            "credentials": {
                "/auth/secretRef/accessKeyIDSecretRef": keys[0],
                "/auth/secretRef/secretAccessKeySecretRef": keys[1],
            },
            "property": "value",
            "invalid": [{"region": "no region of AWS"}],
            **known,
        }

    return {"kinds": [of(kind) for kind in KINDS]}


def _from_environment() -> dict[str, Any]:
    region = os.environ.get("ESO_CONFORMANCE_AWS_REGION", "")
    if not region:
        return {"kinds": []}
    keys = ("ESO_CONFORMANCE_AWS_ACCESS_KEY_ID", "ESO_CONFORMANCE_AWS_SECRET_ACCESS_KEY")
    return fixture(region, (os.environ.get(keys[0], ""), os.environ.get(keys[1], "")))


FIXTURE: Final = _from_environment()
