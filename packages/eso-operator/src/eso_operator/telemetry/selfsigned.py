"""A self-signed certificate for a server of the operator. Loads cryptography, so import it on use."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubebase.clock import Clock
from kuberun.tls import as_file

_SELF_SIGNED_FOR: Final = timedelta(days=365)


def load(context: ssl.SSLContext, common_name: str, clock: Clock) -> None:
    """Make a self-signed certificate for clients that do not verify."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _SELF_SIGNED_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with as_file(chain) as path:  # in memory: the root file system of a pod may be read-only
        context.load_cert_chain(path)
