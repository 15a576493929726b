"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a project. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_GCP_PROJECT` | project to use; without it, no kind has a fixture |
| `ESO_CONFORMANCE_GCP_SUBSCRIPTION` | Pub/Sub subscription that gets all changes; optional |
| `ESO_CONFORMANCE_GCP_KEY` | JSON key of a service account that may read, write, list and delete |
"""

from __future__ import annotations

import os
from typing import Any, Final

STORES: Final = ("GCPSecretManager", "ClusterGCPSecretManager")
GENERATOR: Final = "GCRAccessToken"


def fixture(project: str, key: str, subscription: str = "", **known: Any) -> dict[str, Any]:
    """Return the fixture for one project; `known` describes existing values."""
    changes = {"changes": {"subscription": subscription}} if subscription else {}

    def of(kind: str) -> dict[str, Any]:
        namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
        reference = {"name": "gcp", "key": "key.json", **namespace}
        auth = {"secretRef": {"secretAccessKeySecretRef": reference}}
        return {
            "kind": kind,
            "spec": {"projectID": project, "auth": auth},
            "credentials": {"/auth/secretRef/secretAccessKeySecretRef": key},
            "invalid": [{"projectID": project, "auth": {"secretRef": {}}}],
        }

    # Ids of secrets have no slashes.
    names: dict[str, Any] = {"absent": "conformance-no-such-key", "writable": "conformance-"}
    stores = [{**of(kind), **names, **known} for kind in STORES]
    for store in stores:
        store["spec"] |= changes
    # One kind writes properties, which are text; the other one writes whole values, which can be any bytes.
    stores[0]["property"] = "value"
    return {"kinds": [*stores, of(GENERATOR)]}


def _from_environment() -> dict[str, Any]:
    project = os.environ.get("ESO_CONFORMANCE_GCP_PROJECT", "")
    if not project:
        return {"kinds": []}
    subscription = os.environ.get("ESO_CONFORMANCE_GCP_SUBSCRIPTION", "")
    return fixture(project, os.environ.get("ESO_CONFORMANCE_GCP_KEY", ""), subscription)


FIXTURE: Final = _from_environment()
