"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a server. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_VAULT_ADDR` | URL of the server; without it, no kind has a fixture |
| `ESO_CONFORMANCE_VAULT_TOKEN` | a token that may read, write, list and delete below the mount |
| `ESO_CONFORMANCE_VAULT_PATH` | mount of a version 2 engine; absent means `secret` |
"""

from __future__ import annotations

import os
from typing import Any, Final

KINDS: Final = ("Vault", "ClusterVault", "OpenBao", "ClusterOpenBao")


def fixture(server: str, token: str, path: str, **known: Any) -> dict[str, Any]:
    """Return the fixture for one engine; `known` describes existing values."""

    def of(kind: str) -> dict[str, Any]:
        namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
        auth = {"tokenSecretRef": {"name": "vault", "key": "token", **namespace}}
        return {
            "kind": kind,
            "spec": {"server": server, "path": path, "auth": auth},
            "credentials": {"/auth/tokenSecretRef": token},
            "property": "value",
            "invalid": [{"server": "not-a-url"}],
            **known,
        }

    return {"kinds": [*(of(kind) for kind in KINDS), _generator(server, token)]}


def _generator(server: str, token: str) -> dict[str, Any]:
    """Return a generator of tokens: every server supports them, and they need a clean-up."""
    provider = {"server": server, "auth": {"tokenSecretRef": {"name": "vault", "key": "token"}}}
    create = {"path": "auth/token/create", "method": "POST", "parameters": {"ttl": "5m"}, "resultType": "Auth"}
    return {
        "kind": "VaultDynamicSecret",
        "spec": {**create, "provider": provider},
        "credentials": {"/provider/auth/tokenSecretRef": token},
        "invalid": [{**create, "path": "a/../b", "provider": provider}],
    }


def _from_environment() -> dict[str, Any]:
    server = os.environ.get("ESO_CONFORMANCE_VAULT_ADDR", "")
    if not server:
        return {"kinds": []}
    token = os.environ.get("ESO_CONFORMANCE_VAULT_TOKEN", "")
    return fixture(server, token, os.environ.get("ESO_CONFORMANCE_VAULT_PATH", "secret"))


FIXTURE: Final = _from_environment()
