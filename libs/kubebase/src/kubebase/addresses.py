"""Addresses at which clouds issue the credentials of a machine: no tenant may make a process connect to them."""

from __future__ import annotations

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA_HOSTS: Final = frozenset({"metadata.google.internal", "instance-data.ec2.internal"})
METADATA_ADDRESSES: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "168.63.129.16")))
"""Metadata services outside of the link-local networks. The charts' network policies deny the same ones."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


def unwrapped(ip: Address) -> Address:
    """Return the IPv4 address that is spelled inside an IPv6 one (mapped, NAT64, 6to4); else the address itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


def is_metadata_service(ip: Address) -> bool:
    """Tell whether an address is link-local or a known metadata service, however it is spelled."""
    plain = unwrapped(ip)
    return plain.is_link_local or plain in METADATA_ADDRESSES
