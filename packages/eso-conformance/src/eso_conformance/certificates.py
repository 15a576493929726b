"""Certificates that a provider must refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that signs client certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(cls) -> Self:
        """Create an authority that no client trusts."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conformance")])
        builder = _builder(name, name, key, until=_now() + timedelta(hours=1))
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        return cls(builder.add_extension(constraints, critical=True).sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Self:
        """Load an authority from PEM."""
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise TypeError("the authority's key is not an elliptic-curve key")
        return cls(x509.load_pem_x509_certificate(certificate), private)

    def client(self, uri: str, *, until: datetime | None = None) -> tuple[bytes, bytes]:
        """Issue a client certificate with this identity; return it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conformance-client")])
        builder = _builder(name, self.certificate.subject, key, until=until or _now() + timedelta(hours=1))
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM), key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def uris_of(certificate: bytes) -> list[str]:
    """Return the identities that a certificate names."""
    try:
        names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(_now(), until) - timedelta(hours=1))
        .not_valid_after(until)
    )


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the provider uses the real clock
