"""Channels: shared, replaced, dropped."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from prometheus_client import CollectorRegistry

from eso_operator.providers.channels import ChannelPool
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import PoolSettings
from eso_operator.stores.resolved import Endpoint
from eso_testkit.operator.boundstores import endpoint
from eso_testkit.operator.providerhost import TestAuthority
from eso_testkit.operator.scriptedprovider import LoopbackTransport, ScriptedProvider
from eso_wire.tls import TlsMaterial
from kubebase.testing.clock import VirtualClock

CLOCK_START = VirtualClock().now()
AUTHORITY = TestAuthority(CLOCK_START)
MATERIAL = AUTHORITY.client()

SETTINGS = PoolSettings(max_age=100.0, age_jitter=0.5, idle_after=50.0, sweep_interval=10.0)


@dataclass
class Dialled:
    """A pool and everything it has opened."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    settings: PoolSettings = SETTINGS
    opened: list[LoopbackTransport] = field(default_factory=list)

    def __post_init__(self) -> None:
        metrics = ProviderMetrics(CollectorRegistry())
        self.pool = ChannelPool(self.dial, self.clock, settings=self.settings, metrics=metrics, draw=lambda: 0.0)

    def dial(self, _endpoint: Endpoint, _material: TlsMaterial) -> LoopbackTransport:
        self.opened.append(LoopbackTransport(ScriptedProvider(self.clock)))
        return self.opened[-1]

    async def use(self, at: Endpoint | None = None, material: TlsMaterial = MATERIAL) -> None:
        async with self.pool.lease(at or endpoint(), material):
            pass


@pytest.fixture
async def dialled() -> Dialled:
    return Dialled()


async def test_one_target_name_and_certificate_have_one_channel(dialled: Dialled) -> None:
    for _ in range(10):
        await dialled.use()

    assert len(dialled.opened) == 1


@pytest.mark.parametrize("change", ["target", "server name", "certificates"])
async def test_any_difference_makes_another_channel(dialled: Dialled, change: str) -> None:
    await dialled.use()
    at = endpoint()
    match change:
        case "target":
            await dialled.use(replace(at, uri="ipv4:127.0.0.1:2"))
        case "server name":
            await dialled.use(replace(at, server_name="other"))
        case "certificates":
            await dialled.use(material=AUTHORITY.client())

    assert len(dialled.opened) == 2


async def test_a_channel_ends_by_age_even_if_it_is_used_all_the_time(dialled: Dialled) -> None:
    for _ in range(30):
        await dialled.use()
        await dialled.clock.advance(10.0)

    assert [transport.closed for transport in dialled.opened] == [True, True, False]


async def test_an_idle_channel_is_closed_by_the_sweep(dialled: Dialled) -> None:
    sweeping = asyncio.create_task(dialled.pool.run())
    await dialled.use()

    await dialled.clock.advance(70.0)

    assert dialled.opened[0].closed
    assert len(dialled.pool) == 0
    sweeping.cancel()


async def test_a_retired_channel_closes_after_its_last_call(dialled: Dialled) -> None:
    async with dialled.pool.lease(endpoint(), MATERIAL) as lease:
        dialled.pool.retire(endpoint(), MATERIAL.fingerprint)
        await dialled.clock.settle()
        during = dialled.opened[0].closed
        draining = lease.draining.is_set()
    await dialled.clock.settle()

    assert (during, draining, dialled.opened[0].closed) == (False, True, True)


async def test_the_number_of_channels_is_bounded_and_idle_ones_go_first() -> None:
    dialled = Dialled(settings=PoolSettings(max_channels=2))
    busy, idle, third = (endpoint(f"ipv4:127.0.0.1:{port}") for port in (1, 2, 3))

    async with dialled.pool.lease(busy, MATERIAL):
        await dialled.use(idle)
        await dialled.use(third)
        await dialled.clock.settle()

    assert len(dialled.pool) == 2
    assert [transport.closed for transport in dialled.opened] == [False, True, False]


async def test_closing_the_pool_closes_channels_in_use_too(dialled: Dialled) -> None:
    async with dialled.pool.lease(endpoint(), MATERIAL):
        await dialled.pool.close()

        assert dialled.opened[0].closed
