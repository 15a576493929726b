"""Certificates made on the spot, as a fixture: test folders are no packages to import from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eso_api.values import SecretBytes
from eso_wire.tls import TlsMaterial

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A CA for tests. `issue` makes a leaf that both ends can use."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str = "test CA") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(name, key, name, valid_for=DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self, name: str = "localhost", *, uri: str = "", valid_for: timedelta = DAY, trust: bytes = b""
    ) -> TlsMaterial:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]
        if name != "localhost":
            names.pop()
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        leaf = (
            _builder(name, key, self._name, valid_for=valid_for)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return TlsMaterial(ca=trust or self.pem, certificate=leaf.public_bytes(Encoding.PEM), key=SecretBytes(pem))

    @property
    def _name(self) -> str:
        return str(self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _builder(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, *, valid_for: timedelta
) -> x509.CertificateBuilder:
    """Valid since yesterday; a negative `valid_for` makes one that has expired."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + valid_for)
    )


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create()


@pytest.fixture(scope="session")
def stranger() -> Authority:
    """A CA nobody trusts."""
    return Authority.create("stranger")
