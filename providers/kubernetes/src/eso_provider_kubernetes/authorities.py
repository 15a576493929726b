"""CA bundles as manifests carry them: PEM, or PEM that was encoded in base64 once or twice."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from cryptography import x509

from eso_sdk.errors import invalid_config

_ROUNDS: Final = 2
_BEGIN: Final = b"-----BEGIN"


def bundle_of(raw: bytes, pointer: str) -> bytes:
    """The certificates in PEM form."""
    pem = raw
    for _ in range(_ROUNDS):
        if _BEGIN in pem:
            break
        try:
            pem = base64.b64decode(b"".join(pem.split()), validate=True)
        except (binascii.Error, ValueError):
            break
    try:
        x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise invalid_config(pointer, "must hold CA certificates in PEM form") from None
    return pem
