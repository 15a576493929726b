"""Reads, pushes and deletions for tests of stores: plain values in, plain values or `ProviderError`s out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eso_api.values import SecretBytes
from eso_sdk.testing.client import Client
from eso_wire.errors import ProviderError
from eso_wire.values import Context, DeleteBatch, DeleteItem, FindQuery, GetItem, PushBatch, PushItem, RemoteRef, Shape

OWNER = "external-secrets"


async def read(provider: Client, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is a key."""
    items = [GetItem(str(number), ref_of(ref)) for number, ref in enumerate(refs)]
    return [_plain(result.outcome) for result in await provider.get(call, items)]


async def read_map(provider: Client, call: Context, ref: RemoteRef | str) -> dict[str, bytes] | ProviderError:
    (result,) = await provider.get(call, [GetItem("0", ref_of(ref), Shape.MAP)])
    return _plain(result.outcome)  # type: ignore[no-any-return] # the outcome of a map


async def found(provider: Client, call: Context, query: FindQuery) -> dict[str, bytes]:
    """Return the values of all matching keys."""
    return {each.key: each.value.reveal() for each in await provider.find(call, query)}


async def exists(provider: Client, call: Context, ref: RemoteRef | str) -> bool | ProviderError:
    (result,) = await provider.check(call, [GetItem("0", ref_of(ref))])
    return result.error or result.exists


async def push(provider: Client, call: Context, *items: tuple[str, str, Any], **more: Any) -> list[Any]:
    """Push items, each a key, a property and a value (a mapping is a whole Secret); return outcomes and errors."""
    batch = [
        PushItem(str(number), RemoteRef(key, property=name), _payload(value), owner_token=OWNER, **more)
        for number, (key, name, value) in enumerate(items)
    ]
    return [result.outcome for result in await provider.push(call, PushBatch(tuple(batch)))]


async def delete(provider: Client, call: Context, *items: tuple[str, str]) -> list[bool | ProviderError]:
    """Delete items, each a key and a property; return whether they existed, or errors."""
    batch = [
        DeleteItem(str(number), RemoteRef(key, property=name), owner_token=OWNER)
        for number, (key, name) in enumerate(items)
    ]
    return [result.error or result.existed for result in await provider.delete(call, DeleteBatch(tuple(batch)))]


def ref_of(ref: RemoteRef | str) -> RemoteRef:
    return RemoteRef(ref) if isinstance(ref, str) else ref


def _payload(value: Any) -> Any:
    match value:
        case str():
            return SecretBytes(value.encode())
        case bytes():
            return SecretBytes(value)
        case _:
            return {name: SecretBytes(text.encode()) for name, text in value.items()}


def _plain(outcome: Any) -> Any:
    match outcome:
        case SecretBytes():
            return outcome.reveal()
        case Mapping():
            return {name: value.reveal() for name, value in outcome.items()}
        case _:
            return outcome
