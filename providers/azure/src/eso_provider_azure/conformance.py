"""The fixtures of this provider for `eso conformance`, found through the entry point group `eso.conformance`.

The suite needs a vault. Name it in the environment:

| variable | meaning |
|---|---|
| `ESO_CONFORMANCE_AZURE_VAULT_URL` | the vault to use; without it, no kind has a fixture |
| `ESO_CONFORMANCE_AZURE_TENANT_ID` | tenant of the service principal |
| `ESO_CONFORMANCE_AZURE_CLIENT_ID` | a service principal with the role Key Vault Secrets Officer |
| `ESO_CONFORMANCE_AZURE_CLIENT_SECRET` | |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

STORES: Final = ("KeyVault", "ClusterKeyVault")


@dataclass(frozen=True, slots=True)
class Principal:
    """A service principal."""

    tenant: str
    client: str
    secret: str

    def __repr__(self) -> str:
        return f"<principal {self.client}>"


def fixture(vault_url: str, principal: Principal, known: Mapping[str, Any], registry: str = "") -> dict[str, Any]:
    """Return the fixture for one vault; `known` describes existing values. With a registry, also for its logins."""
    kinds = [_store(kind, vault_url, principal) | dict(known) for kind in STORES]
    if registry:
        kinds.append(_generator(registry, principal))
    return {"kinds": kinds}


def _store(kind: str, vault_url: str, principal: Principal) -> dict[str, Any]:
    namespace = {"namespace": "conformance"} if kind.startswith("Cluster") else {}
    references = {name: {"name": "azure", "key": name, **namespace} for name in ("clientId", "clientSecret")}
    return {
        "kind": kind,
        "spec": {"vaultUrl": vault_url, "tenantId": principal.tenant, "authSecretRef": references},
        "credentials": {
            "/authSecretRef/clientId": principal.client,
            "/authSecretRef/clientSecret": principal.secret,
        },
        "invalid": [{"vaultUrl": "no URL"}],
        "property": "value",
        "writable": "conformance-",
        "absent": "conformance-no-such-key",
    }


def _generator(registry: str, principal: Principal) -> dict[str, Any]:
    pointer = "/auth/servicePrincipal/secretRef"
    references = {name: {"name": "azure", "key": name} for name in ("clientId", "clientSecret")}
    return {
        "kind": "ACRAccessToken",
        "spec": {
            "registry": registry,
            "tenantId": principal.tenant,
            "auth": {"servicePrincipal": {"secretRef": references}},
        },
        "credentials": {f"{pointer}/clientId": principal.client, f"{pointer}/clientSecret": principal.secret},
        "invalid": [{"registry": "", "auth": {}}],
    }


def _from_environment() -> dict[str, Any]:
    url = os.environ.get("ESO_CONFORMANCE_AZURE_VAULT_URL", "")
    if not url:
        return {"kinds": []}
    names = ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")
    tenant, client, secret = (os.environ.get(f"ESO_CONFORMANCE_AZURE_{name}", "") for name in names)
    return fixture(url, Principal(tenant, client, secret), {})


FIXTURE: Final = _from_environment()
