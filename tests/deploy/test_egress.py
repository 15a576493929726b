"""The egress that the charts' network policies permit: everything except link-local addresses and metadata services."""

from __future__ import annotations

import ipaddress
from typing import Any, Protocol

import pytest

from eso_sdk.addresses import LINK_LOCAL, ORDINARY, AddressPolicy, ForbiddenAddressError
from kubebase.addresses import METADATA_ADDRESSES
from kubebase.meta import JsonObject, Resource
from kuberun.testing.rawapi import RawApi

POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
NODES = {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]}


class Chart(Protocol):
    def __call__(self, *, release: str = "external-secrets", **values: Any) -> list[JsonObject]: ...


def policy(objects: list[JsonObject]) -> JsonObject:
    (only,) = (each for each in objects if each["kind"] == "NetworkPolicy")
    return only


def reachable(spec: JsonObject, address: str) -> bool:
    """Tell whether the rule without ports lets a pod reach an address outside of the cluster's pods."""
    ip = ipaddress.ip_address(address)
    blocks = [peer["ipBlock"] for peer in spec["egress"][-1]["to"] if "ipBlock" in peer]
    return any(
        ip in ipaddress.ip_network(block["cidr"])
        and not any(ip in ipaddress.ip_network(each) for each in block.get("except", ()))
        for block in blocks
    )


def denied(spec: JsonObject) -> set[str]:
    peers = spec["egress"][-1]["to"]
    return {each for peer in peers for each in peer.get("ipBlock", {}).get("except", ())}


def test_the_policies_deny_the_networks_that_providers_refuse_to_dial(either_chart: Chart) -> None:
    refused = {str(network) for network in AddressPolicy.parse([LINK_LOCAL]).allowed}
    refused |= {str(ipaddress.ip_network(address)) for address in METADATA_ADDRESSES}

    networks = denied(policy(either_chart())["spec"])

    assert networks == refused
    for network in networks:
        with pytest.raises(ForbiddenAddressError):
            ORDINARY.check(str(ipaddress.ip_network(network)[0]))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("169.254.169.254", False, id="metadata service"),
        pytest.param("169.254.170.23", False, id="EKS Pod Identity"),
        pytest.param("fd00:ec2::254", False, id="metadata service over IPv6"),
        pytest.param("fe80::1", False, id="link-local over IPv6"),
        pytest.param("10.0.0.1", True, id="private network"),
        pytest.param("203.0.113.7", True, id="the Internet"),
        pytest.param("fd00:ec2::23", True, id="private network over IPv6"),
    ],
)
def test_a_pod_reaches_everything_but_the_denied_networks(either_chart: Chart, address: str, expected: bool) -> None:
    spec = policy(either_chart())["spec"]

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert reachable(spec, address) is expected


def test_pods_and_nodes_stay_reachable_where_no_block_applies_to_them(either_chart: Chart) -> None:
    rules = policy(either_chart())["spec"]["egress"]

    assert rules[:-1] == [DNS, NODES]
    assert {"namespaceSelector": {}} in rules[-1]["to"]
    assert "ports" not in rules[-1]


def test_denied_networks_can_be_allowed_one_by_one(either_chart: Chart) -> None:
    spec = policy(either_chart(networkPolicy={"metadata": {"allow": ["169.254.170.23/32"], "ports": []}}))["spec"]

    assert reachable(spec, "169.254.170.23")
    assert not reachable(spec, "169.254.169.254")
    assert spec["egress"][:-1] == [DNS]


def test_egress_can_be_left_alone(either_chart: Chart) -> None:
    spec = policy(either_chart(networkPolicy={"metadata": {"deny": False}}))["spec"]

    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec


@pytest.mark.live
async def test_an_api_server_takes_the_policy_as_it_is(api: RawApi, namespace: str, either_chart: Chart) -> None:
    if (await api.get(POLICIES.path(namespace))).status == 404:
        pytest.skip("this API server keeps no networkpolicies")
    document = policy(either_chart(release=namespace, networkPolicy={"metadata": {"allow": ["169.254.170.23/32"]}}))

    answer = await api.post(POLICIES.path(namespace), document, fieldValidation="Strict")

    assert answer.status == 201, answer.body
