"""URLs, IP addresses and CIDR ranges."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from localkube.schema import formats
from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.function import Library, function, method, plain
from localkube.schema.cel.types import BOOL, CIDR, INT, IP, STRING, URL, list_of, map_of
from localkube.schema.cel.values import no_overload

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


@dataclass(frozen=True, slots=True)
class Url:
    text: str

    def cel_text(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Ip:
    address: _Address

    def cel_text(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class Cidr:
    interface: _Network

    def cel_text(self) -> str:
        return str(self.interface)


def _url(text: str) -> Url:
    if not _is_url(text):
        raise EvaluationError("URL parse error during conversion from string: parse: invalid URI for request")
    return Url(text)


def _is_url(text: Any) -> bool:
    return isinstance(text, str) and formats.is_uri(text)


def _host(url: Url) -> str:
    return urlsplit(url.text).netloc.rpartition("@")[2]


def _hostname(url: Url) -> str:
    host = _host(url)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: Url) -> str:
    return _host(url).rpartition("]")[2].partition(":")[2]


def _query(url: Url) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url.text).query, keep_blank_values=True)


def _address(text: str) -> _Address:
    if "%" in text:
        raise ValueError(text)
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(text)
    return address


def _is_ip(text: Any) -> bool:
    try:
        _address(text)
    except ValueError:
        return False
    return True


def _ip(value: Any) -> Ip:
    if isinstance(value, Cidr):
        return Ip(value.interface.ip)
    if not isinstance(value, str):
        raise no_overload("ip", value)
    try:
        return Ip(_address(value))
    except ValueError:
        raise EvaluationError(f"IP Address {value!r} parse error during conversion from string") from None


def _is_canonical(text: str) -> bool:
    return _ip(text).cel_text() == text


def _is_global(value: Ip) -> bool:
    address = value.address
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _cidr(text: str) -> Cidr:
    if not _is_cidr(text):
        raise EvaluationError(f"network address parse error during conversion from string: {text!r}")
    return Cidr(ipaddress.ip_interface(text))


def _is_cidr(text: Any) -> bool:
    check = formats.check_for("cidr")
    return isinstance(text, str) and check is not None and check(text)


def _contains_ip(cidr: Cidr, value: Any) -> bool:
    address = _ip(value).address if isinstance(value, str) else value.address
    return address.version == cidr.interface.version and address in cidr.interface.network


def _contains_cidr(cidr: Cidr, value: Any) -> bool:
    other = (_cidr(value) if isinstance(value, str) else value).interface
    mine = cidr.interface
    if other.version != mine.version:
        return False
    return other.ip in mine.network and other.network.prefixlen >= mine.network.prefixlen


def _of_address(read: Callable[[_Address], Any]) -> Callable[[Ip], Any]:
    return lambda value: read(value.address)


_ASKS_IP: Final = method(IP, gives=BOOL)

FUNCTIONS: Final[Library] = {
    "url": function(_url, plain(STRING, gives=URL)),
    "isURL": function(_is_url, plain(STRING, gives=BOOL)),
    "getScheme": function(lambda url: urlsplit(url.text).scheme, method(URL, gives=STRING)),
    "getHost": function(_host, method(URL, gives=STRING)),
    "getHostname": function(_hostname, method(URL, gives=STRING)),
    "getPort": function(_port, method(URL, gives=STRING)),
    "getEscapedPath": function(
        lambda url: quote(urlsplit(url.text).path, safe="/%:@!$&'()*+,;=~-._"), method(URL, gives=STRING)
    ),
    "getQuery": function(_query, method(URL, gives=map_of(STRING, list_of(STRING)))),
    "ip": function(_ip, plain(STRING, gives=IP), method(CIDR, gives=IP)),
    "isIP": function(_is_ip, plain(STRING, gives=BOOL)),
    "ip.isCanonical": function(_is_canonical, plain(STRING, gives=BOOL)),
    "family": function(_of_address(lambda address: address.version), method(IP, gives=INT)),
    "isUnspecified": function(_of_address(lambda address: address.is_unspecified), _ASKS_IP),
    "isLoopback": function(_of_address(lambda address: address.is_loopback), _ASKS_IP),
    "isLinkLocalMulticast": function(
        _of_address(
            lambda address: address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")
        ),
        _ASKS_IP,
    ),
    "isLinkLocalUnicast": function(_of_address(lambda address: address.is_link_local), _ASKS_IP),
    "isGlobalUnicast": function(_is_global, _ASKS_IP),
    "cidr": function(_cidr, plain(STRING, gives=CIDR)),
    "isCIDR": function(_is_cidr, plain(STRING, gives=BOOL)),
    "containsIP": function(_contains_ip, method(CIDR, STRING, gives=BOOL), method(CIDR, IP, gives=BOOL)),
    "containsCIDR": function(_contains_cidr, method(CIDR, STRING, gives=BOOL), method(CIDR, CIDR, gives=BOOL)),
    "prefixLength": function(lambda cidr: cidr.interface.network.prefixlen, method(CIDR, gives=INT)),
    "masked": function(
        lambda cidr: Cidr(ipaddress.ip_interface(str(cidr.interface.network))), method(CIDR, gives=CIDR)
    ),
}
