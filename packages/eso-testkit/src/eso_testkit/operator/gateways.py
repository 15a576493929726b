"""Gateways for tests: over a loop-back transport in virtual time, or over real sockets with mutual TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from eso_operator.providers.channels import Transport
from eso_operator.providers.gateway import CallHooks, Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import RuntimeSettings
from eso_testkit.operator.providerhost import GivenCertificates, ProviderHost, TestAuthority, hosted
from eso_testkit.operator.scriptedprovider import LoopbackTransport, ScriptedProvider
from eso_wire.errors import ProviderError
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock


async def no_probe(*_: object, **__: object) -> None:
    """Find no cause of a failure; for transports without an address."""


@dataclass
class LoopbackGateway:
    """A gateway without sockets, and everything a test wants to touch. Chance always draws the longest pause."""

    clock: VirtualClock
    provider: ScriptedProvider
    settings: RuntimeSettings = field(default_factory=RuntimeSettings)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    down: ProviderError | None = None
    """While set, the provider is not reached."""
    transports: list[LoopbackTransport] = field(default_factory=list)
    through: Callable[[Transport], Transport] = lambda plain: plain
    """Intercepts the calls."""

    def __post_init__(self) -> None:
        self.materials = GivenCertificates(TestAuthority(self.clock.now()).client())
        self.metrics = ProviderMetrics(self.registry)
        self.gateway = Gateway(
            self.materials,
            self.clock,
            settings=self.settings,
            metrics=self.metrics,
            hooks=CallHooks(dial=lambda _endpoint, _material: self._dialled(), probe=no_probe, draw=lambda: 0.0),
        )

    def _dialled(self) -> Transport:
        self.transports.append(LoopbackTransport(self.provider, lambda: self.down))
        return self.through(self.transports[-1])


def loopback(settings: RuntimeSettings | None = None) -> LoopbackGateway:
    clock = VirtualClock()
    provider = ScriptedProvider(clock, data={"a": b"value-of-a", "b": b"value-of-b"})
    return LoopbackGateway(clock, provider, settings or RuntimeSettings())


@dataclass
class WiredGateway:
    """A gateway over mutual TLS to a real server in this process."""

    authority: TestAuthority
    host: ProviderHost
    provider: ScriptedProvider
    materials: GivenCertificates
    gateway: Gateway
    registry: CollectorRegistry


@asynccontextmanager
async def wired(settings: RuntimeSettings | None = None) -> AsyncIterator[WiredGateway]:
    clock = SystemClock()
    authority = TestAuthority(clock.now())
    provider = ScriptedProvider(clock, data={"a": b"value-of-a", "b": b"value-of-b"})
    registry = CollectorRegistry()
    materials = GivenCertificates(authority.client())
    async with hosted(provider, authority.server()) as host:
        gateway = Gateway(materials, clock, settings=settings or RuntimeSettings(), metrics=ProviderMetrics(registry))
        try:
            yield WiredGateway(authority, host, provider, materials, gateway, registry)
        finally:
            await gateway.close()
