"""The provider in memory, and a server that stands in for Akeyless."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_akeyless.provider import PROVIDER
from eso_provider_akeyless.testing.contract import api
from eso_provider_akeyless.testing.server import AkeylessServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing import InMemory
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, clock: VirtualClock) -> Iterator[AkeylessServer]:
    skew = clock.now().timestamp() - SystemClock().now().timestamp()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with AkeylessServer.started(skew=skew, contract=api("/v2")) as running:
        yield running
        assert running.violations == []


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(clock: VirtualClock) -> AsyncIterator[InMemory]:
    """The provider, whose administrator allows addresses on this machine, and proofs of its identity to them."""
    identity = ProcessIdentityPolicy.parse("namespaced", ["http://127.0.0.1"])
    addresses = AddressPolicy.parse(["loopback"])
    async with InMemory(PROVIDER, clock, addresses=addresses, process_identity=identity) as made:
        yield made
