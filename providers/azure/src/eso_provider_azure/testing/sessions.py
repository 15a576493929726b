"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import jwt

from eso_api.values import SecretBytes
from eso_provider_azure.store import KeyVaultStore
from eso_provider_azure.testing.server import CLIENT, SECRET, TENANT
from eso_provider_azure.vault import MARK, OWNER
from eso_sdk.testing import call_context
from eso_wire.values import (
    Context,
    Token,
)
from kubebase.clock import SystemClock

PRINCIPAL: Final = {"clientId": {"name": "azure", "key": "id"}, "clientSecret": {"name": "azure", "key": "secret"}}
CREDENTIALS: Final = {"/authSecretRef/clientId": CLIENT, "/authSecretRef/clientSecret": SECRET}
OWNED: Final = {MARK: OWNER}


def store(
    vault: str = "kv-one",
    credentials: Mapping[str, Any] | None = None,
    *,
    namespace: str = "team",
    cluster_scoped: bool = False,
    **spec: Any,
) -> Context:
    """Return the context of a call to a store; without settings, it is a service principal with a secret."""
    config = {"vaultUrl": f"https://{vault}.vault.azure.net"} | spec
    if "authType" not in spec:
        config = {"tenantId": TENANT, "authSecretRef": PRINCIPAL} | config
    sent = CREDENTIALS if credentials is None else credentials
    return call_context(KeyVaultStore, config, sent, namespace=namespace, cluster_scoped=cluster_scoped)


def account_token(name: str = "reader", *, namespace: str = "team", **annotations: str) -> Token:
    """Return a token of a service account; annotations by `client_id` and `tenant_id`."""
    claims = {"sub": f"system:serviceaccount:{namespace}:{name}", "aud": ["api://AzureADTokenExchange"]}
    signed = jwt.encode(claims, "the key of a cluster, 32 bytes long", "HS256")
    named = {f"azure.workload.identity/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return Token(
        SecretBytes(signed.encode()),
        expires_at=SystemClock().now() + timedelta(hours=1),
        audiences=("api://AzureADTokenExchange",),
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        annotations=named,
    )
