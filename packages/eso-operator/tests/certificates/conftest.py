"""One Service, its names, and two verifiers: X.509 by the rules at any time, and TLS as it is really spoken."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Credential, Identity
from eso_operator.stores.resolved import ServiceKey
from kubebase.testing.servers import ApiServer
from kuberun.client import Client
from kuberun.config import load
from kuberun.testing.rawapi import RawApi
from kuberun.transport import AiohttpTransport

SERVICE = ServiceKey("team", "provider-fake")

Verify = Callable[[Credential, Sequence[bytes], Credential, Sequence[bytes], datetime], bool]
Handshake = Callable[[Credential, Sequence[bytes], Credential, Sequence[bytes]], str]


@pytest.fixture
def service() -> ServiceKey:
    return SERVICE


@pytest.fixture
def identity() -> Identity:
    return identity_of(SERVICE, IssuerSettings("eso"))


@pytest.fixture
def mutually_verify(identity: Identity) -> Verify:
    """Return a check that server and client accept each other at a time: (server, its trust, client, its trust)."""

    def verify(
        server: Credential,
        server_trust: Sequence[bytes],
        client: Credential,
        client_trust: Sequence[bytes],
        now: datetime,
    ) -> bool:
        try:
            _policy(client_trust, now).build_server_verifier(x509.DNSName(identity.server.dns[-1])).verify(
                x509.load_pem_x509_certificate(server.certificate), []
            )
            _policy(server_trust, now).build_client_verifier().verify(
                x509.load_pem_x509_certificate(client.certificate), []
            )
        except VerificationError:
            return False
        return True

    return verify


@pytest.fixture
def handshake(identity: Identity) -> Handshake:
    """A TLS 1.3 handshake in memory, both sides showing certificates; the server name and the client's, as seen."""

    def shake(
        server: Credential, server_trust: Sequence[bytes], client: Credential, client_trust: Sequence[bytes]
    ) -> str:
        ends = (
            _end(_context(ssl.PROTOCOL_TLS_SERVER, server, server_trust), None),
            _end(_context(ssl.PROTOCOL_TLS_CLIENT, client, client_trust), identity.server.dns[-1]),
        )
        unfinished = [1, 0]
        for _ in range(10):
            unfinished = [index for index in unfinished if not _moved(ends, index)]
        assert not unfinished
        seen = ends[0][0].getpeercert()
        assert seen is not None
        return str(dict(seen["subjectAltName"])["URI"])  # type: ignore[arg-type]  # typeshed knows no SAN pairs

    return shake


@pytest.fixture
async def client(api_server: ApiServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(load(api_server.kubeconfig)))
    yield made
    await made.close()


@pytest.fixture
async def team(api: RawApi, namespace: str) -> AsyncIterator[str]:
    """The namespace of a provider; `namespace` is the core's."""
    name = f"{namespace}-team"
    await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


def _policy(trust: Sequence[bytes], now: datetime) -> PolicyBuilder:
    return PolicyBuilder().time(now).store(Store([x509.load_pem_x509_certificate(each) for each in trust]))


_End = tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]


def _context(protocol: int, own: Credential, trust: Sequence[bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=b"".join(trust).decode())
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.write_bytes(own.certificate + own.key.reveal())
        context.load_cert_chain(pair)
    return context


def _end(context: ssl.SSLContext, server_name: str | None) -> _End:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    spoken = context.wrap_bio(incoming, outgoing, server_side=server_name is None, server_hostname=server_name)
    return spoken, incoming, outgoing


def _moved(ends: tuple[_End, _End], index: int) -> bool:
    """One side's turn; whether its handshake is done."""
    spoken, _, outgoing = ends[index]
    try:
        spoken.do_handshake()
        done = True
    except ssl.SSLWantReadError:
        done = False
    ends[1 - index][1].write(outgoing.read())
    return done
