"""A throw-away certificate authority for tests: signs server and client certificates, all in memory."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from kuberun.connection import ClientCertificate

_VALID_FOR = timedelta(days=2)


class Authority:
    """`pem` is what a client has to trust."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test authority")
        self.pem = self._signed(self._name, self._key.public_key(), None)

    def issue(self, common_name: str, *, address: str = "") -> ClientCertificate:
        """A certificate for a server (with its name or address) or for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(common_name)]
        if address:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        return ClientCertificate(self._signed(_name(common_name), key.public_key(), names), key_pem(key))

    def server_context(self, folder: Path, server: ClientCertificate, *, client_authority: bool) -> ssl.SSLContext:
        """TLS for a server; with `client_authority` it demands certificates of this authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        chain = folder / "server.pem"
        chain.write_bytes(server.certificate + server.key)
        context.load_cert_chain(chain)
        if client_authority:
            context.load_verify_locations(cadata=self.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, names: list[x509.GeneralName] | None
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _VALID_FOR)
            .not_valid_after(self._now + _VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
