"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a project. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_GITLAB_PROJECT` | id or path of the project; without it, no kind has a fixture |
| `ESO_CONFORMANCE_GITLAB_URL` | URL of GitLab; absent means https://gitlab.com |
| `ESO_CONFORMANCE_GITLAB_TOKEN` | an access token with the scope api and the role Maintainer |
"""

from __future__ import annotations

import os
from typing import Any, Final

STORES: Final = ("GitLab", "ClusterGitLab")
GENERATOR: Final = "GitlabDeployToken"


def fixture(url: str, project: str, token: str, **known: Any) -> dict[str, Any]:
    """Return the fixture for one project; `known` describes existing variables."""
    reference = {"name": "gitlab", "key": "token"}

    def store(kind: str) -> dict[str, Any]:
        own = reference | ({"namespace": "conformance"} if kind.startswith("Cluster") else {})
        auth = {"SecretRef": {"accessToken": own}}
        return {
            "kind": kind,
            "spec": {"url": url, "projectID": project, "auth": auth},
            "credentials": {"/auth/SecretRef/accessToken": token},
            "absent": "CONFORMANCE_NO_SUCH_KEY",
            "invalid": [{"auth": auth}, {"projectID": project, "auth": {"SecretRef": {}}}],
            **known,
        }

    auth = {"token": {"secretRef": reference}}
    generator = {
        "kind": GENERATOR,
        "spec": {"url": url, "projectID": project, "name": "conformance", "scopes": ["read_registry"], "auth": auth},
        "credentials": {"/auth/token/secretRef": token},
        "invalid": [{"name": "conformance", "scopes": ["read_registry"], "auth": auth}],
    }
    return {"kinds": [*map(store, STORES), generator]}


def _from_environment() -> dict[str, Any]:
    project = os.environ.get("ESO_CONFORMANCE_GITLAB_PROJECT", "")
    if not project:
        return {"kinds": []}
    url = os.environ.get("ESO_CONFORMANCE_GITLAB_URL", "")
    return fixture(url, project, os.environ.get("ESO_CONFORMANCE_GITLAB_TOKEN", ""))


FIXTURE: Final = _from_environment()
