"""Throw-away keys and certificates of a test server, as files: authority, loopback serving pair, signing key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from kubebase.clock import Clock
from kubebase.testing.signer import key_pem
from kuberun.testing.authority import Authority


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
