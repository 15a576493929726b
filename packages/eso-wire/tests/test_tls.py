"""Mutual TLS on real sockets: which clients are accepted, and certificates that change at run time (R118, R158)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
import pytest
from cryptography import x509

from eso_api.values import SecretBytes
from eso_wire.options import CLIENT_OPTIONS, SERVER_OPTIONS
from eso_wire.tls import (
    ServerCertificates,
    TlsMaterial,
    TlsMaterialError,
    channel_credentials,
    client_id,
    load_material,
    peer_spiffe_ids,
    service_id,
)


class Issuer(Protocol):
    @property
    def pem(self) -> bytes: ...

    def issue(
        self, name: str = ..., *, uri: str = ..., valid_for: timedelta = ..., trust: bytes = ...
    ) -> TlsMaterial: ...


class WhoAmI(grpc.GenericRpcHandler):
    """Answers every call with the peer's workload names."""

    def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def respond(_request: bytes, context: Any) -> bytes:
            return ",".join(peer_spiffe_ids(context.auth_context())).encode()

        return grpc.unary_unary_rpc_method_handler(respond)


@contextlib.asynccontextmanager
async def serving(certificates: ServerCertificates) -> AsyncIterator[int]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((WhoAmI(),))
    port = server.add_secure_port("127.0.0.1:0", certificates.credentials())
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def call_server(port: int, credentials: grpc.ChannelCredentials) -> str:
    """Make one call on its own connection; raise what gRPC raises."""
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options=CLIENT_OPTIONS) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/WhoAmI")
        response: bytes = await call(b"", timeout=30)
        return response.decode()


def fixed(material: TlsMaterial) -> ServerCertificates:
    return ServerCertificates(lambda: material)


CORE = client_id("cluster.local", "external-secrets", "external-secrets")


async def test_a_client_of_the_trusted_ca_is_served_and_known_by_its_workload_name(authority: Issuer) -> None:
    client = authority.issue(uri=CORE)

    async with serving(fixed(authority.issue())) as port:
        assert await call_server(port, channel_credentials(client)) == CORE


async def test_a_certificate_without_workload_name_has_none(authority: Issuer) -> None:
    async with serving(fixed(authority.issue())) as port:
        assert await call_server(port, channel_credentials(authority.issue())) == ""


async def test_a_client_without_certificate_is_refused_in_the_handshake(authority: Issuer) -> None:
    bare = grpc.ssl_channel_credentials(root_certificates=authority.pem)

    async with serving(fixed(authority.issue())) as port:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call_server(port, bare)

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_certificate_of_another_ca_is_refused(side: str, authority: Issuer, stranger: Issuer) -> None:
    trusted, foreign = authority.issue(), stranger.issue(trust=authority.pem)
    server, client = (foreign, trusted) if side == "server" else (trusted, foreign)

    async with serving(fixed(server)) as port:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call_server(port, channel_credentials(client))

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_the_next_connection_meets_the_new_leaf_and_the_new_client_ca(
    authority: Issuer, stranger: Issuer
) -> None:
    current = [authority.issue()]
    certificates = ServerCertificates(lambda: current[0])
    old_client = authority.issue()
    new_client = stranger.issue()

    async with serving(certificates) as port:
        await call_server(port, channel_credentials(old_client))
        current[0] = stranger.issue()

        response = await call_server(port, channel_credentials(new_client))
        with pytest.raises(grpc.aio.AioRpcError):
            await call_server(port, channel_credentials(old_client))

    assert response == ""
    assert certificates.reloads == 1
    assert certificates.current is current[0]


def broken_source(_material: TlsMaterial) -> TlsMaterial:
    raise OSError("the volume is gone")


