"""Fixtures of the operator's tests: a cluster with our kinds, and the two gateways that most tests of calls use."""

from collections.abc import AsyncIterator

import pytest

from eso_testkit.operator.gateways import LoopbackGateway, WiredGateway, loopback, wired
from eso_testkit.operator.operators import Bench, bench_on
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi


@pytest.fixture
async def bench(api_server: ApiServer, api: RawApi, namespace: str) -> AsyncIterator[Bench]:
    """A cluster with our kinds, and a namespace for operator and provider."""
    async with bench_on(api_server, api, namespace) as bench:
        yield bench


@pytest.fixture
async def loop() -> AsyncIterator[LoopbackGateway]:
    made = loopback()
    yield made
    await made.gateway.close()


@pytest.fixture(name="wired")
async def wired_gateway() -> AsyncIterator[WiredGateway]:
    async with wired() as made:
        yield made
