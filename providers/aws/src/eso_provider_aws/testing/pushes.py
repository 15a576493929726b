"""Pushes and deletions as an operator makes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_sdk.pushmetadata import API_VERSION, KIND
from eso_sdk.testing import InMemory
from eso_wire.errors import ProviderError
from eso_wire.values import Context, DeleteBatch, DeleteItem, PushBatch, PushItem, PushOutcome, PushResult, RemoteRef

OWNER: Final = "external-secrets"


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


async def push(provider: InMemory, call: Context, *items: PushItem, once: str = "") -> list[PushResult]:
    """Push several items in one call; `once` is its idempotency key."""
    return list(await provider.push(call, PushBatch(items, idempotency_key=once or uuid.uuid4().hex)))


async def outcome(provider: InMemory, call: Context, one: PushItem, **more: Any) -> PushOutcome:
    """Return the outcome of one item that must not fail."""
    (result,) = await push(provider, call, one, **more)
    assert not isinstance(result.outcome, ProviderError), result.outcome.message  # noqa: S101 - for tests
    return result.outcome


async def refusal(provider: InMemory, call: Context, one: PushItem) -> ProviderError:
    """Return the error of one item that must fail."""
    (result,) = await push(provider, call, one)
    assert isinstance(result.outcome, ProviderError), "it was written"  # noqa: S101 - for tests
    return result.outcome


async def delete(provider: InMemory, call: Context, key: str, *properties: str, owner: str = OWNER) -> list[bool]:
    """Delete properties, or the whole key; says of each whether it was there."""
    items = tuple(DeleteItem(name, RemoteRef(key, property=name), owner_token=owner) for name in properties or ("",))
    results = await provider.delete(call, DeleteBatch(items, idempotency_key=uuid.uuid4().hex))
    for result in results:
        assert result.error is None, result.error.message  # noqa: S101 - for tests
    return [result.existed for result in results]
