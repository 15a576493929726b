"""Mutual TLS for both ends: certificates as values, gRPC credentials from them, and names of workloads.

There is no plaintext mode. Certificates change without a restart: a server asks its source at every handshake, a client
opens a new channel when the fingerprint changes. This module does not issue certificates.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from eso_api.values import SecretBytes

CA_FILE = "ca.crt"
CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"

MAX_FILE_BYTES = 1024 * 1024


class TlsMaterialError(Exception):
    """The certificates are missing, unreadable or do not belong together. The message never quotes the key."""


@dataclass(frozen=True)
class TlsMaterial:
    """The certificates of one end, as PEM: its trusted CA, its own certificate and the private key."""

    ca: bytes
    certificate: bytes
    key: SecretBytes

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest that changes with any of the three; it reveals nothing about the key."""
        digest = hashlib.sha256()
        for content in (self.ca, self.certificate, self.key.reveal()):
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()

    @cached_property
    def expires_at(self) -> datetime:
        return self.leaf.not_valid_after_utc

    @cached_property
    def leaf(self) -> x509.Certificate:
        """Return this end's own certificate, the first of its chain."""
        return _certificates(self.certificate, CERTIFICATE_FILE)[0]

    def check(self) -> None:
        """Raise unless all three parse and the key belongs to the certificate. Expiry is not checked."""
        _certificates(self.ca, CA_FILE)
        try:
            public = load_pem_private_key(self.key.reveal(), password=None).public_key()
        except (ValueError, TypeError):
            message = f"{KEY_FILE} is not an unencrypted private key in PEM"
        else:
            message = ""
        if message:
            # Raised here, so that its cause cannot carry a piece of the key.
            raise TlsMaterialError(message)
        if _spki(public) != _spki(self.leaf.public_key()):
            raise TlsMaterialError(f"{KEY_FILE} does not belong to {CERTIFICATE_FILE}")


def load_material(folder: Path) -> TlsMaterial:
    """Load the three files of a mounted Secret. Raises TlsMaterialError if they are unusable, e.g. half-written."""
    material = TlsMaterial(
        ca=_read(folder / CA_FILE),
        certificate=_read(folder / CERTIFICATE_FILE),
        key=SecretBytes(_read(folder / KEY_FILE)),
    )
    material.check()
    return material


# --- credentials of gRPC ---------------------------------------------------------------------------------------------


def channel_credentials(material: TlsMaterial) -> grpc.ChannelCredentials:
    """Create the operator's credentials: it presents its certificate and trusts only `ca`."""
    return grpc.ssl_channel_credentials(
        root_certificates=material.ca,
        private_key=material.key.reveal(),
        certificate_chain=material.certificate,
    )


class ServerCertificates:
    """A provider's certificate and trusted CA, looked up again at every handshake.

    The source may fail or return a half-written set at any time. Then the last good set stays in use, and `failure`
    says why. gRPC calls this from its own threads.
    """

    def __init__(self, source: Callable[[], TlsMaterial]) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._current = source()
        self._current.check()
        self.reloads = 0
        self.failure = ""

    @property
    def current(self) -> TlsMaterial:
        return self._current

    def credentials(self) -> grpc.ServerCredentials:
        """Create the server credentials. The handshake refuses clients without a certificate of the trusted CA."""
        return grpc.dynamic_ssl_server_credentials(
            _server_configuration(self._current), self._fetch, require_client_authentication=True
        )

    def refresh(self) -> bool:
        """Load the source's current material; return True if it changed. Never raises."""
        try:
            fresh = self._source()
            if fresh.fingerprint == self._current.fingerprint:
                self.failure = ""
                return False
            fresh.check()
        except Exception as error:  # noqa: BLE001 - whatever the source does, the handshake must continue
            self.failure = str(error) if isinstance(error, TlsMaterialError) else type(error).__name__
            return False
        with self._lock:
            self._current = fresh
            self.reloads += 1
            self.failure = ""
        return True

    def _fetch(self) -> grpc.ServerCertificateConfiguration:
        # Always the whole configuration: "unchanged" would be relative to what another server of this object received.
        self.refresh()
        return _server_configuration(self._current)


# --- names of workloads ----------------------------------------------------------------------------------------------


def service_id(trust_domain: str, namespace: str, service: str) -> str:
    """Return the name of a provider: the Service it runs behind."""
    return f"spiffe://{trust_domain}/ns/{namespace}/svc/{service}"


def client_id(trust_domain: str, namespace: str, service_account: str) -> str:
    """Return the name of a caller: the service account it runs as."""
    return f"spiffe://{trust_domain}/ns/{namespace}/sa/{service_account}"


class PeerContext(Protocol):
    """The part of a servicer context that identifies the peer."""

    def auth_context(self) -> Mapping[str, Any]: ...


def peer_spiffe_ids(context: PeerContext) -> tuple[str, ...]:
    """Return the workload names in the peer's verified certificate; none without a certificate."""
    return tuple(_text(name) for name in context.auth_context().get("peer_spiffe_id", ()))


# --- parts -----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TlsMaterialError(f"{path} cannot be read: {error.strerror}") from error
    if not content or len(content) > MAX_FILE_BYTES:
        raise TlsMaterialError(f"{path} is {'empty' if not content else 'too large for a certificate'}")
    return content


def _certificates(pem: bytes, name: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise TlsMaterialError(f"{name} holds no certificate in PEM") from error


def _spki(public: Any) -> bytes:
    encoded: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _server_configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key.reveal(), material.certificate)], root_certificates=material.ca
    )


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


@contextmanager
def in_memory_file(content: bytes) -> Iterator[str]:
    """Provide the content as a file, because OpenSSL loads keys from files only; in memory where the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("eso-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:  # pragma: no cover - systems without memfd
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
