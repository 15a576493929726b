"""Metadata services are recognised in every spelling."""

from __future__ import annotations

import ipaddress

import pytest

from kubebase.addresses import is_metadata_service


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        pytest.param("169.254.169.254", True, id="link-local IPv4"),
        pytest.param("fe80::1", True, id="link-local IPv6"),
        pytest.param("100.100.100.200", True, id="Alibaba's"),
        pytest.param("168.63.129.16", True, id="Azure's"),
        pytest.param("fd00:ec2::254", True, id="AWS's over IPv6"),
        pytest.param("::ffff:169.254.169.254", True, id="mapped into IPv6"),
        pytest.param("64:ff9b::a9fe:a9fe", True, id="through NAT64"),
        pytest.param("2002:a9fe:a9fe::", True, id="through 6to4"),
        pytest.param("10.0.0.1", False, id="a private address"),
        pytest.param("64:ff9b::a00:1", False, id="a private address through NAT64"),
        pytest.param("2001:db8::1", False, id="an ordinary IPv6 address"),
    ],
)
def test_an_address_of_a_metadata_service_is_recognised(address: str, is_one: bool) -> None:
    assert is_metadata_service(ipaddress.ip_address(address)) is is_one
