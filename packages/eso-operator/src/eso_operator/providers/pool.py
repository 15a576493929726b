"""Channels to providers, kept and shared: one for each target, server name and set of certificates.

    lease -> ManagedChannel(open) --new certificates, too old, idle, too many--> draining --last call ends--> closed

New calls always go to an open channel; a draining one finishes what it carries, which deadlines bound. Certificates are
only checked when a connection is made, so every channel is replaced after a while even if nothing changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from eso_operator.providers.metrics import RuntimeMetrics
from eso_operator.providers.settings import PoolSettings
from eso_operator.providers.transport import Lease, Transport
from eso_operator.stores.target import Endpoint
from eso_wire.tls import TlsMaterial
from kuberun.backoff import Random, system_random
from kuberun.clock import Clock

Dial = Callable[[Endpoint, TlsMaterial], Transport]
"""How a transport is made; it connects when it is first used."""


class ChannelKey(NamedTuple):
    target: str
    server_name: str
    fingerprint: str


@dataclass(slots=True, eq=False)
class _Channel:
    key: ChannelKey
    transport: Transport
    owner: str
    expires_at: float
    used_at: float
    in_flight: int = 0
    draining: asyncio.Event = field(default_factory=asyncio.Event)


class ChannelPool:
    """All channels of the process."""

    def __init__(
        self,
        dial: Dial,
        clock: Clock,
        *,
        settings: PoolSettings,
        metrics: RuntimeMetrics,
        draw: Random = system_random,
    ) -> None:
        self._dial = dial
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._draw = draw
        self._open: dict[ChannelKey, _Channel] = {}
        self._draining: set[_Channel] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def draining(self) -> int:
        return len(self._draining)

    @asynccontextmanager
    async def lease(self, endpoint: Endpoint, material: TlsMaterial, owner: str = "") -> AsyncIterator[Lease]:
        """A transport for one call. The newest certificates of an endpoint are the ones asked for last.

        `owner` is the namespace on whose account the channel is kept open.
        """
        channel = self._channel(endpoint, material, owner)
        channel.in_flight += 1
        try:
            yield Lease(channel.transport, channel.draining)
        finally:
            channel.in_flight -= 1
            channel.used_at = self._clock.monotonic()
            self._close_if_drained(channel)

    async def run(self) -> None:
        """Replace and drop channels that nobody asks for. Calls do the same for those they need."""
        while True:
            await self._clock.sleep(self._settings.sweep_interval)
            self.sweep()

    def sweep(self) -> None:
        now = self._clock.monotonic()
        for channel in list(self._open.values()):
            idle = channel.in_flight == 0 and now - channel.used_at >= self._settings.idle_after
            if idle or now >= channel.expires_at:
                self._retire(channel)

    async def close(self) -> None:
        """End everything, calls on their way included."""
        for channel in list(self._open.values()):
            self._retire(channel)
        for channel in list(self._draining):
            self._close(channel)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def _channel(self, endpoint: Endpoint, material: TlsMaterial, owner: str) -> _Channel:
        key = ChannelKey(endpoint.target, endpoint.server_name, material.fingerprint)
        channel = self._open.get(key)
        if channel is not None and self._clock.monotonic() >= channel.expires_at:
            self._retire(channel)
            channel = None
        return channel or self._opened(key, endpoint, material, owner)

    def _opened(self, key: ChannelKey, endpoint: Endpoint, material: TlsMaterial, owner: str) -> _Channel:
        while len(self._open) >= self._settings.max_channels:
            self._retire(self._dispensable())
        now = self._clock.monotonic()
        age = self._settings.max_age * (1 - self._settings.age_jitter * self._draw())
        channel = _Channel(key, self._dial(endpoint, material), owner, expires_at=now + age, used_at=now)
        self._open[key] = channel
        self._report()
        return channel

    def _dispensable(self) -> _Channel:
        """Of the owner who has most: an idle one if there is one, the one used longest ago."""
        most, _ = Counter(each.owner for each in self._open.values()).most_common(1)[0]
        theirs = (each for each in self._open.values() if each.owner == most)
        return min(theirs, key=lambda each: (each.in_flight > 0, each.used_at))

    def retire(self, endpoint: Endpoint, fingerprint: str) -> None:
        """Those certificates are not to be used any more; calls on their way end as they would."""
        if channel := self._open.get(ChannelKey(endpoint.target, endpoint.server_name, fingerprint)):
            self._retire(channel)

    def _retire(self, channel: _Channel) -> None:
        if self._open.get(channel.key) is channel:
            del self._open[channel.key]
        self._draining.add(channel)
        channel.draining.set()
        self._close_if_drained(channel)
        self._report()

    def _close_if_drained(self, channel: _Channel) -> None:
        if channel in self._draining and channel.in_flight == 0:
            self._close(channel)

    def _close(self, channel: _Channel) -> None:
        self._draining.discard(channel)
        task = asyncio.get_running_loop().create_task(channel.transport.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)
        self._report()

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()  # a channel that fails to close is gone all the same

    def _report(self) -> None:
        self._metrics.pool(len(self._open), len(self._draining))
