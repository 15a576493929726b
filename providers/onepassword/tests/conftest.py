from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_onepassword.provider import PROVIDER
from eso_provider_onepassword.testing.connect import ConnectServer
from eso_provider_onepassword.testing.contract import API
from eso_provider_onepassword.testing.core import FakeAccount
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from kubebase.testing.clock import VirtualClock


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of tests are on this machine, whatever the environment names."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[ConnectServer]:
    """The server; it and the provider keep to the API."""
    with ConnectServer.started(contract=API) as running:
        yield running
        assert running.violations == []


@pytest.fixture
def account() -> Iterator[FakeAccount]:
    with FakeAccount().installed() as installed:
        yield installed


@pytest.fixture
def stocked(account: FakeAccount) -> FakeAccount:
    team = account.vault("team")
    team.put("login", {"username": "anna", "password": "first"}, tags=["blue", "prod"])
    team.put("sectioned", {"password": "inside"}, section="db", tags=["blue"])
    team.attach("certificate", {"tls.crt": b"\x00cert"})
    return account


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as client:
        yield client


@pytest.fixture
async def timed(clock: VirtualClock) -> AsyncIterator[InMemory]:
    """The provider with a clock that the test moves."""
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as client:
        yield client
