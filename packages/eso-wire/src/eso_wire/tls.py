"""Mutual TLS for both ends: certificates as values, gRPC credentials from them, and names of workloads.

There is no plaintext mode. Certificates change without a restart: a server asks its source at every handshake, a client
opens a new channel when the fingerprint changes. This module does not issue certificates.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eso_api.values import SecretBytes
from eso_wire.tlspair import Fit, are_certificates, fit, is_outside_validity
from eso_wire.validity import Validity, validity_of

if TYPE_CHECKING:  # `eso up` calls no provider
    import grpc

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

    @property
    def valid_from(self) -> datetime:
        """Return when this end's own certificate, the first of its chain, becomes valid."""
        return self._validity.not_before

    @property
    def expires_at(self) -> datetime:
        return self._validity.not_after

    @cached_property
    def _validity(self) -> Validity:
        try:
            return validity_of(self.certificate)
        except ValueError as error:
            raise TlsMaterialError(f"{CERTIFICATE_FILE} holds no certificate in PEM") from error

    def is_outside_validity(self) -> bool:
        """Return whether peers refuse the certificate now because of its dates. For checked material."""
        return is_outside_validity(self.certificate, self.key.reveal())

    def check(self) -> None:
        """Raise unless all three parse and the key belongs to the certificate. Expiry is not checked."""
        for pem, name in ((self.ca, CA_FILE), (self.certificate, CERTIFICATE_FILE)):
            if not are_certificates(pem):
                raise TlsMaterialError(f"{name} holds no certificate in PEM")
        match fit(self.certificate, self.key.reveal()):
            case Fit.UNREADABLE:
                raise TlsMaterialError(f"{KEY_FILE} is not an unencrypted private key in PEM")
            case Fit.MISMATCH:
                raise TlsMaterialError(f"{KEY_FILE} does not belong to {CERTIFICATE_FILE}")
            case Fit.FITS:
                pass


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
    import grpc

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
        import grpc

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


def _server_configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    import grpc

    return grpc.ssl_server_certificate_configuration(
        [(material.key.reveal(), material.certificate)], root_certificates=material.ca
    )


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
