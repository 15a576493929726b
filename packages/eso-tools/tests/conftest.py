"""A cluster with our kinds, and a namespace for operator and provider."""

from collections.abc import AsyncIterator

import pytest

from eso_testkit.operator.operators import Bench, bench_on
from kubebase.testing.servers import ApiServer
from kuberun.testing.rawapi import RawApi


@pytest.fixture
async def bench(api_server: ApiServer, api: RawApi, namespace: str) -> AsyncIterator[Bench]:
    async with bench_on(api_server, api, namespace) as bench:
        yield bench
