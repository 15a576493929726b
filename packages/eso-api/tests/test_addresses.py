"""Addresses of providers (R82, R83, R182)."""

import pytest

from eso_api.v2.connection import AddressError, NetworkAddress, SocketAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param("provider:8080", NetworkAddress("provider", 8080), id="host and port"),
        pytest.param("grpc://provider-service:8080", NetworkAddress("provider-service", 8080), id="R182 grpc"),
        pytest.param("https://p.eso.svc:443", NetworkAddress("p.eso.svc", 443), id="https"),
        pytest.param("dns:///p.eso.svc.cluster.local.:1", NetworkAddress("p.eso.svc.cluster.local.", 1), id="dns"),
        pytest.param("[::1]:8080", NetworkAddress("::1", 8080), id="IPv6"),
        pytest.param("10.0.0.1:8080", NetworkAddress("10.0.0.1", 8080), id="IPv4"),
        pytest.param("unix:///run/p.sock", SocketAddress("/run/p.sock"), id="Unix socket"),
        pytest.param("http+unix:///path/to/aws.sock", SocketAddress("/path/to/aws.sock"), id="R83 as the proposal"),
    ],
)
def test_an_address_is_taken_apart(text: str, address: NetworkAddress | SocketAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "provider", "grpc://provider", "ftp://provider:1", "provider:0", "provider:65536", "provider:8080/path",
     "grpc://user@provider:1", "pro vider:1", "unix://relative", ":8080", "provider:-1", "provider:٣"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(AddressError):
        parse_address(text)
