"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs an environment of a project. Name it in the environment of the process:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_INFISICAL_PROJECT` | slug of the project; without it, no kind has a fixture |
| `ESO_CONFORMANCE_INFISICAL_ENVIRONMENT` | slug of the environment |
| `ESO_CONFORMANCE_INFISICAL_HOST` | URL of the server; absent means https://app.infisical.com |
| `ESO_CONFORMANCE_INFISICAL_CLIENT_ID` | a machine identity that may write there |
| `ESO_CONFORMANCE_INFISICAL_CLIENT_SECRET` | |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

STORES: Final = ("Infisical", "ClusterInfisical")
_PLACE: Final = "/auth/universalAuthCredentials"


def fixture(
    host: str, scope: Mapping[str, Any], client: tuple[str, str], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fixture for one environment; `client` is id and secret, `known` describes existing values."""
    return {"kinds": [_store(kind, host, scope, client) | dict(known or {}) for kind in STORES]}


def _store(kind: str, host: str, scope: Mapping[str, Any], client: tuple[str, str]) -> dict[str, Any]:
    namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
    references = {name: {"name": "infisical", "key": name, **namespace} for name in ("clientId", "clientSecret")}
    spec = {"hostAPI": host, "secretsScope": dict(scope), "auth": {"universalAuthCredentials": references}}
    return {
        "kind": kind,
        "spec": spec,
        "credentials": {f"{_PLACE}/clientId": client[0], f"{_PLACE}/clientSecret": client[1]},
        "invalid": [{"auth": {}, "secretsScope": dict(scope)}, spec | {"hostAPI": "no URL"}],
        "property": "value",
        "writable": "CONFORMANCE_",
        "absent": "CONFORMANCE_NO_SUCH_KEY",
        "ownership": False,
    }


def _from_environment() -> dict[str, Any]:
    names = ("PROJECT", "ENVIRONMENT", "HOST", "CLIENT_ID", "CLIENT_SECRET")
    project, environment, host, client, secret = (
        os.environ.get(f"ESO_CONFORMANCE_INFISICAL_{name}", "") for name in names
    )
    if not project:
        return {"kinds": []}
    scope = {"projectSlug": project, "environmentSlug": environment}
    return fixture(host or "https://app.infisical.com", scope, (client, secret))


FIXTURE: Final = _from_environment()
