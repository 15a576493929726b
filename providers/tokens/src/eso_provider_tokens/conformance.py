"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a service. Name it in the environment; a kind whose variables are absent has no fixture:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_GRAFANA_URL`, `ESO_CONFORMANCE_GRAFANA_TOKEN` | a Grafana, and a token of an administrator |
| `ESO_CONFORMANCE_BEYONDTRUST_URL`, `_SITE`, `_TOKEN`, `_PATH` | a site of BeyondTrust, an API key, a dynamic secret |
"""

from __future__ import annotations

import os
from typing import Any, Final

_ACCOUNT: Final = {"name": "reader"}


def quay(host: str, robot: str, token: str) -> dict[str, Any]:
    spec = {"url": host, "robotAccount": robot, "serviceAccountRef": _ACCOUNT}
    return {
        "kind": "QuayAccessToken",
        "spec": spec,
        "tokens": {"/serviceAccountRef": token},
        "invalid": [{**spec, "robotAccount": ""}],
    }


def cloudsmith(url: str, organisation: str, service: str, token: str) -> dict[str, Any]:
    spec = {"apiUrl": url, "orgSlug": organisation, "serviceSlug": service, "serviceAccountRef": _ACCOUNT}
    return {
        "kind": "CloudsmithAccessToken",
        "spec": spec,
        "tokens": {"/serviceAccountRef": token},
        "invalid": [{**spec, "orgSlug": ""}],
    }


def grafana(url: str, token: str) -> dict[str, Any]:
    account = {"name": "external-secrets-conformance", "role": "Viewer", "secondsToLive": 600}
    spec = {"url": url, "auth": {"token": {"name": "grafana", "key": "token"}}, "serviceAccount": account}
    return {
        "kind": "Grafana",
        "spec": spec,
        "credentials": {"/auth/token": token},
        "invalid": [{**spec, "auth": {}}],
    }


def beyondtrust(url: str, site: str, token: str, path: str) -> dict[str, Any]:
    auth = {"apikey": {"token": {"name": "beyondtrust", "key": "token"}}}
    provider = {"server": {"apiUrl": url, "siteId": site}, "auth": auth, "folderPath": path}
    return {
        "kind": "BeyondtrustWorkloadCredentialsDynamicSecret",
        "spec": {"provider": provider},
        "credentials": {"/provider/auth/apikey/token": token},
        "invalid": [{"provider": {**provider, "folderPath": ""}}],
    }


def _from_environment() -> dict[str, Any]:
    environment = {name.removeprefix("ESO_CONFORMANCE_"): text for name, text in os.environ.items()}
    kinds = []
    if "GRAFANA_URL" in environment:
        kinds.append(grafana(environment["GRAFANA_URL"], environment.get("GRAFANA_TOKEN", "")))
    if "BEYONDTRUST_URL" in environment:
        parts = (environment.get(f"BEYONDTRUST_{part}", "") for part in ("SITE", "TOKEN", "PATH"))
        kinds.append(beyondtrust(environment["BEYONDTRUST_URL"], *parts))
    return {"kinds": kinds}


FIXTURE: Final = _from_environment()
