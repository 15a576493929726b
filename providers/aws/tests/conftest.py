from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from eso_provider_aws.clients import VARIABLES
from eso_provider_aws.provider import PROVIDER
from eso_provider_aws.testing.front import Front
from eso_provider_aws.testing.sessions import admin, ministack
from eso_sdk.testing import InMemory
from eso_sdk.testing.moto import Moto

_CHAIN = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN")


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """A running server that verifies nothing, shared by all tests of a worker. Tests use names of their own."""
    with Moto.started(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def parameters_ready(moto: Moto) -> None:
    """Let moto load Parameter Store. On a busy machine that takes longer than a call may."""
    admin("ssm", moto.url).describe_parameters(MaxResults=1)


@pytest.fixture(scope="session")
def ministack_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ministack(tmp_path_factory.mktemp("ministack")) as url:
        yield url


@pytest.fixture(params=["moto", "ministack"])
def server(request: pytest.FixtureRequest) -> str:
    """Both servers, one after the other, for what both can do."""
    if request.param == "moto":
        return str(request.getfixturevalue("moto").url)
    return str(request.getfixturevalue("ministack_url"))


@pytest.fixture
async def front(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    """All calls of the provider go through here to moto."""
    async with Front.before(moto.url) as opened:
        point_at(monkeypatch, opened.url)
        yield opened


@pytest.fixture
async def either(server: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    """As `front`, before both servers."""
    async with Front.before(server) as opened:
        point_at(monkeypatch, opened.url)
        yield opened


@pytest.fixture
async def provider() -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER) as client:
        yield client


@pytest.fixture
def secrets_manager(moto: Moto) -> Any:
    """The vendor's client, with which tests prepare and inspect data."""
    return admin("secretsmanager", moto.url)


@pytest.fixture
def ssm(moto: Moto) -> Any:
    """The vendor's client of Parameter Store."""
    return admin("ssm", moto.url)


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let the provider call every service at one address, and have no identity of its own."""
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, url)
    for variable in _CHAIN:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
