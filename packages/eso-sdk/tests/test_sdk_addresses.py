"""The addresses of a spec that a provider may dial."""

import pytest

from eso_sdk.addresses import AddressPolicy, AddressPolicyError, ForbiddenAddressError


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("127.0.0.1", id="loopback"),
        pytest.param("127.9.9.9", id="all of 127.0.0.0/8"),
        pytest.param("::1", id="IPv6 loopback"),
        pytest.param("::ffff:127.0.0.1", id="loopback mapped into IPv6"),
        pytest.param("64:ff9b::7f00:1", id="loopback through NAT64"),
        pytest.param("2002:7f00:1::", id="loopback through 6to4"),
        pytest.param("0.0.0.0", id="unspecified reaches this machine"),  # noqa: S104 - an address to refuse
        pytest.param("::", id="IPv6 unspecified"),
        pytest.param("169.254.169.254", id="metadata service"),
        pytest.param("::ffff:169.254.169.254", id="metadata service mapped into IPv6"),
        pytest.param("fe80::1%eth0", id="IPv6 link-local with a zone"),
        pytest.param("fd00:ec2::254", id="metadata service of AWS over IPv6"),
        pytest.param("100.100.100.200", id="metadata service of Alibaba"),
        pytest.param("168.63.129.16", id="platform service of Azure"),
        pytest.param("224.0.0.1", id="multicast"),
    ],
)
def test_an_address_that_no_tenant_should_reach_is_refused(address: str) -> None:
    with pytest.raises(ForbiddenAddressError):
        AddressPolicy().check(address)


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.1", "93.184.216.34", "2606:2800:220:1::1", "fd12::1"])
def test_ordinary_addresses_are_dialled_private_ones_included(address: str) -> None:
    AddressPolicy().check(address)


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ("loopback", "127.0.0.1"),
        ("loopback", "::1"),
        ("loopback", "::ffff:127.0.0.1"),
        ("link-local", "169.254.169.254"),
        ("127.0.0.5", "127.0.0.5"),
        ("169.254.0.0/16", "169.254.10.1"),
    ],
)
def test_the_administrator_allows_an_address(entry: str, address: str) -> None:
    AddressPolicy.parse([entry]).check(address)


def test_allowing_one_address_allows_no_other() -> None:
    policy = AddressPolicy.parse(["127.0.0.5"])

    with pytest.raises(ForbiddenAddressError):
        policy.check("127.0.0.1")


@pytest.mark.parametrize("entry", ["localhost", "10.0.0.1/8", "everything", ""])
def test_an_entry_that_names_no_address_is_refused_with_what_to_write(entry: str) -> None:
    with pytest.raises(AddressPolicyError, match="write loopback"):
        AddressPolicy.parse([entry])
