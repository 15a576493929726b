"""Mutual TLS for both ends: certificates as values, gRPC credentials from them, and names of workloads.

There is no plaintext mode. Certificates change without a restart: a server reads its source at every handshake, a
client opens a new channel when the fingerprint changes. This module does not issue certificates.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import re
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from eso_api.values import SecretBytes

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

    def has_invalid_dates(self) -> bool:
        """Return whether peers refuse the certificate now because of its dates. For checked material."""
        return has_invalid_dates(self.certificate, self.key.reveal())

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


def peer_spiffe_ids(auth_context: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the workload names in the peer's verified certificate; none without a certificate."""
    return tuple(_text(name) for name in auth_context.get("peer_spiffe_id", ()))


# --- files and configuration -----------------------------------------------------------------------------------------


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


# --- a certificate and its key ---------------------------------------------------------------------------------------

# `cryptography` would check the same, but takes 10 MB of each process that imports it, and many providers need it for
# nothing else. Python's TLS library reads certificates and keys as a TLS peer does. No error quotes a key.

_INVALID_DATES: Final = {9, 10}
"""Codes of X509_verify_cert: not yet valid, expired."""
_MISMATCHES: Final = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}
"""Reasons of OpenSSL. The last one: the key is of another kind than that of the certificate."""
_ANY_STRENGTH: Final = "DEFAULT:@SECLEVEL=0"
"""Short keys are read, too: their peers decide about them."""


class Fit(Enum):
    """Whether a private key belongs to a certificate."""

    FITS = "fits"
    UNREADABLE = "unreadable"
    """It is not an unencrypted private key in PEM."""
    MISMATCH = "mismatch"


def are_certificates(pem: bytes) -> bool:
    """Return whether the text holds at least one certificate, and each of them can be read."""
    try:
        _trusting(pem)
    except (ssl.SSLError, ValueError):
        return False
    return True


def fit(certificate: bytes, key: bytes) -> Fit:
    """Return whether the key belongs to the first certificate. The certificates have been checked before."""
    try:
        _presenting(certificate, key)
    except ssl.SSLError as error:
        return Fit.MISMATCH if error.reason in _MISMATCHES else Fit.UNREADABLE
    except (_EncryptedKeyError, ValueError):
        return Fit.UNREADABLE
    return Fit.FITS


def has_invalid_dates(certificate: bytes, key: bytes) -> bool:
    """Return whether a client refuses the certificate now because of its dates, whoever has issued it.

    Both ends of a handshake run in memory. The client trusts the certificate itself. A handshake that fails for another
    reason says nothing about the dates.
    """
    try:
        _shake_hands(certificate, key)
    except ssl.SSLCertVerificationError as refusal:
        return refusal.verify_code in _INVALID_DATES
    except ssl.SSLError:
        pass
    return False


def _shake_hands(certificate: bytes, key: bytes) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = _trusting(certificate)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client = trusting.wrap_bio(to_client, to_server)
    server = _presenting(certificate, key).wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):  # the hello, the certificate, the verdict
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


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


class _EncryptedKeyError(Exception):
    """The key needs a password."""


def _refuse() -> NoReturn:
    """Stand in for a password; without it, OpenSSL would ask for one on the terminal."""
    raise _EncryptedKeyError


def _trusting(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_ciphers(_ANY_STRENGTH)
    # Comments between certificates may hold any text, which Python accepts as ASCII only.
    context.load_verify_locations(cadata="".join(chr(byte) if byte < 128 else "?" for byte in pem))
    return context


def _presenting(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(_ANY_STRENGTH)
    with in_memory_file(certificate) as chain, in_memory_file(key) as private:
        context.load_cert_chain(chain, private, _refuse)
    return context


# --- the dates of a certificate --------------------------------------------------------------------------------------

# Python's `ssl` checks certificates but does not return their dates. This reads only the beginning of the certificate:
#
#     Certificate { TBSCertificate { [0] version (optional), serialNumber, signature, issuer, validity { from, to } …
#
# It checks nothing else. The TLS library has read the certificate before, and peers judge it.

_BLOCK: Final = re.compile(rb"-----BEGIN ((?:X509 )?CERTIFICATE)-----([A-Za-z0-9+/=\s]*)-----END \1-----")
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_FIRST_YEAR_OF_UTC_TIME: Final = 1950


class Validity(NamedTuple):
    """The first and the last moment of validity."""

    not_before: datetime
    not_after: datetime


def validity_of(pem: bytes) -> Validity:
    """Return the dates of the first certificate. Raises ValueError if there is none, or it is malformed."""
    found = _BLOCK.search(pem)
    if found is None:
        raise ValueError("the text contains no certificate in PEM")
    try:
        signed = _element(binascii.a2b_base64(found[2]), 0, _SEQUENCE).content
        fields = _element(signed, 0, _SEQUENCE).content
        version = fields[:1] == bytes([_VERSION])
        at = 0
        for _ in range(4 if version else 3):
            at = _element(fields, at).end
        dates = _element(fields, at, _SEQUENCE).content
        first = _element(dates, 0)
        return Validity(_moment(first), _moment(_element(dates, first.end)))
    except (IndexError, binascii.Error) as error:
        raise ValueError("the certificate is malformed") from error


class _Element(NamedTuple):
    """An element of DER: `end` is where the next one begins."""

    tag: int
    content: bytes
    end: int


def _element(der: bytes, at: int, tag: int | None = None) -> _Element:
    """Return the element at this offset. Raises ValueError if it is incomplete or has another tag, and IndexError."""
    if tag is not None and der[at] != tag:
        raise ValueError("the certificate is malformed")
    size, begin = der[at + 1], at + 2
    if size >= 0x80:  # the length has this many bytes of its own
        digits = size - 0x80
        size, begin = int.from_bytes(der[begin : begin + digits], "big"), begin + digits
    if begin + size > len(der):
        raise ValueError("the certificate is malformed")
    return _Element(der[at], der[begin : begin + size], begin + size)


def _moment(element: _Element) -> datetime:
    digits = element.content.decode("ascii").removesuffix("Z")
    if element.tag == _UTC_TIME and len(digits) == len("YYMMDDHHMMSS"):
        century = 19 if int(digits[:2]) >= _FIRST_YEAR_OF_UTC_TIME % 100 else 20
        digits = f"{century}{digits}"
    elif element.tag != _GENERALIZED_TIME or len(digits) != len("YYYYMMDDHHMMSS"):
        raise ValueError("the certificate has malformed dates")
    year, rest = int(digits[:4]), [int(digits[at : at + 2]) for at in range(4, 14, 2)]
    return datetime(year, rest[0], rest[1], rest[2], rest[3], rest[4], tzinfo=UTC)
