"""Throw-away certificates for tests of real servers: an authority that signs them, all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Wide enough for any clock; expiry itself is tested where certificates are issued.
SINCE: Final = datetime(2020, 1, 1, tzinfo=UTC)
UNTIL: Final = SINCE + timedelta(days=365 * 100)

_EITHER_END: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Signer:
    """A certificate authority. `pem` is the certificate that the other end has to trust."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(cls, name: str = "test authority", *, since: datetime = SINCE, until: datetime = UNTIL) -> Self:
        """Create an authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = unsigned(name, key, since=since, until=until)
        ca = x509.BasicConstraints(ca=True, path_length=0)
        return cls(builder.add_extension(ca, critical=True).sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)

    def sign(
        self, name: str, others: Sequence[x509.GeneralName], *, since: datetime = SINCE, until: datetime = UNTIL
    ) -> Signed:
        """Issue a certificate that a server or a client can use; `others` are its alternative names."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            unsigned(name, key, self.certificate, since=since, until=until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(issuer, critical=False)
            .add_extension(x509.SubjectAlternativeName(others), critical=False)
            .add_extension(_EITHER_END, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Signed(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


def key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    """Return a private key in the format of a key file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def unsigned(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None = None,
    *,
    since: datetime = SINCE,
    until: datetime = UNTIL,
) -> x509.CertificateBuilder:
    """Start a certificate of this name and key, to be signed by the key of the issuer, or by its own key."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
