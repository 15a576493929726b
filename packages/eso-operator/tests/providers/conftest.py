"""The two gateways most tests of calls use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eso_operator.testing.gateways import LoopbackGateway, WiredGateway, loopback, wired


@pytest.fixture
async def loop() -> AsyncIterator[LoopbackGateway]:
    made = loopback()
    yield made
    await made.gateway.close()


@pytest.fixture(name="wired")
async def wired_gateway() -> AsyncIterator[WiredGateway]:
    async with wired() as made:
        yield made
