"""A pytest plugin that provides an API server: `--apiserver=localkube` (the default) or `--apiserver=kube`.

    api_server   one for the whole session (one for each xdist worker)
    namespace    a fresh one for each test, deleted afterwards
    api          a raw HTTP client with an administrator's token

A test that uses them carries the marker `live`; `make test-cluster` runs those on a real kube-apiserver.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from kubebase.testing.servers import ApiServer, ServerFailedError
from kuberun.testing.kubeapiserver import KubeApiserver, find_assets
from kuberun.testing.localserver import LocalServer
from kuberun.testing.rawapi import RawApi, raw_api


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("kubernetes").addoption(
        "--apiserver",
        choices=("localkube", "kube"),
        default="localkube",
        help="the API server for tests marked live: the embedded one, or a real kube-apiserver with etcd",
    )


@pytest.fixture(scope="session")
def api_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("apiserver")
    server: ApiServer
    try:
        if request.config.getoption("--apiserver") == "kube":
            server = KubeApiserver(folder, find_assets())
        else:
            server = LocalServer(folder)
    except ServerFailedError as failure:
        pytest.fail(str(failure), pytrace=False)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[RawApi]:
    async with raw_api(api_server.url, api_server.token, str(api_server.ca_file)) as client:
        yield client


@pytest.fixture
async def namespace(api: RawApi) -> AsyncIterator[str]:
    name = f"test-{secrets.token_hex(5)}"
    created = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    if created.status != 201:
        pytest.fail(f"cannot create namespace {name}: {created.body}", pytrace=False)
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")
