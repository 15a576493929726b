"""Find out why a connection to a provider fails: a reason and a sentence.

gRPC reports every failed handshake as UNAVAILABLE. In that case this module opens its own TLS connection with the same
certificates and finds the cause: name resolution, connecting, the server's certificate, or the alert by which the
server rejects ours. It runs only after a failure, and makes no gRPC call.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from eso_wire.tls import TlsMaterial, TlsMaterialError, in_memory_file


class TlsProblemKind(StrEnum):
    """Kinds of problems; the values are condition reasons."""

    DNS_FAILURE = "DNSFailure"
    REFUSED = "Refused"
    SERVER_CERT_EXPIRED = "ServerCertExpired"
    UNKNOWN_CA = "UnknownCA"
    HOSTNAME_MISMATCH = "HostnameMismatch"
    CLIENT_CERT_REJECTED = "ClientCertRejected"
    TIMEOUT = "Timeout"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class TlsProblem:
    """A connection problem, for a condition: `kind` is its reason, `message` its text."""

    kind: TlsProblemKind
    message: str

    def __str__(self) -> str:
        return self.message


def _nothing(_address: str) -> bool:
    return False


async def diagnose(
    host: str,
    port: int,
    *,
    server_name: str,
    material: TlsMaterial,
    deadline: float,
    refused: Callable[[str], bool] = _nothing,
) -> TlsProblem | None:
    """Return the problem, or None if the server accepts our connection. `deadline` is in seconds.

    If the host resolves to a `refused` address, no connection is attempted.
    """
    where = f"{host}:{port}"
    try:
        material.check()
        async with asyncio.timeout(deadline):
            return await _attempt(host, port, server_name, material, refused)
    except TlsMaterialError as error:
        return TlsProblem(TlsProblemKind.UNKNOWN, f"our own certificates cannot be used: {error}")
    except TimeoutError:
        return TlsProblem(
            TlsProblemKind.TIMEOUT, f"{where} did not answer within {deadline:g} s; check network policies and the pod"
        )


# --- one attempt -----------------------------------------------------------------------------------------------------


async def _attempt(
    host: str, port: int, server_name: str, material: TlsMaterial, refused: Callable[[str], bool]
) -> TlsProblem | None:
    where = f"{host}:{port}"
    try:
        addresses = await _addresses(host, port)
    except OSError as error:
        return TlsProblem(
            TlsProblemKind.DNS_FAILURE, f"the name {host} does not resolve ({error.strerror}); check the address"
        )
    if any(refused(address.partition("%")[0]) for address in addresses):
        return TlsProblem(TlsProblemKind.UNKNOWN, f"{host} leads to an address that is never dialled")
    context = _client_context(material)
    try:
        reader, writer = await _connect(addresses, port, context, server_name)
    except ssl.SSLCertVerificationError as error:
        return _of_server_certificate(error, where, server_name)
    except ssl.SSLError as error:
        return _of_alert(error, where)
    except ConnectionRefusedError:
        return TlsProblem(TlsProblemKind.REFUSED, f"{where} refuses connections; is the provider running?")
    except TimeoutError:
        raise
    except OSError as error:
        return TlsProblem(TlsProblemKind.UNKNOWN, f"{where} cannot be connected to: {_text_of(error)}")
    try:
        return await _verdict(reader, where)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def _connect(
    addresses: list[str], port: int, context: ssl.SSLContext, server_name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that accepts; only the last address' connection error is raised.

    Certificate errors are raised at once: they are the same at every address.
    """
    for address in addresses[:-1]:
        with contextlib.suppress(ConnectionError):
            return await asyncio.open_connection(address, port, ssl=context, server_hostname=server_name)
    return await asyncio.open_connection(addresses[-1], port, ssl=context, server_hostname=server_name)


async def _verdict(reader: asyncio.StreamReader, where: str) -> TlsProblem | None:
    """Wait for the server's verdict on our certificate, which TLS 1.3 delivers after the handshake.

    A server that accepts the certificate sends HTTP/2 settings. One that rejects it sends an alert or, like gRPC's own
    servers, just closes the connection.
    """
    try:
        if await reader.read(1):
            return None
    except ssl.SSLError as error:
        return _of_alert(error, where)
    except OSError:
        pass
    return TlsProblem(
        TlsProblemKind.CLIENT_CERT_REJECTED,
        f"{where} closes the connection when it sees our client certificate; compare its ca.crt with our certificate",
    )


# --- verdicts --------------------------------------------------------------------------------------------------------

# Codes of X509_verify_cert.
_EXPIRED = {9, 10}
_WRONG_NAME = {62, 64}


def _of_server_certificate(error: ssl.SSLCertVerificationError, where: str, server_name: str) -> TlsProblem:
    if error.verify_code in _EXPIRED:
        return TlsProblem(
            TlsProblemKind.SERVER_CERT_EXPIRED,
            f"the certificate of {where} is outside its validity ({error.verify_message}); is it renewed?",
        )
    if error.verify_code in _WRONG_NAME:
        return TlsProblem(
            TlsProblemKind.HOSTNAME_MISMATCH, f"the certificate of {where} is not for the name {server_name}"
        )
    return TlsProblem(
        TlsProblemKind.UNKNOWN_CA,
        f"the certificate of {where} is not from a CA we trust ({error.verify_message}); compare both sides' ca.crt",
    )


def _of_alert(error: ssl.SSLError, where: str) -> TlsProblem:
    reason = error.reason or ""
    if "ALERT" in reason and any(part in reason for part in ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")):
        return TlsProblem(
            TlsProblemKind.CLIENT_CERT_REJECTED,
            f"{where} refuses our client certificate ({reason.lower()}); compare its ca.crt with our certificate",
        )
    return TlsProblem(TlsProblemKind.UNKNOWN, f"TLS with {where} fails: {reason.lower() or _text_of(error)}")


def _text_of(error: OSError) -> str:
    return error.strerror or type(error).__name__


# --- our side --------------------------------------------------------------------------------------------------------


def _client_context(material: TlsMaterial) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=material.ca.decode("ascii", errors="replace"))
    with in_memory_file(material.certificate + b"\n" + material.key.reveal()) as path:
        context.load_cert_chain(path)
    return context
