"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a vault. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_ONEPASSWORD_VAULT` | vault to use; without it, no kind has a fixture |
| `ESO_CONFORMANCE_ONEPASSWORD_CONNECT` | address of a Connect server |
| `ESO_CONFORMANCE_ONEPASSWORD_CONNECT_TOKEN` | token of the Connect server that may read and write |
| `ESO_CONFORMANCE_ONEPASSWORD_ACCOUNT_TOKEN` | token of a service account that may read and write |
"""

from __future__ import annotations

import os
from typing import Any, Final

CONNECT: Final = ("OnePassword", "ClusterOnePassword")
SDK: Final = ("OnePasswordSDK", "ClusterOnePasswordSDK")
_PREFIX: Final = "ESO_CONFORMANCE_ONEPASSWORD_"


def connect_kinds(address: str, token: str, vault: str, **known: Any) -> list[dict[str, Any]]:
    """Return the fixtures of the Connect kinds; `known` describes existing values."""

    def spec(reference: dict[str, str]) -> dict[str, Any]:
        auth = {"secretRef": {"connectTokenSecretRef": reference}}
        return {"connectHost": address, "vaults": {vault: 1}, "auth": auth}

    return [_kind(kind, spec, "/auth/secretRef/connectTokenSecretRef", token) | known for kind in CONNECT]


def sdk_kinds(token: str, vault: str, **known: Any) -> list[dict[str, Any]]:
    """Return the fixtures of the kinds with a service account; `known` describes existing values."""

    def spec(reference: dict[str, str]) -> dict[str, Any]:
        return {"vault": vault, "auth": {"serviceAccountSecretRef": reference}}

    return [_kind(kind, spec, "/auth/serviceAccountSecretRef", token) | known for kind in SDK]


def _kind(kind: str, spec: Any, pointer: str, token: str) -> dict[str, Any]:
    namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
    return {
        "kind": kind,
        "spec": spec({"name": "onepassword", "key": "token", **namespace}),
        "credentials": {pointer: token},
        "absent": "conformance-no-such-item",
        "writable": "conformance-",
        "invalid": [spec({"name": "onepassword", **namespace})],
        "ownership": False,
    }


def _from_environment() -> dict[str, Any]:
    vault, address, connect, account = (
        os.environ.get(_PREFIX + name, "") for name in ("VAULT", "CONNECT", "CONNECT_TOKEN", "ACCOUNT_TOKEN")
    )
    kinds = connect_kinds(address, connect, vault) if vault and address else []
    return {"kinds": kinds + (sdk_kinds(account, vault) if vault and account else [])}


FIXTURE: Final = _from_environment()
