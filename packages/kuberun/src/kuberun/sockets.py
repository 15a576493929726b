"""The sockets of a session: closed is closed.

A connection that is broken off says goodbye to its TLS peer first, and aiohttp forgets it meanwhile. A loop that ends
before the goodbye leaks the socket, so whoever closes a session waits for its sockets too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

import aiohttp

from kuberun.clock import Clock, SystemClock

PATIENCE: Final = 5.0  # a peer that does not take part in the goodbye
_LOOK: Final = 0.005


AddressCheck = Callable[[str], None]
"""Gets an IP address before a connection to it is opened; raises `OSError` to refuse it."""


class Sockets:
    """What a connector opened, as long as it lives.

    `vet` sees the resolved addresses, those of proxies and those written as numbers included.
    """

    def __init__(
        self,
        clock: Clock = SystemClock(),  # noqa: B008  stateless
        vet: AddressCheck | None = None,
    ) -> None:
        self._clock = clock
        self._vet = vet
        self._made: WeakSet[socket.socket] = WeakSet()

    def connector(self, **options: Any) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(socket_factory=self._make, **options)

    async def closed(self, *, within: float = PATIENCE) -> None:
        """Returns when the last one is closed, or the patience is at its end."""
        end = self._clock.monotonic() + within
        while self.open() and self._clock.monotonic() < end:
            await self._clock.sleep(_LOOK)

    def open(self) -> int:
        return sum(made.fileno() >= 0 for made in self._made)

    def _make(self, address: tuple[Any, ...]) -> socket.socket:
        family, type_, protocol, *_ = address
        if self._vet is not None:
            self._vet(str(address[4][0]))
        made = socket.socket(family, type_, protocol)
        self._made.add(made)
        return made


def break_off(response: aiohttp.ClientResponse) -> None:
    """End an answer in the middle, its connection included, without a goodbye that nobody waits for."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()
