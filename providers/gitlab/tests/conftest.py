from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_gitlab.provider import PROVIDER
from eso_provider_gitlab.testing.server import GitLabServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from kubebase.testing.clock import VirtualClock


@pytest.fixture(scope="session")
def server() -> Iterator[GitLabServer]:
    """The server of a worker."""
    with GitLabServer.started() as running:
        yield running


@pytest.fixture
def gitlab(server: GitLabServer, monkeypatch: pytest.MonkeyPatch) -> GitLabServer:
    """The server, without what earlier tests made; it has one empty project."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    server.reset()
    server.project("shop/app")
    return server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(clock: VirtualClock) -> AsyncIterator[InMemory]:
    """The provider with an administrator who allows servers on this machine."""
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as running:
        yield running
