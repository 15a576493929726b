"""Fixtures of the operator's live tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eso_operator.testing.operators import Bench, free_port, install_crds
from kuberun.testing.rawapi import RawApi
from kuberun.testing.servers import ApiServer

_INSTALLED: set[Path] = set()


@pytest.fixture
async def bench(api_server: ApiServer, api: RawApi, namespace: str) -> AsyncIterator[Bench]:
    """A cluster with our kinds, and a namespace for operator and provider."""
    if api_server.kubeconfig not in _INSTALLED:
        await install_crds(api_server.kubeconfig)
        _INSTALLED.add(api_server.kubeconfig)
    bench = Bench(api, api_server.kubeconfig, namespace, free_port())
    yield bench
    if bench.host is not None:
        await bench.host.stop()
