"""TLS contexts for talking to an API server."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from kuberun.connection import ClientCertificate, Tls
from kuberun.errors import ConfigError


def client_context(tls: Tls, certificate: ClientCertificate | None, origin: str) -> ssl.SSLContext:
    """Create a context that verifies the server as `tls` says and presents `certificate`; `origin` is for messages."""
    try:
        context = ssl.create_default_context(cadata=tls.ca.decode("ascii") if tls.ca else None)
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigError(f"{origin}: the certificate authority is not a certificate in PEM form") from exc
    # The authorities of many clusters lack the key identifiers that the strict mode of newer Pythons requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load(context, certificate, origin)
    return context


def _load(context: ssl.SSLContext, certificate: ClientCertificate, origin: str) -> None:
    try:
        with as_file(certificate.certificate + b"\n" + certificate.key) as path:
            context.load_cert_chain(path, password=_no_password)
    except (ssl.SSLError, ValueError) as exc:
        raise ConfigError(f"{origin}: client certificate and key are not a pair in PEM form") from exc


def _no_password() -> str:
    """Fail for an encrypted key: otherwise OpenSSL would prompt on the terminal and wait."""
    raise ValueError("the client key is encrypted")


@contextmanager
def as_file(data: bytes) -> Generator[str, None, None]:
    """Provide `data` as a file, because OpenSSL accepts no bytes; in memory if possible, to keep keys off the disk."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("certificate")
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp()
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        yield path
    finally:
        os.close(handle)
        if not path.startswith("/proc/"):
            os.unlink(path)  # noqa: PTH108  next to mkstemp
