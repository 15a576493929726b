"""A throw-away certificate authority for tests of connections: certificates for clients, TLS for servers."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from kubebase.clock import Clock
from kubebase.testing.signer import Signer, key_pem
from kuberun.connection import ClientCertificate

_VALID_FOR = timedelta(days=2)


class Authority:
    """A certificate authority; clients have to trust its `pem`."""

    def __init__(self, now: datetime) -> None:
        self._since, self._until = now - _VALID_FOR, now + _VALID_FOR
        self._signer = Signer.make(since=self._since, until=self._until)
        self.pem = self._signer.pem

    def issue(self, common_name: str, *, address: str = "") -> ClientCertificate:
        """Issue a certificate for a server (with its name or address) or for a client."""
        names: list[x509.GeneralName] = [x509.DNSName(common_name)]
        if address:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        signed = self._signer.sign(common_name, names, since=self._since, until=self._until)
        return ClientCertificate(signed.certificate, signed.key)

    def server_context(self, folder: Path, server: ClientCertificate, *, client_authority: bool) -> ssl.SSLContext:
        """Create a TLS context for a server; with `client_authority` it requires certificates of this authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        chain = folder / "server.pem"
        chain.write_bytes(server.certificate + server.key)
        context.load_cert_chain(chain)
        if client_authority:
            context.load_verify_locations(cadata=self.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context


# --- Throw-away keys and certificates of a test server, as files: authority, loopback serving pair, signing key -------


@dataclass(frozen=True, slots=True)
class KeyFiles:
    authority: Path
    certificate: Path
    key: Path
    signing_key: Path
    """Key that signs service-account tokens."""


def write_keys(folder: Path, clock: Clock) -> KeyFiles:
    files = KeyFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key", folder / "sa.key")
    authority = Authority(clock.now())
    serving = authority.issue("localhost", address="127.0.0.1")
    files.authority.write_bytes(authority.pem)
    files.certificate.write_bytes(serving.certificate)
    files.key.write_bytes(serving.key)
    files.signing_key.write_bytes(key_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    return files
