"""Certificates with keys, in the forms that users push."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from kubebase.testing.signer import SINCE, UNTIL


def self_signed(name: str) -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    """Return a certificate with an RSA key, as Entra ID and Key Vault want it."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(SINCE).not_valid_after(UNTIL)
    return builder.sign(key, hashes.SHA256()), key


def pkcs12_of(name: str) -> bytes:
    """Return a certificate and its key as PKCS#12 without a password."""
    certificate, key = self_signed(name)
    return pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, NoEncryption())


def pem_of(name: str, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """Return a certificate and its key as PEM."""
    certificate, key = self_signed(name)
    return certificate.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, form, NoEncryption())


def leaf_of(raw: bytes) -> bytes:
    """Return the DER of the certificate in PKCS#12 or PEM."""
    if b"-----BEGIN" in raw:
        return x509.load_pem_x509_certificate(raw).public_bytes(Encoding.DER)
    found = pkcs12.load_pkcs12(raw, None).cert
    if found is None:
        raise ValueError("no certificate")
    return found.certificate.public_bytes(Encoding.DER)
