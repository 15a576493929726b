"""Throw-away keys and certificates for a test server: an authority, a loopback serving pair, a signing key."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from kuberun.clock import Clock

VALID_FOR = timedelta(days=2)
CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyFiles:
    authority: Path
    certificate: Path
    key: Path
    signing_key: Path
    """Signs service-account tokens."""


def write_keys(folder: Path, clock: Clock) -> KeyFiles:
    files = KeyFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key", folder / "sa.key")
    authority_key = ec.generate_private_key(ec.SECP256R1())
    serving_key = ec.generate_private_key(ec.SECP256R1())
    authority = _sign(
        _name("test authority"), authority_key.public_key(), _name("test authority"), authority_key, clock
    )
    serving = _sign(_name("kube-apiserver"), serving_key.public_key(), authority.subject, authority_key, clock)
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(serving.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(_pem(serving_key))
    files.signing_key.write_bytes(_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    return files


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    clock: Clock,
) -> x509.Certificate:
    is_authority = subject == issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(clock.now() - CLOCK_SKEW)
        .not_valid_after(clock.now() + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if not is_authority:
        loopback = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(loopback), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
