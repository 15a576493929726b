"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs an App that is installed in an organization. Name both in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_GITHUB_ORGANIZATION` | the organization; without it, no kind has a fixture |
| `ESO_CONFORMANCE_GITHUB_APP` | id of the App |
| `ESO_CONFORMANCE_GITHUB_INSTALLATION` | id of its installation |
| `ESO_CONFORMANCE_GITHUB_KEY` | its private key in PEM |
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final

STORES: Final = ("GitHub", "ClusterGitHub")
GENERATOR: Final = "GithubAccessToken"


@dataclass(frozen=True, slots=True)
class Installed:
    """An App, where it is installed, and its key."""

    organization: str
    app: int
    installation: int
    key: str = field(repr=False)
    url: str = ""
    """URL of the web site; empty means https://github.com."""
    api: str = ""
    """URL of the API; empty means https://api.github.com."""


def fixture(installed: Installed) -> dict[str, Any]:
    """Return the fixture for one organization."""
    reference = {"name": "github", "key": "key.pem"}

    def store(kind: str) -> dict[str, Any]:
        own = reference | ({"namespace": "conformance"} if kind.startswith("Cluster") else {})
        spec = {
            "url": installed.url,
            "appID": installed.app,
            "installationID": installed.installation,
            "organization": installed.organization,
            "auth": {"privateKey": own},
        }
        return {
            "kind": kind,
            "spec": spec,
            "credentials": {"/auth/privateKey": installed.key},
            "absent": "CONFORMANCE_NO_SUCH_KEY",
            "writable": "CONFORMANCE_",
            "ownership": False,
            "invalid": [{}, spec | {"environment": "production"}, spec | {"orgSecretVisibility": "selected"}],
        }

    generator = {
        "kind": GENERATOR,
        "spec": {
            "url": installed.api,
            "appID": str(installed.app),
            "installID": str(installed.installation),
            "auth": {"privateKey": {"secretRef": reference}},
        },
        "credentials": {"/auth/privateKey/secretRef": installed.key},
        "invalid": [{}],
    }
    return {"kinds": [*map(store, STORES), generator]}


def _from_environment() -> dict[str, Any]:
    def named(name: str) -> str:
        return os.environ.get(f"ESO_CONFORMANCE_GITHUB_{name}", "")

    if not named("ORGANIZATION"):
        return {"kinds": []}
    installed = Installed(named("ORGANIZATION"), int(named("APP")), int(named("INSTALLATION")), named("KEY"))
    return fixture(installed)


FIXTURE: Final = _from_environment()
