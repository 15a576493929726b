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
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    GetItem,
    PushBatch,
    PushItem,
    RemoteRef,
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


async def read(provider: InMemory, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is a key."""
    items = [ref if isinstance(ref, RemoteRef) else RemoteRef(ref) for ref in refs]
    results = await provider.get(call, tuple(GetItem(str(number), ref) for number, ref in enumerate(items)))
    return [_plain(result.outcome) for result in results]


async def push(provider: InMemory, call: Context, *items: tuple[str, str, Any], **more: Any) -> list[Any]:
    """Push items, each a key, a property and a value; return outcomes and errors."""
    batch = [
        PushItem(str(number), RemoteRef(key, property=name), _payload(value), owner_token=OWNER, **more)
        for number, (key, name, value) in enumerate(items)
    ]
    results = await provider.push(call, PushBatch(tuple(batch)))
    return [result.outcome for result in results]


async def delete(provider: InMemory, call: Context, *items: tuple[str, str]) -> list[Any]:
    """Delete items, each a key and a property; return outcomes and errors."""
    batch = [
        DeleteItem(str(number), RemoteRef(key, property=name), owner_token=OWNER)
        for number, (key, name) in enumerate(items)
    ]
    results = await provider.delete(call, DeleteBatch(tuple(batch)))
    return [result.error or result.existed for result in results]


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


def _payload(value: Any) -> Any:
    match value:
        case str():
            return SecretBytes(value.encode())
        case bytes():
            return SecretBytes(value)
        case _:
            return {name: SecretBytes(text.encode()) for name, text in value.items()}


def _plain(outcome: Any) -> bytes | ProviderError:
    if isinstance(outcome, ProviderError):
        return outcome
    found: bytes = outcome.reveal()
    return found
