"""Certificates and keys in PEM: parsing, comparison, decryption and encoding. Makes no calls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from eso_api.values import SecretBytes
from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import PushItem

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_UNFIT: Final = (ValueError, TypeError, UnsupportedAlgorithm)
"""The errors of the library; their messages may quote the input."""


class NotPemError(Exception):
    """The input is not the expected PEM. The message shows nothing of the content."""


# --- responses of Certificate Manager --------------------------------------------------------------------------------


def certificates_in(response: Mapping[str, Any]) -> list[x509.Certificate]:
    """Return leaf and chain of a response of GetCertificate or ExportCertificate."""
    try:
        return x509.load_pem_x509_certificates("\n".join(_parts(response)).encode())
    except _UNFIT:
        raise NotPemError from None


def fingerprint(certificates: Sequence[x509.Certificate]) -> str:
    """Return the fingerprint of leaf and chain."""
    digest = hashlib.sha256()
    for certificate in certificates:
        digest.update(certificate.fingerprint(hashes.SHA256()))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Exported:
    """A certificate with its chain and its private key."""

    fingerprint: str
    certificates: str
    """Leaf and chain."""
    key: SecretBytes = field(repr=False)
    """Ends with a newline, as all texts that are made here."""

    @property
    def whole(self) -> SecretBytes:
        return SecretBytes(self.certificates.encode() + self.key.reveal())


def exported(response: Mapping[str, Any], passphrase: bytes) -> Exported:
    """Return the content of a response of ExportCertificate, with its key decrypted."""
    certificates = certificates_in(response)
    encrypted = str(response.get("PrivateKey", "")).encode()
    try:
        key = load_pem_private_key(encrypted, passphrase if b" ENCRYPTED PRIVATE KEY-" in encrypted else None)
        plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    except _UNFIT:
        raise NotPemError from None
    text = "".join(f"{part}\n" for part in _parts(response))
    return Exported(fingerprint(certificates), text, SecretBytes(plain.rstrip(b"\r\n") + b"\n"))


def _parts(response: Mapping[str, Any]) -> list[str]:
    found = [str(response.get(name) or "").rstrip("\r\n") for name in ("Certificate", "CertificateChain")]
    return [part for part in found if part]


# --- pushed certificates ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """A certificate to import."""

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: SecretBytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        return fingerprint((self.leaf, *self.chain))

    def parameters(self) -> dict[str, bytes]:
        """Return the parameters of ImportCertificate."""
        parameters = {"Certificate": self.leaf.public_bytes(Encoding.PEM), "PrivateKey": self.key.reveal()}
        if self.chain:
            parameters["CertificateChain"] = b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)
        return parameters

    def equals(self, certificates: Sequence[x509.Certificate]) -> bool:
        """Return whether this is what Certificate Manager has. It repeats a leaf that was imported without a chain."""
        chain = tuple(certificates[1:])
        return certificates[0] == self.leaf and (chain == self.chain or (not self.chain and chain == (self.leaf,)))


def bundle_of(item: PushItem, now: datetime) -> Bundle:
    """Return the certificate of a push.

    Raise a precise error for input that Certificate Manager would reject with a vague one.
    """
    where = f'the Secret pushed to "{item.remote.key}"'
    if item.secret_key or isinstance(item.payload, SecretBytes):
        raise invalid_request(
            f'"{item.remote.key}": a certificate is pushed as a whole kubernetes.io/tls Secret; remove secretKey'
        )
    leaf, *chain = _certificates(item.payload.get(CERTIFICATE), where)
    key = item.payload.get(KEY)
    if not key:
        raise invalid_request(f"{where} has no {KEY}; push a kubernetes.io/tls Secret")
    _check_key(leaf, key, where)
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        message = (
            f"the certificate of {where} has expired or is not valid yet; Certificate Manager takes valid ones only"
        )
        raise ProviderError(ErrorReason.INVALID_REQUEST, message, retry=RetryClass.BACKOFF)
    return Bundle(leaf, tuple(chain), key)


def _certificates(raw: SecretBytes | None, where: str) -> list[x509.Certificate]:
    if not raw:
        raise invalid_request(f"{where} has no {CERTIFICATE}; push a kubernetes.io/tls Secret")
    try:
        return x509.load_pem_x509_certificates(raw.reveal())
    except _UNFIT:
        raise invalid_request(f"{CERTIFICATE} of {where} is not a certificate in PEM") from None


def _check_key(leaf: x509.Certificate, key: SecretBytes, where: str) -> None:
    try:
        private = load_pem_private_key(key.reveal(), None)
        fits = private.public_key() == leaf.public_key()
    except _UNFIT:
        raise invalid_request(f"{KEY} of {where} is not a private key in PEM without a passphrase") from None
    if not fits:
        raise invalid_request(f"{KEY} of {where} does not belong to the first certificate of {CERTIFICATE}")
