"""The provider in memory, and a server that stands in for Doppler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_doppler.provider import PROVIDER
from eso_provider_doppler.testing.server import DopplerServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock


@pytest.fixture
def doppler(monkeypatch: pytest.MonkeyPatch, clock: VirtualClock) -> Iterator[DopplerServer]:
    skew = clock.now().timestamp() - SystemClock().now().timestamp()
    with DopplerServer.started(skew=skew) as server:
        monkeypatch.setenv("DOPPLER_BASE_URL", server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(clock: VirtualClock) -> AsyncIterator[InMemory]:
    """The provider, whose administrator allows addresses on this machine."""
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as made:
        yield made
