from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from eso_provider_vault.provider import PROVIDER
from eso_provider_vault.store import VaultStore
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory, call_context
from eso_wire.values import Context

LOOPBACK_ALLOWED = AddressPolicy.parse(["loopback"])
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    """A running server, shared by all tests of a worker. Tests make mounts of their own."""
    with OpenBao.started(tmp_path_factory.mktemp("bao")) as server:
        yield server


@pytest.fixture(scope="session")
def tls_bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenBao]:
    """As `bao`, behind TLS with a certificate of its own authority."""
    with OpenBao.started(tmp_path_factory.mktemp("bao-tls"), tls=True) as server:
        yield server


@pytest.fixture
def mount(bao: OpenBao) -> str:
    """A fresh version 2 engine."""
    name = f"kv-{next(_NUMBERS)}"
    bao.enable(name)
    return name


@pytest.fixture
def mount_v1(bao: OpenBao) -> str:
    """A fresh version 1 engine."""
    name = f"kv1-{next(_NUMBERS)}"
    bao.enable(name, version=1)
    return name


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    """The provider, allowed to reach servers of this machine."""
    async with InMemory(PROVIDER, addresses=LOOPBACK_ALLOWED) as client:
        yield client


@pytest.fixture
def store(bao: OpenBao) -> Callable[..., Context]:
    """Calls to a `Vault` store on `bao`, with the root token unless `token` names another one."""

    def make(path: str | None = None, *, token: str | None = None, backend: Any = VaultStore, **spec: Any) -> Context:
        auth = {"tokenSecretRef": {"name": "vault", "key": "token"}}
        mounted = {} if path is None else {"path": path}
        credentials = {"/auth/tokenSecretRef": bao.root_token if token is None else token}
        return call_context(backend, {"server": bao.url, "auth": auth} | mounted | spec, credentials)

    return make


@pytest.fixture
async def two_providers() -> AsyncIterator[tuple[InMemory, InMemory]]:
    """Two processes, as two operators would have them."""
    async with (
        InMemory(PROVIDER, addresses=LOOPBACK_ALLOWED) as one,
        InMemory(PROVIDER, addresses=LOOPBACK_ALLOWED) as two,
    ):
        yield one, two
