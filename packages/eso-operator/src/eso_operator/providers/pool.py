"""The pool of channels to providers: one for each address, server name and set of certificates.

    lease -> open --new certificates, too old, idle, too many--> draining --last call ends--> closed

New calls go to open channels. A draining channel finishes its running calls, which have deadlines. Certificates are
checked only when a connection is made, so every channel is replaced after `max_age`.
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
from eso_operator.stores.resolved import Endpoint
from eso_wire.tls import TlsMaterial
from kubebase.backoff import Random, system_random
from kubebase.clock import Clock

Dial = Callable[[Endpoint, TlsMaterial], Transport]
"""Makes a transport, which connects at its first use."""


class ChannelKey(NamedTuple):
    resolved: str
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
        """Lease a transport for one call. `owner` is the namespace whose share the channel counts against."""
        channel = self._channel(endpoint, material, owner)
        channel.in_flight += 1
        try:
            yield Lease(channel.transport, channel.draining)
        finally:
            channel.in_flight -= 1
            channel.used_at = self._clock.monotonic()
            self._close_if_drained(channel)

    async def run(self) -> None:
        """Retire expired and idle channels until cancelled. `lease` also replaces an expired channel."""
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
        """Close all channels, including running calls."""
        for channel in list(self._open.values()):
            self._retire(channel)
        for channel in list(self._draining):
            self._close(channel)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def _channel(self, endpoint: Endpoint, material: TlsMaterial, owner: str) -> _Channel:
        key = ChannelKey(endpoint.uri, endpoint.server_name, material.fingerprint)
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
        """Return the channel to evict: of the owner with most channels, the least recently used; idle ones first."""
        most, _ = Counter(each.owner for each in self._open.values()).most_common(1)[0]
        theirs = (each for each in self._open.values() if each.owner == most)
        return min(theirs, key=lambda each: (each.in_flight > 0, each.used_at))

    def retire(self, endpoint: Endpoint, fingerprint: str) -> None:
        """Drain the channel with these certificates; its running calls finish."""
        if channel := self._open.get(ChannelKey(endpoint.uri, endpoint.server_name, fingerprint)):
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
            task.exception()  # retrieve it: a channel that fails to close needs no further handling

    def _report(self) -> None:
        self._metrics.pool(len(self._open), len(self._draining))
