"""A certificate and its private key in PEM, checked by the TLS library of Python.

`cryptography` would check the same, but takes 10 MB of each process that imports it, and many providers need it for
nothing else. Certificates and keys are read here as a TLS peer reads them. No error quotes a key.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final, NoReturn

_OUTSIDE_VALIDITY: Final = {9, 10}
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


def is_outside_validity(certificate: bytes, key: bytes) -> bool:
    """Return whether a client refuses the certificate now because of its dates, whoever has issued it.

    Both ends of a handshake run in memory. The client trusts the certificate itself. A handshake that fails for another
    reason says nothing about the dates.
    """
    try:
        _shake_hands(certificate, key)
    except ssl.SSLCertVerificationError as refusal:
        return refusal.verify_code in _OUTSIDE_VALIDITY
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
