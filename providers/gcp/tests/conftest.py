from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from eso_provider_gcp.provider import PROVIDER
from eso_provider_gcp.testing.sessions import Google
from eso_sdk.testing import InMemory

_CHAIN = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CONFIG")


@pytest.fixture(scope="session")
def servers() -> Iterator[Google]:
    """The servers of a worker. Tests use names of their own."""
    with Google.started() as google:
        yield google


@pytest.fixture
def google(servers: Google, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Google:
    """The servers, without what earlier tests set. The provider asks only them, and has no identity of its own."""
    servers.reset()
    for variable in _CHAIN:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in servers.environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("GCE_METADATA_IP", servers.environment["GCE_METADATA_HOST"])
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path_factory.getbasetemp()))
    return servers


@pytest.fixture
async def provider(google: Google) -> AsyncIterator[InMemory]:
    del google  # its environment must be there first
    async with InMemory(PROVIDER) as client:
        yield client


@pytest.fixture
def name() -> str:
    """An id for a secret of this test."""
    return f"s-{uuid.uuid4().hex}"