@pytest.mark.parametrize(
    ("spoil", "failure"),
    [
        pytest.param(broken_source, "OSError", id="the source raises"),
        pytest.param(
            lambda m: TlsMaterial(m.ca, m.certificate[:40], m.key),
            "tls.crt holds no certificate in PEM",
            id="the certificate is half-written",
        ),
        pytest.param(
            lambda m: TlsMaterial(m.ca, m.certificate, SecretBytes(m.key.reveal()[:40])),
            "tls.key is not an unencrypted private key in PEM",
            id="the key is half-written",
        ),
        pytest.param(
            lambda m: TlsMaterial(b"", m.certificate, m.key), "ca.crt holds no certificate in PEM", id="no CA yet"
        ),
    ],
)
async def test_a_server_keeps_its_last_good_certificates(
    spoil: Callable[[TlsMaterial], TlsMaterial], failure: str, authority: Issuer
) -> None:
    good = authority.issue()
    fresh = authority.issue()
    spoiled = False

    def source() -> TlsMaterial:
        return spoil(fresh) if spoiled else good

    certificates = ServerCertificates(source)

    async with serving(certificates) as port:
        spoiled = True
        await call_server(port, channel_credentials(authority.issue()))

    assert certificates.current is good
    assert certificates.failure == failure


def test_a_key_of_another_certificate_is_noticed(authority: Issuer) -> None:
    one, other = authority.issue(), authority.issue()

    with pytest.raises(TlsMaterialError, match=r"tls\.key does not belong to tls\.crt"):
        TlsMaterial(one.ca, one.certificate, other.key).check()


def test_a_server_does_not_start_with_certificates_that_cannot_work(authority: Issuer) -> None:
    one, other = authority.issue(), authority.issue()

    with pytest.raises(TlsMaterialError):
        ServerCertificates(lambda: TlsMaterial(one.ca, one.certificate, other.key))


def test_certificates_are_read_from_the_files_of_a_mounted_secret(authority: Issuer, tmp_path: Path) -> None:
    written = authority.issue()
    write(tmp_path, written)

    read = load_material(tmp_path)

    assert read == written
    assert read.fingerprint == written.fingerprint
    leaf = x509.load_pem_x509_certificate(written.certificate)
    assert (read.valid_from, read.expires_at) == (leaf.not_valid_before_utc, leaf.not_valid_after_utc)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        pytest.param("ca.crt", None, r"ca\.crt cannot be read: No such file", id="a missing file"),
        pytest.param("tls.crt", b"", r"tls\.crt is empty", id="an empty file"),
        pytest.param("tls.key", b"x" * (1024 * 1024 + 1), r"tls\.key is too large", id="a huge file"),
        pytest.param("tls.crt", b"no PEM", r"tls\.crt holds no certificate", id="something else"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    name: str, content: bytes | None, problem: str, authority: Issuer, tmp_path: Path
) -> None:
    write(tmp_path, authority.issue())
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(TlsMaterialError, match=problem):
        load_material(tmp_path)


_SERVES = """
import pathlib, sys
from eso_wire.tls import ServerCertificates, load_material
certificates = ServerCertificates(lambda: load_material(pathlib.Path(sys.argv[1])))
certificates.credentials()
assert not certificates.current.has_invalid_dates()
print(*sys.modules)
"""


def test_a_server_checks_its_certificates_without_cryptography_which_takes_much_memory(
    authority: Issuer, tmp_path: Path
) -> None:
    write(tmp_path, authority.issue())

    completed = subprocess.run(
        [sys.executable, "-c", _SERVES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )

    assert "eso_wire.tls" in completed.stdout.split()
    assert "cryptography" not in completed.stdout.split()


def write(folder: Path, material: TlsMaterial) -> None:
    (folder / "ca.crt").write_bytes(material.ca)
    (folder / "tls.crt").write_bytes(material.certificate)
    (folder / "tls.key").write_bytes(material.key.reveal())


def test_the_fingerprint_changes_with_each_of_the_three_parts(authority: Issuer, stranger: Issuer) -> None:
    one, other = authority.issue(), stranger.issue()
    variants = [
        one,
        TlsMaterial(other.ca, one.certificate, one.key),
        TlsMaterial(one.ca, other.certificate, one.key),
        TlsMaterial(one.ca, one.certificate, other.key),
    ]

    assert len({variant.fingerprint for variant in variants}) == len(variants)


def test_material_does_not_print_its_key(authority: Issuer) -> None:
    material = authority.issue()

    assert "PRIVATE" not in repr(material)
    assert "<secret>" in repr(material)


def test_workload_names_say_trust_domain_namespace_and_name() -> None:
    assert service_id("td", "ns", "aws") == "spiffe://td/ns/ns/svc/aws"
    assert client_id("td", "ns", "core") == "spiffe://td/ns/ns/sa/core"
