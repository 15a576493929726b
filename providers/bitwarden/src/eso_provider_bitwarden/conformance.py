"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a project. Name it in the environment of the process:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_BITWARDEN_PROJECT` | id of the project; without it, no kind has a fixture |
| `ESO_CONFORMANCE_BITWARDEN_ORGANIZATION` | id of the organization |
| `ESO_CONFORMANCE_BITWARDEN_SERVER` | URL of the companion server; absent means Bitwarden's SDK |
| `ESO_CONFORMANCE_BITWARDEN_TOKEN` | access token of a machine account that may write there |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

STORES: Final = ("BitwardenSecretsManager", "ClusterBitwardenSecretsManager")


def fixture(settings: Mapping[str, Any], token: str, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fixture for one project; `settings` has its ids and the companion server, `known` existing values."""
    return {"kinds": [_store(kind, settings, token) | dict(known or {}) for kind in STORES]}


def _store(kind: str, settings: Mapping[str, Any], token: str) -> dict[str, Any]:
    namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
    auth = {"secretRef": {"credentials": {"name": "bitwarden", "key": "token", **namespace}}}
    return {
        "kind": kind,
        "spec": {**settings, "auth": auth},
        "credentials": {"/auth/secretRef/credentials": token},
        "invalid": [
            {"auth": auth, **settings, "projectID": "no id"},
            {"auth": auth, **settings, "caBundle": "no bundle"},
        ],
        "property": "value",
        "writable": "conformance-",
        "absent": "conformance-no-such-key",
        "ownership": False,
    }


def _from_environment() -> dict[str, Any]:
    names = ("PROJECT", "ORGANIZATION", "SERVER", "TOKEN")
    project, organization, server, token = (os.environ.get(f"ESO_CONFORMANCE_BITWARDEN_{name}", "") for name in names)
    if not project:
        return {"kinds": []}
    address = {"bitwardenServerSDKURL": server} if server else {}
    return fixture({"projectID": project, "organizationID": organization, **address}, token)


FIXTURE: Final = _from_environment()
