"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a config. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_DOPPLER_TOKEN` | a token that may read and write the config; without it, no kind has a fixture |
| `ESO_CONFORMANCE_DOPPLER_PROJECT` | its project |
| `ESO_CONFORMANCE_DOPPLER_CONFIG` | its name |
"""

from __future__ import annotations

import os
from typing import Any, Final

KINDS: Final = ("Doppler", "ClusterDoppler")


def fixture(token: str, project: str, config: str, **known: Any) -> dict[str, Any]:
    """Return the fixture for one config; `known` describes existing values."""

    def of(kind: str) -> dict[str, Any]:
        namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
        return {
            "kind": kind,
            "spec": {
                "project": project,
                "config": config,
                "auth": {"secretRef": {"dopplerToken": {"name": "doppler", "key": "token", **namespace}}},
            },
            "credentials": {"/auth/secretRef/dopplerToken": token},
            "invalid": [{"project": project, "config": config, "auth": {}}],
            "absent": "CONFORMANCE_NO_SUCH_KEY",
            "writable": "CONFORMANCE_",
            "property": "value",
            **known,
        }

    return {"kinds": [of(kind) for kind in KINDS]}


def _from_environment() -> dict[str, Any]:
    token = os.environ.get("ESO_CONFORMANCE_DOPPLER_TOKEN", "")
    if not token:
        return {"kinds": []}
    project = os.environ.get("ESO_CONFORMANCE_DOPPLER_PROJECT", "")
    return fixture(token, project, os.environ.get("ESO_CONFORMANCE_DOPPLER_CONFIG", ""))


FIXTURE: Final = _from_environment()
