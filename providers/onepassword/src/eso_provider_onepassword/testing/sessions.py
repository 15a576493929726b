"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from eso_api.values import SecretBytes
from eso_provider_onepassword.connect import ConnectStore
from eso_provider_onepassword.sdk import SDKStore
from eso_provider_onepassword.testing.connect import TOKEN, ConnectServer
from eso_provider_onepassword.testing.core import TOKEN as ACCOUNT_TOKEN
from eso_sdk.push import API_VERSION, KIND
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    GetItem,
    PushBatch,
    PushItem,
    PushOutcome,
    RemoteRef,
    Shape,
)
from kubebase.testing.clock import VirtualClock

T = TypeVar("T")

CONNECT_POINTER: Final = "/auth/secretRef/connectTokenSecretRef"
SDK_POINTER: Final = "/auth/serviceAccountSecretRef"
REFERENCE: Final = {"name": "onepassword", "key": "token"}


def connect(server: ConnectServer, *vaults: str, token: str = TOKEN, namespace: str = "team", **spec: Any) -> Context:
    """Return the context of a call to a Connect store with these vaults, searched in this order."""
    auth = {"secretRef": {"connectTokenSecretRef": REFERENCE}}
    numbered = {name: number for number, name in enumerate(vaults or ("team",), 1)}
    config = {"connectHost": server.url, "vaults": numbered, "auth": auth} | spec
    return call_context(ConnectStore, config, {CONNECT_POINTER: token}, namespace=namespace)


def sdk(*, token: str = ACCOUNT_TOKEN, namespace: str = "team", **spec: Any) -> Context:
    """Return the context of a call to a store with a service account."""
    vault = {} if "environment" in spec else {"vault": "team"}
    config = {"auth": {"serviceAccountSecretRef": REFERENCE}} | vault | spec
    return call_context(SDKStore, config, {SDK_POINTER: token}, namespace=namespace)


async def read(provider: InMemory, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is `KEY` or `KEY#PROPERTY`."""
    items = tuple(GetItem(str(number), ref_of(ref)) for number, ref in enumerate(refs))
    outcomes: list[Any] = [result.outcome for result in await provider.get(call, items)]
    return [each if isinstance(each, ProviderError) else each.reveal() for each in outcomes]


async def read_map(provider: InMemory, call: Context, ref: RemoteRef | str) -> dict[str, bytes] | ProviderError:
    """Return all parts of an item."""
    (result,) = await provider.get(call, (GetItem("only", ref_of(ref), Shape.MAP),))
    outcome: Any = result.outcome
    if isinstance(outcome, ProviderError):
        return outcome
    return {name: raw.reveal() for name, raw in outcome.items()}


async def failure(provider: InMemory, call: Context, ref: RemoteRef | str) -> ProviderError:
    """Return the error of a read that must fail, of the item or of the whole call."""
    try:
        (found,) = await read(provider, call, ref)
    except ProviderError as failed:
        return failed
    assert isinstance(found, ProviderError), "it was read"  # noqa: S101 - for tests
    return found


async def find(provider: InMemory, call: Context, **query: Any) -> dict[str, bytes]:
    """Return the keys and values that a query finds."""
    found = await provider.find(call, FindQuery(**query))
    return {each.key: each.value.reveal() for each in found}


def item(key: str, value: bytes | Mapping[str, bytes], property_: str = "", **changes: Any) -> PushItem:
    """Return a push of one value or of a whole Secret."""
    payload: Any = SecretBytes(value) if isinstance(value, bytes) else {k: SecretBytes(v) for k, v in value.items()}
    return PushItem(f"{key}/{property_}", RemoteRef(key, property=property_), payload, **changes)


def envelope(**spec: Any) -> dict[str, Any]:
    """Return the metadata of an entry."""
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": spec}


async def push(provider: InMemory, call: Context, *items: PushItem) -> list[PushOutcome | ProviderError]:
    """Push several items in one call."""
    results = await provider.push(call, PushBatch(items, idempotency_key=uuid.uuid4().hex))
    return [result.outcome for result in results]


async def delete(
    provider: InMemory, call: Context, key: str, *properties: str, metadata: Mapping[str, Any] | None = None
) -> list[bool]:
    """Delete properties, or the default one; return for each whether it existed."""
    items = tuple(
        DeleteItem(name, RemoteRef(key, property=name), provider_metadata=metadata) for name in properties or ("",)
    )
    results = await provider.delete(call, DeleteBatch(items, idempotency_key=uuid.uuid4().hex))
    for result in results:
        assert result.error is None, result.error.message  # noqa: S101 - for tests
    return [result.existed for result in results]


async def pumped(clock: VirtualClock, work: Coroutine[Any, Any, T]) -> T:
    """Let virtual time pass slowly beside real sockets, until the work is done."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        await clock.advance(0.05)
        await asyncio.wait((task,), timeout=0.01)
    return await task


def ref_of(ref: RemoteRef | str) -> RemoteRef:
    if isinstance(ref, RemoteRef):
        return ref
    key, _, name = ref.partition("#")
    return RemoteRef(key, property=name)
