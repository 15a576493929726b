"""Calls over real sockets with mutual TLS."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from datetime import timedelta

import pytest
from grpc import aio

from eso_api.values import SecretBytes
from eso_operator.certificates.state import Window
from eso_operator.providers.channels import CallOptions, GrpcTransport
from eso_operator.providers.errors import NoResponseError
from eso_operator.providers.reachability import Address
from eso_operator.providers.settings import CallSettings, RuntimeSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy
from eso_testkit.operator import gateways
from eso_testkit.operator.boundstores import TLS, bound_store, endpoint, wanted
from eso_testkit.operator.gateways import WiredGateway
from eso_testkit.operator.providerhost import TestAuthority, hosted, renewed
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from eso_wire.tls import ServerCertificates
from eso_wire.values import FindQuery, GetResult
from kubebase.clock import SystemClock

ONCE = CallPolicy(gated=False, max_retries=0)


async def test_a_read_over_mutual_tls_gives_the_values(wired: WiredGateway) -> None:
    results = await wired.gateway.get(bound_store(endpoint(wired.host.target)), wanted("a", "b"))

    assert [result.outcome for result in results] == [SecretBytes(b"value-of-a"), SecretBytes(b"value-of-b")]


async def test_a_provider_without_our_handshake_is_named_as_one_of_another_major(wired: WiredGateway) -> None:
    """R141: each major has its own services, so such a provider answers UNIMPLEMENTED."""
    server = aio.server()
    credentials = ServerCertificates(lambda: wired.host.material).credentials()
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        with pytest.raises(ProviderError, match=r"another major version; this operator speaks 2\.1, 2\.2") as caught:
            await wired.gateway.handshake(endpoint(f"ipv4:127.0.0.1:{port}"), TLS)
    finally:
        await server.stop(None)

    assert caught.value.reason is ErrorReason.PROTOCOL_INCOMPATIBLE


async def test_replicas_behind_one_target_share_the_calls(wired: WiredGateway) -> None:
    second = ScriptedProvider(SystemClock(), data=dict(wired.provider.data))

    async with hosted(second, wired.host.material) as other:
        both = endpoint(f"ipv4:127.0.0.1:{wired.host.port},127.0.0.1:{other.port}")
        await wired.gateway.get(bound_store(both), wanted("a"))
        while not (wired.provider.calls["GetSecrets"] and second.calls["GetSecrets"]):
            await wired.gateway.get(bound_store(both), wanted("a"))
        before = wired.provider.calls["GetSecrets"], second.calls["GetSecrets"]
        for _ in range(20):
            await wired.gateway.get(bound_store(both), wanted("a"))

    assert (wired.provider.calls["GetSecrets"], second.calls["GetSecrets"]) == (before[0] + 10, before[1] + 10)


async def test_a_provider_that_hangs_costs_the_deadline_and_not_more(wired: WiredGateway) -> None:
    wired.provider.hangs = True
    bound = bound_store(endpoint(wired.host.target), policy=CallPolicy(gated=False, call_timeout=0.3))

    async with asyncio.timeout(20):
        with pytest.raises(NoResponseError, match="provider scripted did not answer GetSecrets in time"):
            await wired.gateway.get(bound, wanted("a"))


async def test_a_killed_provider_breaks_calls_off_and_is_used_again_when_it_is_back(wired: WiredGateway) -> None:
    wired.provider.hangs = True
    bound = bound_store(endpoint(wired.host.target), policy=ONCE)
    call = asyncio.create_task(wired.gateway.get(bound, wanted("a")))
    await wired.provider.until_called("GetSecrets")

    await wired.host.stop()
    with pytest.raises(TransportError):
        await call
    wired.provider.hangs = False
    await wired.host.start()
    async with asyncio.timeout(20):
        results = await _until_reached(wired, bound_store(endpoint(wired.host.target)))

    assert results[0].outcome == SecretBytes(b"value-of-a")


async def _until_reached(wired: WiredGateway, bound: BoundStore) -> tuple[GetResult, ...]:
    while True:
        try:
            return await wired.gateway.get(bound, wanted("a"))
        except TransportError:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        pytest.param("closed port", "refuses connections", id="refused"),
        pytest.param("expired", "outside its validity", id="the provider's certificate has expired"),
        pytest.param("other name", "not for the name", id="the provider's certificate has another name"),
        pytest.param("other authority", "not from a CA we trust", id="the provider's certificate is of another CA"),
        pytest.param("client refused", "refuse|closed|client certificate", id="our certificate is refused"),
    ],
)
async def test_the_error_names_the_obstacle(wired: WiredGateway, break_it: str, says: str) -> None:
    now = SystemClock().now()
    match break_it:
        case "closed port":
            await wired.host.stop()
        case "expired":
            past = Window(now - timedelta(hours=3), now - timedelta(hours=1))
            wired.host.material = wired.authority.server(valid=past)
        case "other name":
            wired.host.material = wired.authority.server(name="other.test.svc")
        case "other authority":
            stranger = TestAuthority(now)
            wired.host.material = renewed(stranger.server(), trust=wired.authority.credential.certificate)
        case "client refused":
            stranger = TestAuthority(now)
            wired.host.material = renewed(wired.host.material, trust=stranger.credential.certificate)

    with pytest.raises(TransportError, match=says) as caught:
        await wired.gateway.get(bound_store(endpoint(wired.host.target), policy=ONCE), wanted("a"))

    assert caught.value.message.startswith("provider scripted was not reached: ")


async def test_a_name_that_does_not_resolve_is_named(wired: WiredGateway) -> None:
    bound = bound_store(endpoint("dns:///no-such-provider.invalid:8080"), policy=ONCE)

    with pytest.raises(TransportError, match=r"the name no-such-provider\.invalid does not resolve"):
        await wired.gateway.get(bound, wanted("a"))


async def test_an_answer_larger_than_a_message_may_be_is_refused(wired: WiredGateway) -> None:
    wired.provider.nonsense = lambda _method, _answer: bytes(17 * 1024 * 1024)

    with pytest.raises(ProviderError) as caught:
        await wired.gateway.get(bound_store(endpoint(wired.host.target)), wanted("a"))

    assert caught.value.reason is ErrorReason.PAYLOAD_TOO_LARGE


async def test_a_find_streams_all_pages_and_a_cut_off_one_is_an_error(wired: WiredGateway) -> None:
    wired.provider.data = {f"key-{number}": b"value" for number in range(250)}
    bound = bound_store(endpoint(wired.host.target), policy=ONCE)

    found = await wired.gateway.find(bound, FindQuery(path="key-"))
    wired.provider.pages = 2
    with pytest.raises(ProviderError, match="ended before its last page"):
        await wired.gateway.find(bound, FindQuery(path="key-"))

    assert len(found.found) == 250


async def test_an_endless_find_ends_at_the_bound() -> None:
    settings = RuntimeSettings(calls=replace(CallSettings(), max_found_items=500))
    async with gateways.wired(settings) as wired:
        wired.provider.data = {f"key-{number}": b"value" for number in range(2000)}

        with pytest.raises(ProviderError, match="found more than 500 secrets") as caught:
            await wired.gateway.find(bound_store(endpoint(wired.host.target)), FindQuery())

    assert caught.value.reason is ErrorReason.PAYLOAD_TOO_LARGE


async def test_a_handshake_gives_what_the_provider_says(wired: WiredGateway) -> None:
    handshake = await wired.gateway.handshake(endpoint(wired.host.target), TLS)

    assert handshake.instance_id == "instance-1"


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "100.100.100.200", "fd00:ec2::254", "::ffff:169.254.169.254"]
)
async def test_a_name_that_leads_to_a_metadata_service_is_not_dialled(address: str) -> None:
    clock = SystemClock()

    async def resolve(_name: Address) -> list[str]:
        return ["10.0.0.7", address]

    transport = GrpcTransport(
        endpoint("dns:///provider.example:8080"), TestAuthority(clock.now()).client(), clock, resolve=resolve
    )
    with pytest.raises(TransportError, match="link-local or metadata address"):
        await transport.unary("/x/y", b"", CallOptions(timeout=5.0, connect_timeout=5.0))

    await transport.close()


async def test_closing_the_gateway_fails_running_calls_without_cancelling_them(wired: WiredGateway) -> None:
    wired.provider.hangs = True
    call = asyncio.create_task(wired.gateway.get(bound_store(endpoint(wired.host.target), policy=ONCE), wanted("a")))
    await wired.provider.until_called("GetSecrets")

    await wired.gateway.close()
    await asyncio.wait([call])

    assert isinstance(call.exception(), TransportError)


async def test_an_unanswered_connection_is_named(wired: WiredGateway) -> None:
    """The system accepts the connection, but no server answers: the attempt ends at its own timeout."""
    bound_once = CallPolicy(gated=False, max_retries=0, connect_timeout=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = endpoint(f"ipv4:127.0.0.1:{silent.getsockname()[1]}")

        with pytest.raises(TransportError, match="did not answer within"):
            await wired.gateway.get(bound_store(at, policy=bound_once), wanted("a"))
