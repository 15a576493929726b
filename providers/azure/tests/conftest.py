from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_azure.provider import PROVIDER
from eso_provider_azure.testing.server import AzureServer
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory

_CHAIN = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST")


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A running server, to which the names of Microsoft lead. Tests use vaults of their own."""
    with AzureServer.started(tmp_path_factory.mktemp("azure")) as server, pytest.MonkeyPatch.context() as patched:
        for name, value in server.environment.items():
            patched.setenv(name, value)
        for name in _CHAIN:
            patched.delenv(name, raising=False)
        yield server


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    """The provider. Its way to the server is a proxy on this machine."""
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as client:
        yield client
