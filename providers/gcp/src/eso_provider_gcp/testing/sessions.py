"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_provider_gcp.store import SecretManagerStore
from eso_provider_gcp.testing.google import PROJECT, Google
from eso_sdk.backend import Backend
from eso_sdk.pushmetadata import API_VERSION, KIND
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    GetItem,
    PushBatch,
    PushItem,
    PushResult,
    RemoteRef,
    Token,
)

OWNER: Final = "external-secrets"
AUTH: Final = {"secretRef": {"secretAccessKeySecretRef": {"name": "gcp", "key": "key.json"}}}
KEY: Final = "/auth/secretRef/secretAccessKeySecretRef"


def context(
    google: Google, backend: type[Backend[Any]] = SecretManagerStore, *, namespace: str = "team", **spec: Any
) -> Context:
    """Return the context of a call to a store or generator that has a service account key."""
    config = {"projectID": PROJECT, "auth": AUTH} | spec
    return call_context(backend, config, {KEY: google.key()}, namespace=namespace)


def account_token(text: str, *, audiences: tuple[str, ...] = (), annotations: Mapping[str, str] | None = None) -> Token:
    """Return a token of a Kubernetes service account."""
    return Token(
        SecretBytes(text.encode()),
        audiences=audiences,
        namespace="team",
        name="app",
        uid="uid-of-app",
        annotations=annotations or {},
    )


async def read(provider: InMemory, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is a key."""
    items = [ref if isinstance(ref, RemoteRef) else RemoteRef(ref) for ref in refs]
    results = await provider.get(call, tuple(GetItem(str(number), ref) for number, ref in enumerate(items)))
    return [_plain(result.outcome) for result in results]


async def failure(provider: InMemory, call: Context, ref: RemoteRef | str) -> ProviderError:
    """Return the error of a read that must fail, of the item or of the whole call."""
    try:
        (found,) = await read(provider, call, ref)
    except ProviderError as failed:
        return failed
    assert isinstance(found, ProviderError), "it was read"  # noqa: S101 - for tests
    return found


def _plain(outcome: Any) -> bytes | ProviderError:
    return outcome if isinstance(outcome, ProviderError) else outcome.reveal()


def item(key: str, value: bytes | Mapping[str, bytes], property_: str = "", **changes: Any) -> PushItem:
    """Return a push of one value or of a whole Secret."""
    payload: Any
    if isinstance(value, bytes):
        payload = SecretBytes(value)
    else:
        payload = {name: SecretBytes(each) for name, each in value.items()}
    changes = {"owner_token": OWNER} | changes
    return PushItem(f"{key}/{property_}", RemoteRef(key, property=property_), payload, **changes)


def envelope(**spec: Any) -> dict[str, Any]:
    """Return the metadata of an entry."""
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": spec}


async def push(provider: InMemory, call: Context, *items: PushItem) -> list[PushResult]:
    """Push several items in one call."""
    return list(await provider.push(call, PushBatch(items, idempotency_key=uuid.uuid4().hex)))


async def delete(provider: InMemory, call: Context, key: str, *properties: str) -> list[bool]:
    """Delete properties, or the whole key; return for each whether it existed."""
    items = tuple(DeleteItem(name, RemoteRef(key, property=name), owner_token=OWNER) for name in properties or ("",))
    results = await provider.delete(call, DeleteBatch(items, idempotency_key=uuid.uuid4().hex))
    for result in results:
        assert result.error is None, result.error.message  # noqa: S101 - for tests
    return [result.existed for result in results]
