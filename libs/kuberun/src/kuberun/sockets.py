"""Tracks the sockets of a session, so that closing the session closes all of them.

aiohttp forgets a connection while its TLS shutdown is still under way. If the event loop ends before that, the socket
leaks. Therefore code that closes a session also waits for its sockets.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

import aiohttp

from kubebase.clock import Clock, SystemClock

PATIENCE: Final = 5.0  # seconds to wait for a peer that does not complete the TLS shutdown
_LOOK: Final = 0.005


AddressCheck = Callable[[str], None]
"""Receives an IP address before a connection to it is opened; raises `OSError` to refuse it."""


class Sockets:
    """The open sockets of a connector.

    `vet` sees the resolved addresses, including those of proxies and those given as numbers.
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
        """Return when the last socket is closed, or after `within` seconds."""
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
    """Abort an answer and its connection, without waiting for a TLS shutdown."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()
