"""The probe distinguishes every way a connection can fail, on real sockets (R136, R137)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

import grpc.aio
import pytest

from eso_wire.options import SERVER_OPTIONS
from eso_wire.probe import TlsProblem, TlsProblemKind, diagnose
from eso_wire.tls import ServerCertificates, TlsMaterial
from kubebase.testing.listening import listening

EXPIRED = timedelta(days=-1)


class Issuer(Protocol):
    @property
    def pem(self) -> bytes: ...

    def issue(
        self, name: str = ..., *, uri: str = ..., valid_for: timedelta = ..., trust: bytes = ...
    ) -> TlsMaterial: ...


@contextlib.asynccontextmanager
async def provider(material: TlsMaterial) -> AsyncIterator[int]:
    """Run a real gRPC server without services: only the handshake matters."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    port = server.add_secure_port("127.0.0.1:0", ServerCertificates(lambda: material).credentials())
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def look(
    port: int, material: TlsMaterial, *, host: str = "127.0.0.1", server_name: str = "localhost", deadline: float = 10
) -> TlsProblem | None:
    return await diagnose(host, port, server_name=server_name, material=material, deadline=deadline)


def kind_of(problem: TlsProblem | None) -> TlsProblemKind | None:
    return None if problem is None else problem.kind


async def test_a_connection_that_works_has_no_problem(authority: Issuer) -> None:
    async with provider(authority.issue()) as port:
        assert await look(port, authority.issue()) is None


async def test_a_name_that_does_not_resolve(authority: Issuer) -> None:
    problem = await look(8080, authority.issue(), host="provider.invalid")

    assert kind_of(problem) is TlsProblemKind.DNS_FAILURE
    assert "provider.invalid" in str(problem)


async def test_a_port_without_a_listener(authority: Issuer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        problem = await look(port, authority.issue())

    assert kind_of(problem) is TlsProblemKind.REFUSED
    assert f"127.0.0.1:{port}" in str(problem)


async def test_a_server_whose_certificate_has_expired(authority: Issuer) -> None:
    async with provider(authority.issue(valid_for=EXPIRED)) as port:
        problem = await look(port, authority.issue())

    assert kind_of(problem) is TlsProblemKind.SERVER_CERT_EXPIRED


async def test_a_server_of_a_ca_we_do_not_trust(authority: Issuer, stranger: Issuer) -> None:
    async with provider(stranger.issue(trust=authority.pem)) as port:
        problem = await look(port, authority.issue())

    assert kind_of(problem) is TlsProblemKind.UNKNOWN_CA


async def test_a_server_with_another_name(authority: Issuer) -> None:
    async with provider(authority.issue("elsewhere.example")) as port:
        problem = await look(port, authority.issue())

    assert kind_of(problem) is TlsProblemKind.HOSTNAME_MISMATCH
    assert "localhost" in str(problem)


@pytest.mark.parametrize("flaw", ["foreign CA", "expired"])
async def test_a_server_that_refuses_our_certificate(flaw: str, authority: Issuer, stranger: Issuer) -> None:
    ours = authority.issue(valid_for=EXPIRED) if flaw == "expired" else stranger.issue(trust=authority.pem)

    async with provider(authority.issue()) as port:
        problem = await look(port, ours)

    assert kind_of(problem) is TlsProblemKind.CLIENT_CERT_REJECTED


async def test_a_server_that_accepts_and_never_answers(authority: Issuer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem = await look(silent.getsockname()[1], authority.issue(), deadline=0.2)

    assert kind_of(problem) is TlsProblemKind.TIMEOUT


async def test_a_server_that_does_not_speak_tls(authority: Issuer) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n" * 10)
        await writer.drain()

    async with listening(greet) as port:
        problem = await look(port, authority.issue())

    assert kind_of(problem) is TlsProblemKind.UNKNOWN


async def test_our_own_certificates_can_be_the_problem(authority: Issuer) -> None:
    ours = authority.issue()

    problem = await look(1, TlsMaterial(ours.ca, b"no certificate", ours.key))

    assert kind_of(problem) is TlsProblemKind.UNKNOWN
    assert "our own certificates" in str(problem)
