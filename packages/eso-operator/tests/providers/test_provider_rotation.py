"""Certificates change while calls are made: no call may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from eso_operator.providers.settings import PoolSettings, RuntimeSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy
from eso_testkit.operator.boundstores import TLS, bound_store, endpoint, wanted
from eso_testkit.operator.gateways import WiredGateway, wired
from eso_testkit.operator.providerhost import TestAuthority, renewed
from eso_wire.errors import ProviderError
from eso_wire.options import SERVER_OPTIONS
from kubebase.clock import SystemClock

ONCE = CallPolicy(gated=False, max_retries=0)
"""So that a retry cannot hide a failed call."""
SHORT_LIVED = RuntimeSettings(pool=replace(PoolSettings(), max_age=0.05))
"""Every few calls make a new connection, so that both ends' certificates are checked again and again."""
CALLERS = 4


@dataclass
class Load:
    """Callers that read without pause."""

    wired: WiredGateway
    bound: BoundStore
    made: int = 0
    failures: list[str] = field(default_factory=list)
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def call(self) -> None:
        while True:
            try:
                (result,) = await self.wired.gateway.get(self.bound, wanted("a"))
                if isinstance(result.outcome, ProviderError):
                    self.failures.append(result.outcome.message)
            except ProviderError as error:
                self.failures.append(error.message)
                await asyncio.sleep(0)  # a refusal comes at once; let the others go on
            self.made += 1
            async with self.progress:
                self.progress.notify_all()

    async def more(self, calls: int = 40) -> None:
        """Go on until so many more calls were made."""
        goal = self.made + calls
        async with self.progress:
            await self.progress.wait_for(lambda: self.made >= goal)


@asynccontextmanager
async def under_load(gateway: WiredGateway) -> AsyncIterator[Load]:
    load = Load(gateway, bound_store(endpoint(gateway.host.target), policy=ONCE))
    callers = [asyncio.create_task(load.call()) for _ in range(CALLERS)]
    try:
        await load.more()
        yield load
        await load.more()
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


async def test_new_client_certificates_fail_no_call_and_use_a_new_channel(wired: WiredGateway) -> None:
    async with under_load(wired) as load:
        for _ in range(3):
            wired.materials.current = wired.authority.client()
            await load.more()

    assert load.failures == []
    assert wired.registry.get_sample_value("eso_provider_channels", {"state": "open"}) == 1


async def test_new_server_certificates_fail_no_call() -> None:
    async with wired(SHORT_LIVED) as gateway, under_load(gateway) as load:
        for _ in range(3):
            gateway.host.material = gateway.authority.server()
            await load.more()

    assert load.failures == []


async def test_a_new_authority_in_three_phases_fails_no_call() -> None:
    """Both are trusted, then both ends get new certificates, then the old authority is dropped."""
    async with wired(SHORT_LIVED) as gateway, under_load(gateway) as load:
        old, new = gateway.authority, TestAuthority(SystemClock().now())
        both = old.credential.certificate + new.credential.certificate

        gateway.host.material = renewed(gateway.host.material, trust=both)
        await load.more()
        gateway.materials.current = renewed(gateway.materials.current, trust=both)
        await load.more()
        gateway.host.material = new.server(both)
        await load.more()
        gateway.materials.current = new.client(both)
        await load.more()
        gateway.materials.current = renewed(gateway.materials.current, trust=new.credential.certificate)
        await load.more()
        gateway.host.material = renewed(gateway.host.material, trust=new.credential.certificate)
        await load.more()

    assert load.failures == []


async def test_a_phase_left_out_does_fail_calls() -> None:
    """The load test can see a failure at all."""
    async with wired(SHORT_LIVED) as gateway, under_load(gateway) as load:
        gateway.host.material = TestAuthority(SystemClock().now()).server()
        await load.more()

    assert load.failures


async def test_a_channel_that_is_too_old_is_replaced_without_a_failed_call() -> None:
    async with wired(SHORT_LIVED) as gateway, under_load(gateway) as load:
        await load.more(200)

    assert load.failures == []


async def test_calls_on_their_way_finish_on_the_old_channel(wired: WiredGateway) -> None:
    wired.provider.latency = 0.3
    bound = bound_store(endpoint(wired.host.target), policy=ONCE)
    slow = asyncio.create_task(wired.gateway.get(bound, wanted("a")))
    await wired.provider.until_called("GetSecrets")

    wired.provider.latency = 0.0
    wired.materials.current = wired.authority.client()
    quick = await wired.gateway.get(bound, wanted("b"))
    draining = wired.registry.get_sample_value("eso_provider_channels", {"state": "draining"})
    results = await slow

    assert not isinstance(quick[0].outcome, ProviderError)
    assert draining == 1
    assert not isinstance(results[0].outcome, ProviderError)
    assert wired.registry.get_sample_value("eso_provider_channels", {"state": "draining"}) == 0


async def test_a_server_that_ends_connections_by_age_fails_no_call(wired: WiredGateway) -> None:
    await wired.host.stop()
    wired.host.options = (
        *(option for option in SERVER_OPTIONS if option[0] != "grpc.max_connection_age_ms"),
        ("grpc.max_connection_age_ms", 500),  # much less, and on a busy machine one ends before it was ever used
    )
    await wired.host.start()

    async with under_load(wired) as load:
        await load.more(1000)

    assert load.failures == []


async def test_a_change_of_certificates_drains_idle_channels(wired: WiredGateway) -> None:
    await wired.gateway.get(bound_store(endpoint(wired.host.target)), wanted("a"))

    wired.gateway.renew(TLS, wired.authority.client().fingerprint)

    assert wired.registry.get_sample_value("eso_provider_channels", {"state": "open"}) == 0
