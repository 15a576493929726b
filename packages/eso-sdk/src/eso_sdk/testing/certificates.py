"""Throwaway certificates for tests of real servers: an authority, and leaves with SPIFFE names."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eso_api.values import SecretBytes
from eso_wire.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, TlsMaterial

SERVER_NAME = "provider.test"

# Wide enough for any clock; expiry itself is tested where certificates are issued.
_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_UNTIL = _FROM + timedelta(days=365 * 100)


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that one test trusts."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(cls, name: str = "test authority") -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = _builder(subject, subject, key, _UNTIL)
        ca = x509.BasicConstraints(ca=True, path_length=0)
        return cls(builder.add_extension(ca, critical=True).sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return _private_pem(self.key)

    def leaf(self, spiffe_id: str, *, until: datetime = _UNTIL) -> TlsMaterial:
        """A certificate for either end, trusting this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [
                x509.DNSName(SERVER_NAME),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.UniformResourceIdentifier(spiffe_id),
            ]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(_name("leaf"), self.certificate.subject, key, until)
        signed = (
            builder.add_extension(names, critical=False)
            .add_extension(usage, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        certificate = signed.public_bytes(serialization.Encoding.PEM)
        return TlsMaterial(self.pem, certificate, SecretBytes(_private_pem(key)))


def write_material(folder: Path, material: TlsMaterial) -> None:
    """The three files of a mounted Secret."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CA_FILE).write_bytes(material.ca)
    (folder / CERTIFICATE_FILE).write_bytes(material.certificate)
    (folder / KEY_FILE).write_bytes(material.key.reveal())


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(until)
    )
