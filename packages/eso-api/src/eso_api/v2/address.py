"""Addresses of provider processes, as users write them, parsed.

`host:port`, `grpc://host:port`, `https://host:port`, `dns:///host:port`, `unix:///path`, `http+unix:///path`.

This module does not decide whether an address may be dialled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


class AddressError(ValueError):
    """The text is not an address of a provider."""


@dataclass(frozen=True, slots=True)
class NetworkAddress:
    """A provider behind TLS on a host."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """A provider on a Unix socket of the same machine; refused unless a feature gate allows it."""

    path: str


_NETWORK: Final = re.compile(
    r"(?:(?:grpc|https)://|dns:///)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?\.?)"
    r":(?P<port>[0-9]{1,5})"
)
_SOCKET: Final = re.compile(r"(?:http\+)?unix://(?P<path>/\S+)")


def parse_address(text: str) -> NetworkAddress | SocketAddress:
    """Parse one address."""
    if match := _SOCKET.fullmatch(text):
        return SocketAddress(match["path"])
    match = _NETWORK.fullmatch(text)
    if match is None:
        raise AddressError("write host:port, grpc://host:port, https://host:port or dns:///host:port")
    port = int(match["port"])
    if not 0 < port < 65536:
        raise AddressError(f"port {port} is not between 1 and 65535")
    return NetworkAddress(match["host"].strip("[]"), port)
