from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eso_provider_bitwarden.provider import PROVIDER
from eso_provider_bitwarden.testing.server import CompanionServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from kubebase.testing.clock import VirtualClock


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are on this machine, whatever the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def server() -> Iterator[CompanionServer]:
    with CompanionServer.started() as running:
        yield running


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[CompanionServer]:
    with CompanionServer.started(tls_folder=tmp_path) as running:
        yield running


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(clock: VirtualClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as client:
        yield client
