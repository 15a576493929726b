from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_github.provider import PROVIDER
from eso_provider_github.testing.server import API, GitHubServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from kubebase.testing.clock import VirtualClock


@pytest.fixture(scope="session")
def server() -> Iterator[GitHubServer]:
    """The server of a worker."""
    with GitHubServer.started(contract=API) as running:
        yield running


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def github(server: GitHubServer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    """The server on the clock of the test, without what earlier tests made; it and the provider keep to the API."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    server.reset(clock)
    yield server
    assert server.violations == []


@pytest.fixture
async def provider(clock: VirtualClock) -> AsyncIterator[InMemory]:
    """The provider with an administrator who allows servers on this machine."""
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as running:
        yield running
