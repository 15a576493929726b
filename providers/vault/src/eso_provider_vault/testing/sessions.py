"""Opened stores without a provider process, for tests of what a session does before its first operation.

async with opened(spec, {"/auth/tokenSecretRef": "s.token"}) as store:
    assert (await read(store, "kv/data/app")).ok
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from eso_api.stores.vault import OpenBaoProvider, VaultProvider
from eso_api.values import SecretBytes
from eso_provider_vault.replies import Reply
from eso_provider_vault.store import KvStore, OpenBaoStore, VaultStore
from eso_sdk.addresses import LOOPBACK, AddressPolicy
from eso_sdk.backend import Backend, Opening
from eso_sdk.credentials import Credentials
from eso_sdk.metrics import ApiCallSeries
from eso_sdk.processidentity import STRICT, ProcessIdentityPolicy
from eso_wire.values import Credential, ObjectRef, Token
from kubebase.clock import Clock, SystemClock

CLOCK: Final = SystemClock()
"""Sessions of one process share its clock, and with it their tokens."""

TRUSTED: Final = ProcessIdentityPolicy.parse("namespaced", ["http://127.0.0.1"])
"""The policy of an administrator who lets stores of namespaces prove the provider's identity to this machine."""

Sent = Mapping[str, str | bytes | Token]
B = TypeVar("B", bound=Backend[Any])


class CallCounts(ApiCallSeries):
    """Counts calls by name, as the metric does."""

    def __init__(self) -> None:
        super().__init__("vault", CollectorRegistry())
        self.calls: dict[str, int] = {}

    def count(self, call: str, status: str, seconds: float, *, api: str = "") -> None:
        del status, seconds, api
        self.calls[call] = self.calls.get(call, 0) + 1


def make(
    backend: type[B],
    config_type: type[msgspec.Struct],
    spec: Mapping[str, Any],
    credentials: Sent | None = None,
    *,
    clock: Clock | None = None,
    counts: CallCounts | None = None,
    process_identity: ProcessIdentityPolicy = STRICT,
) -> B:
    """Construct a session as the server does, without opening it."""
    config = msgspec.json.decode(msgspec.json.encode(spec), type=config_type)
    backend.check_config(config)
    sent = (Credential(pointer, _value(value)) for pointer, value in (credentials or {}).items())
    return backend(
        Opening(
            config,
            ObjectRef("external-secrets.io/v1", "SecretStore", "team", "store", uid="uid-1", generation=1),
            Credentials(config, sent),
            clock or CLOCK,
            counts or CallCounts(),
            AddressPolicy.parse((LOOPBACK,)),
            process_identity,
        )
    )


@asynccontextmanager
async def opened(
    spec: Mapping[str, Any],
    credentials: Sent | None = None,
    *,
    clock: Clock | None = None,
    counts: CallCounts | None = None,
    process_identity: ProcessIdentityPolicy = STRICT,
) -> AsyncIterator[VaultStore]:
    """Open a store of the vault block."""
    store = make(
        VaultStore,
        VaultProvider,
        spec,
        credentials,
        clock=clock,
        counts=counts,
        process_identity=process_identity,
    )
    async with _running(store):
        yield store


@asynccontextmanager
async def opened_openbao(spec: Mapping[str, Any], credentials: Sent | None = None) -> AsyncIterator[OpenBaoStore]:
    """Open a store of the openBao block."""
    store = make(OpenBaoStore, OpenBaoProvider, spec, credentials)
    async with _running(store):
        yield store


@asynccontextmanager
async def _running(store: KvStore[Any]) -> AsyncIterator[None]:
    try:
        await store.open()
        yield
    finally:
        await store.close()


async def read(store: KvStore[Any], path: str) -> Reply:
    """Read a path with the session's token."""
    return await store.api.send("GET", path, call="ReadSecretData")


def _value(value: str | bytes | Token) -> SecretBytes | Token:
    return value if isinstance(value, Token) else SecretBytes(value.encode() if isinstance(value, str) else value)
