"""Decide which addresses a provider may connect to on behalf of a spec.

A store's author chooses the address (webhook `url`, Vault `server`, Kubernetes `server.url`), but the provider's pod
makes the connection. Unless the administrator allows them with `--allow-address`, these addresses are refused:

| address | because |
|---|---|
| loopback, unspecified | reaches the provider's own pod: its metrics, a sidecar |
| link-local, known metadata services | hands out the credentials of the machine |
| multicast | addresses a group, not a server |

The rule looks at the IP address that is dialled, after name resolution, so a name cannot hide it. Spellings of an IPv4
address inside an IPv6 one (mapped, NAT64, 6to4) are judged by the IPv4 address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kubebase.addresses import Address, is_metadata_service, unwrapped

LOOPBACK: Final = "loopback"
LINK_LOCAL: Final = "link-local"

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_KEYWORDS: Final[dict[str, tuple[_Network, ...]]] = {
    LOOPBACK: (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")),
    LINK_LOCAL: (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fe80::/10")),
}


class AddressPolicyError(ValueError):
    """An allow-list entry that names no address; the text says what to write."""


class ForbiddenAddressError(OSError):
    """The address may not be dialled. An OSError, so that a connector counts it as a failed connection attempt."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """The addresses that the administrator allows besides the ordinary ones."""

    allowed: tuple[_Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> AddressPolicy:
        """Read an allow-list: `loopback`, `link-local`, an IP address or a network such as 10.1.0.0/16."""
        networks: list[_Network] = []
        for entry in entries:
            try:
                networks += _KEYWORDS.get(entry) or (ipaddress.ip_network(entry),)
            except ValueError:
                raise AddressPolicyError(
                    f'"{entry}" is not an address to allow; write loopback, link-local, an IP address or a network'
                    " such as 10.1.0.0/16"
                ) from None
        return cls(tuple(networks))

    def check(self, address: str) -> None:
        """Raise `ForbiddenAddressError` if this IP address may not be dialled."""
        ip = unwrapped(ipaddress.ip_address(address.partition("%")[0]))
        if (what := _forbidden(ip)) and not any(ip in network for network in self.allowed):
            raise ForbiddenAddressError(f"resolves to {what}")


ORDINARY: Final = AddressPolicy()
"""Nothing is allowed besides ordinary addresses."""


def _forbidden(ip: Address) -> str:
    """Name the kind of address if it is refused by default; empty if it is not."""
    if ip.is_loopback or ip.is_unspecified:
        return "a loopback address"
    if is_metadata_service(ip):
        return "a link-local address or a cloud's metadata service"
    return "a multicast address" if ip.is_multicast else ""
