"""Fixtures of the operator's tests: a cluster with our kinds, and the two gateways that most tests of calls use."""

from collections.abc import AsyncIterator

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_testkit.operator.gateways import LoopbackGateway, WiredGateway, loopback, wired
from eso_testkit.operator.operators import Bench, free_port, install_crds
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi


@pytest.fixture
async def bench(api_server: ApiServer, api: RawApi, namespace: str) -> AsyncIterator[Bench]:
    """A cluster with our kinds, and a namespace for operator and provider."""
    await install_crds(api_server.kubeconfig)
    bench = Bench(api, api_server.kubeconfig, namespace, free_port())
    yield bench
    if bench.host is not None:
        await bench.host.stop()
    # A namespace ends slowly on a real API server: the operator of the next test must find no work in it.
    for kind in (EXTERNAL_SECRET, PUSH_SECRET):
        await api.delete(kind.resource().path(namespace))


@pytest.fixture
async def loop() -> AsyncIterator[LoopbackGateway]:
    made = loopback()
    yield made
    await made.gateway.close()


@pytest.fixture(name="wired")
async def wired_gateway() -> AsyncIterator[WiredGateway]:
    async with wired() as made:
        yield made
