"""TLS to an API server: which servers we trust, and which certificates we present."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from kubebase.clock import SystemClock
from kuberun.connection import Credential, FixedCredentials, Tls
from kuberun.errors import Unreachable
from kuberun.requests import Request
from kuberun.testing import scriptedserver as script
from kuberun.testing.authority import Authority
from kuberun.testing.scriptedserver import ScriptedServer, scripted_server, transport_to

GET = Request("GET", "/api/v1/things")


class StartTls(Protocol):
    async def __call__(
        self, name: str = "kube.test", address: str = "127.0.0.1", *, mutual: bool = False
    ) -> ScriptedServer: ...


@pytest.fixture
def authority() -> Authority:
    return Authority(SystemClock().now())


@pytest.fixture
async def tls_server(tmp_path: Path, authority: Authority) -> AsyncIterator[StartTls]:
    async with AsyncExitStack() as stack:

        async def start(name: str = "kube.test", address: str = "127.0.0.1", *, mutual: bool = False) -> ScriptedServer:
            certificate = authority.issue(name, address=address)
            context = authority.server_context(tmp_path, certificate, client_authority=mutual)
            server = await stack.enter_async_context(scripted_server(context))
            server.will(script.json({}))
            return server

        yield start


async def test_a_server_of_the_given_authority_is_trusted(tls_server: StartTls, authority: Authority) -> None:
    server = await tls_server()

    async with transport_to(server.url, tls=Tls(ca=authority.pem)) as transport:
        assert await transport.request(GET) == b"{}"


async def test_a_server_of_another_authority_is_not_trusted(tls_server: StartTls) -> None:
    server = await tls_server()
    stranger = Authority(SystemClock().now())

    async with transport_to(server.url, tls=Tls(ca=stranger.pem)) as transport:
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await transport.request(GET)
    assert server.received == []


async def test_verification_can_be_switched_off(tls_server: StartTls) -> None:
    server = await tls_server(address="")

    async with transport_to(server.url, tls=Tls(verify=False)) as transport:
        assert await transport.request(GET) == b"{}"


@pytest.mark.parametrize(("expected_name", "trusted"), [("kube.test", True), ("other.test", False)])
async def test_the_server_name_to_expect_can_differ_from_the_address(
    tls_server: StartTls, authority: Authority, expected_name: str, trusted: bool
) -> None:
    server = await tls_server(address="")

    async with transport_to(server.url, tls=Tls(ca=authority.pem, server_name=expected_name)) as transport:
        if trusted:
            assert await transport.request(GET) == b"{}"
        else:
            with pytest.raises(Unreachable, match="not trusted"):
                await transport.request(GET)


async def test_a_client_certificate_opens_the_door(tls_server: StartTls, authority: Authority) -> None:
    server = await tls_server(mutual=True)
    with_certificate = FixedCredentials(Credential(certificate=authority.issue("jane")))

    async with transport_to(server.url, tls=Tls(ca=authority.pem), credentials=with_certificate) as transport:
        assert await transport.request(GET) == b"{}"
    async with transport_to(server.url, tls=Tls(ca=authority.pem)) as transport:
        with pytest.raises(Unreachable):
            await transport.request(GET)


async def test_a_renewed_client_certificate_is_used_for_the_next_call(
    tls_server: StartTls, authority: Authority
) -> None:
    server = await tls_server(mutual=True)
    stranger = Authority(SystemClock().now())

    class Renewed:
        credential = Credential(certificate=stranger.issue("jane"))

        async def current(self) -> Credential:
            return self.credential

        async def refreshed(self, rejected: Credential) -> Credential | None:
            raise AssertionError(rejected)

    credentials = Renewed()
    async with transport_to(server.url, tls=Tls(ca=authority.pem), credentials=credentials) as transport:
        with pytest.raises(Unreachable):
            await transport.request(GET)
        credentials.credential = Credential(certificate=authority.issue("jane"))
        assert await transport.request(GET) == b"{}"


async def test_tls_to_a_server_that_speaks_none() -> None:
    async with (
        scripted_server() as server,
        transport_to(server.url.replace("http:", "https:"), tls=Tls(verify=False)) as transport,
    ):
        with pytest.raises(Unreachable, match="no TLS connection"):
            await transport.request(GET)


@pytest.mark.parametrize("authority_data", [b"nonsense", "ü".encode()], ids=["not PEM", "not even ASCII"])
async def test_a_broken_authority_says_so(authority_data: bytes) -> None:
    async with transport_to("https://127.0.0.1:1", tls=Tls(ca=authority_data)) as transport:
        with pytest.raises(Unreachable, match="test: the certificate authority is not"):
            await transport.request(GET)


async def test_a_key_that_does_not_fit_its_certificate_says_so(authority: Authority) -> None:
    mixed = replace(authority.issue("jane"), key=authority.issue("joe").key)
    credentials = FixedCredentials(Credential(certificate=mixed))

    async with transport_to("https://127.0.0.1:1", credentials=credentials) as transport:
        with pytest.raises(Unreachable, match="not a pair"):
            await transport.request(GET)
