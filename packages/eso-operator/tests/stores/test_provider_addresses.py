"""Which addresses may be dialled, by whom, and as what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_operator.stores.addresses import author_of, endpoint_at
from eso_operator.stores.resolved import Endpoint, EndpointSource, Reason, ResolutionError, ResolverSettings, ServiceKey
from eso_testkit.operator.clusters import CORE, TENANTS_TOO, cluster
from eso_wire.values import ObjectRef
from kubebase.meta import JsonObject

NAMESPACED = ObjectRef(kind="SecretStore", namespace="team-a", name="store")
CLUSTER = ObjectRef(kind="ClusterSecretStore", name="store")


def dialled(
    address: str, author: ObjectRef = NAMESPACED, settings: ResolverSettings = TENANTS_TOO, *documents: JsonObject
) -> Endpoint:
    return endpoint_at(
        address,
        author_of(author, settings),
        source=EndpointSource.EXPLICIT,
        settings=settings,
        view=cluster(*documents),
    )


def refused(
    address: str, author: ObjectRef = NAMESPACED, settings: ResolverSettings = TENANTS_TOO, *documents: JsonObject
) -> Reason:
    with pytest.raises(ResolutionError) as raised:
        dialled(address, author, settings, *documents)
    assert address not in raised.value.message
    return raised.value.reason


@pytest.mark.parametrize(
    ("address", "author", "service"),
    [
        pytest.param("provider:8080", NAMESPACED, ServiceKey("team-a", "provider"), id="bare host, namespaced"),
        pytest.param("provider:8080", CLUSTER, ServiceKey(CORE, "provider"), id="bare host, cluster-scoped"),
        pytest.param("grpc://provider:8080", CLUSTER, ServiceKey(CORE, "provider"), id="grpc:// (R182)"),
        pytest.param("https://provider.team-a:8080", NAMESPACED, ServiceKey("team-a", "provider"), id="svc.ns"),
        pytest.param("dns:///provider.team-a.svc:8080", NAMESPACED, ServiceKey("team-a", "provider"), id="svc.ns.svc"),
        pytest.param("p.team-a.svc.cluster.local:8080", NAMESPACED, ServiceKey("team-a", "p"), id="full name"),
        pytest.param("P.Team-A.svc.cluster.local.:8080", NAMESPACED, ServiceKey("team-a", "p"), id="case, final dot"),
        pytest.param(f"provider.{CORE}.svc:8080", NAMESPACED, ServiceKey(CORE, "provider"), id="providers' namespace"),
        pytest.param("provider.anywhere.svc:8080", CLUSTER, ServiceKey("anywhere", "provider"), id="cluster-scoped"),
        pytest.param("evil.com:8080", CLUSTER, ServiceKey("com", "evil"), id="two labels are always a Service"),
    ],
)
def test_a_service_is_dialled_by_its_full_name(address: str, author: ObjectRef, service: ServiceKey) -> None:
    """R99."""
    endpoint = dialled(address, author)

    assert endpoint.service == service
    assert endpoint.uri == f"dns:///{service.name}.{service.namespace}.svc:8080"
    assert endpoint.server_name == f"{service.name}.{service.namespace}.svc"
    assert endpoint.label == str(service)


ALLOWING = replace(
    TENANTS_TOO,
    allowed_addresses=("*.providers.example.com:8443", "vault.example.org", "10.0.0.5:8443", "[2001:db8::5]:8443"),
)
OPEN = replace(TENANTS_TOO, allowed_addresses=("*",))


@pytest.mark.parametrize(
    ("address", "settings"),
    [
        pytest.param("provider.team-b.svc:8080", TENANTS_TOO, id="another tenant's Service"),
        pytest.param("provider.kube-system:8080", TENANTS_TOO, id="a Service of the system"),
        pytest.param("provider.team-a.svc.other.domain:8080", TENANTS_TOO, id="another cluster domain"),
        pytest.param("provider.example.com:8080", TENANTS_TOO, id="a host outside"),
        pytest.param("10.0.0.5:8443", TENANTS_TOO, id="IP address"),
        pytest.param("[::1]:8443", TENANTS_TOO, id="IPv6 address"),
        pytest.param("127.0.0.1:8443", TENANTS_TOO, id="loopback"),
        pytest.param("127.1:8443", TENANTS_TOO, id="short spelling of loopback"),
        pytest.param("2130706433:8443", TENANTS_TOO, id="loopback as a number"),
        pytest.param("0x7f.1:8443", TENANTS_TOO, id="loopback in hexadecimal"),
        pytest.param("169.254.169.254:80", TENANTS_TOO, id="metadata service"),
        pytest.param("metadata.google.internal:80", TENANTS_TOO, id="metadata service by name"),
        pytest.param("a.providers.example.com:9000", ALLOWING, id="allowed host, another port"),
        pytest.param("a.providers.example.com.evil.net:8443", ALLOWING, id="allowed host as a prefix"),
        pytest.param("10.0.0.5:8444", ALLOWING, id="allowed IP address, another port"),
        pytest.param("10.0.0.6:8443", OPEN, id="a wildcard allows no IP address"),
        pytest.param("[2001:db8::6]:8443", OPEN, id="nor one of the other family"),
        pytest.param("2130706433:8443", OPEN, id="nor a number"),
        pytest.param("0x7f.0.0.1:8443", OPEN, id="nor a hexadecimal one"),
        pytest.param("169.254.169.254:80", OPEN, id="nor the metadata service"),
        pytest.param("metadata.google.internal:80", OPEN, id="nor that by name"),
        pytest.param("169.254.169.254:80", replace(TENANTS_TOO, allowed_addresses=("169.254.169.254",)), id="never"),
        pytest.param("[fe80::1]:80", replace(TENANTS_TOO, allowed_addresses=("[fe80::1]:80",)), id="link-local: never"),
        pytest.param("[::ffff:169.254.169.254]:80", OPEN, id="nor in another family"),
    ],
)
def test_an_address_that_is_not_allowed_is_denied(address: str, settings: ResolverSettings) -> None:
    assert refused(address, NAMESPACED, settings) is Reason.ADDRESS_DENIED


@pytest.mark.parametrize(
    ("address", "target"),
    [
        pytest.param("a.providers.example.com:8443", "dns:///a.providers.example.com:8443", id="wildcard"),
        pytest.param("vault.example.org:1234", "dns:///vault.example.org:1234", id="host with any port"),
        pytest.param("10.0.0.5:8443", "ipv4:10.0.0.5:8443", id="literal IP address"),
        pytest.param("[2001:db8::5]:8443", "ipv6:[2001:db8::5]:8443", id="literal IPv6 address"),
    ],
)
def test_the_allow_list_allows_what_it_names(address: str, target: str) -> None:
    endpoint = dialled(address, NAMESPACED, ALLOWING)

    assert endpoint.uri == target
    assert endpoint.service is None
    assert endpoint.label == "SecretStore/store"


@pytest.mark.parametrize("address", ["nowhere", "http://provider:8080", "provider:0", "provider:99999", "a b:1"])
def test_a_text_that_is_not_an_address_is_invalid(address: str) -> None:
    with pytest.raises(ResolutionError) as raised:
        dialled(address)

    assert raised.value.reason is Reason.ADDRESS_INVALID


@pytest.mark.parametrize("address", ["unix:///run/provider.sock", "http+unix:///run/provider.sock"])
def test_a_unix_socket_needs_its_feature_gate(address: str) -> None:
    """R83, R100: a provider in the operator's own pod must be enabled explicitly."""
    assert refused(address) is Reason.FEATURE_DISABLED

    endpoint = dialled(address, NAMESPACED, replace(TENANTS_TOO, unix_sockets=True))

    assert endpoint.uri == "unix:/run/provider.sock"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:41234", "provider-fake.eso:8080", "provider-fake.eso.svc:1", "provider-fake.eso.svc.cluster.local:2"],
)
def test_a_trusted_service_is_dialled_where_the_operator_was_told(address: str) -> None:
    trusted = ServiceKey("eso", "provider-fake")
    settings = replace(TENANTS_TOO, trusted={trusted: "127.0.0.1:41234"})

    endpoint = dialled(address, NAMESPACED, settings)

    assert endpoint.uri == "ipv4:127.0.0.1:41234"
    assert endpoint.service == trusted
    assert endpoint.server_name == "provider-fake.eso.svc"
