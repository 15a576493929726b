"""Calls to the kinds of this provider, as an operator makes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from eso_api.values import SecretBytes
from eso_provider_github.generator import GithubAccessTokenGenerator
from eso_provider_github.store import ActionsStore
from eso_provider_github.testing.server import APP, INSTALLATION, KEY, ORGANIZATION
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ProviderError
from eso_wire.values import (
    CheckResult,
    Context,
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    GetItem,
    PushBatch,
    PushItem,
    PushResult,
    RemoteRef,
)

REFERENCE: Final = {"name": "github", "key": "key.pem"}
POINTER: Final = "/auth/privateKey"
GENERATOR_POINTER: Final = "/auth/privateKey/secretRef"


def store(url: str, *, key: str = KEY, namespace: str = "team", **spec: Any) -> Context:
    """Return the context of a call to a store; without other fields, of the organization."""
    config = {
        "url": url,
        "appID": APP,
        "installationID": INSTALLATION,
        "organization": ORGANIZATION,
        "auth": {"privateKey": REFERENCE},
    } | spec
    return call_context(ActionsStore, config, {POINTER: key}, namespace=namespace)


def generator(url: str, *, key: str = KEY, **spec: Any) -> Context:
    """Return the context of a call to a generator of tokens. `url` is that of the server."""
    config = {
        "url": f"{url}/api/v3",
        "appID": str(APP),
        "installID": str(INSTALLATION),
        "auth": {"privateKey": {"secretRef": REFERENCE}},
    } | spec
    return call_context(GithubAccessTokenGenerator, config, {GENERATOR_POINTER: key}, namespace="team")


async def push(
    provider: InMemory, call: Context, name: str, value: bytes | Mapping[str, bytes], **more: Any
) -> PushResult:
    """Push one value or a whole Secret; return the result, or raise its error."""
    payload: Any = (
        SecretBytes(value) if isinstance(value, bytes) else {key: SecretBytes(each) for key, each in value.items()}
    )
    item = PushItem("only", RemoteRef(name, **more), payload)
    (result,) = await provider.push(call, PushBatch((item,), idempotency_key=uuid.uuid4().hex))
    if isinstance(result.outcome, ProviderError):
        raise result.outcome
    return result


async def check(provider: InMemory, call: Context, name: str) -> CheckResult:
    """Check one name; return the result, or raise its error."""
    (result,) = await provider.check(call, [GetItem("only", RemoteRef(name))])
    if result.error is not None:
        raise result.error
    return result


async def delete(provider: InMemory, call: Context, name: str) -> DeleteResult:
    """Delete one secret; return the result, or raise its error."""
    items = (DeleteItem("only", RemoteRef(name)),)
    (result,) = await provider.delete(call, DeleteBatch(items, idempotency_key=uuid.uuid4().hex))
    if result.error is not None:
        raise result.error
    return result
