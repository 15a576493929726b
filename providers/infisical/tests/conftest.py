from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eso_provider_infisical.provider import PROVIDER
from eso_provider_infisical.testing.server import InfisicalServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.processidentity import ProcessIdentityPolicy
from eso_sdk.testing import InMemory
from kubebase.testing.clock import VirtualClock


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are on this machine, whatever the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(params=["v4", "v3"])
def server(request: pytest.FixtureRequest) -> Iterator[InfisicalServer]:
    """A server with the API v4, and an older one without."""
    with InfisicalServer.started(has_v4=request.param == "v4") as running:
        yield running


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[InfisicalServer]:
    with InfisicalServer.started(tls_folder=tmp_path) as running:
        yield running


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[InMemory]:
    """The provider, whose administrator allows servers on this machine, also for proofs of its identity."""
    identity = ProcessIdentityPolicy.parse("namespaced", ["http://127.0.0.1"], [str(tmp_path / "key.json")])
    addresses = AddressPolicy.parse(["loopback"])
    async with InMemory(PROVIDER, clock, addresses=addresses, process_identity=identity) as client:
        yield client
