"""Run the conformance suite on a provider of this process. Needs the distribution `eso-conformance` and pytest.

test_conformance = conformance_tests("read", "write", "tls")

@pytest.fixture
async def conformance_target() -> AsyncIterator[Target]:
    async with conformance_server(PROVIDER) as target:
        yield target
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from eso_conformance.fixture import Fixture, from_plain
from eso_conformance.plugin import conformance_tests
from eso_conformance.subject import Identity, Target
from eso_sdk.provider import Provider
from eso_sdk.testing.server import CLIENT_ID, ProviderServer

__all__ = ["Fixture", "Target", "conformance_server", "conformance_tests", "from_plain"]


@asynccontextmanager
async def conformance_server(provider: Provider, **options: Any) -> AsyncIterator[Target]:
    """Serve a provider behind a real socket; `options` are those of `ServeOptions`."""
    async with ProviderServer(provider, **options) as server:
        client = server.authority.leaf(CLIENT_ID)
        identity = Identity(client.ca, client.certificate, client.key.reveal())
        yield Target(server.address, identity, authority=(server.authority.pem, server.authority.key_pem))
