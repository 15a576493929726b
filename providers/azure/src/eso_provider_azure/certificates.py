"""Pushed certificates: PKCS#12 without a password, PEM with its key, or DER. They are imported if the leaf differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from azure.keyvault.certificates import CertificateContentType, CertificatePolicy, WellKnownIssuerNames
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from eso_provider_azure.settings import Settings
from eso_provider_azure.vault import Vault
from eso_sdk.errors import invalid_request

_PEM = b"-----BEGIN"


@dataclass(frozen=True, slots=True)
class PreparedCertificate:
    """A certificate that is ready to be imported."""

    leaf: bytes
    """In DER."""
    content: bytes = field(repr=False)
    is_pem: bool = False

    def equals(self, present: bytes) -> bool:
        """Return whether the vault has this certificate."""
        return self.leaf == present

    async def write(self, vault: Vault, name: str, tags: Mapping[str, str], settings: Settings) -> str:
        """Import the certificate, whose expiry is its own; return its version."""
        del settings
        kind = CertificateContentType.pem if self.is_pem else CertificateContentType.pkcs12
        policy = CertificatePolicy(issuer_name=WellKnownIssuerNames.unknown, content_type=kind)
        made = await vault.certificates.import_certificate(
            name, self.content, enabled=True, tags=dict(tags), policy=policy
        )
        version = made.properties.version if made.properties is not None else ""
        return version or ""


def prepared(raw: bytes, key: str) -> PreparedCertificate:
    """Read a certificate; errors name the remote key."""
    try:
        return _of_pem(raw) if _PEM in raw else _of_binary(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm, IndexError):
        raise invalid_request(
            f'the value for "{key}" is not a certificate: write PKCS#12 without a password, PEM with a private key, or'
            " DER"
        ) from None


def _of_pem(raw: bytes) -> PreparedCertificate:
    """Return certificate and key in the one form of PEM that Key Vault reads: the key as PKCS#8."""
    chain = x509.load_pem_x509_certificates(raw)
    key = load_pem_private_key(_key_block(raw), None)
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [each.public_bytes(Encoding.PEM) for each in chain]
    return PreparedCertificate(chain[0].public_bytes(Encoding.DER), b"".join(parts), is_pem=True)


def _key_block(raw: bytes) -> bytes:
    """Return the private key of a PEM file that also holds certificates."""
    blocks = raw.split(_PEM)[1:]
    return _PEM + next((block for block in blocks if b"PRIVATE KEY-----" in block.partition(b"\n")[0]), b"")


def _of_binary(raw: bytes) -> PreparedCertificate:
    try:
        return PreparedCertificate(x509.load_der_x509_certificate(raw).public_bytes(Encoding.DER), raw)
    except ValueError:
        bundle = pkcs12.load_pkcs12(raw, None)
    if bundle.cert is None:
        raise ValueError("no certificate")
    return PreparedCertificate(bundle.cert.certificate.public_bytes(Encoding.DER), raw)
