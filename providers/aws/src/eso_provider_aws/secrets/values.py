"""The pushed value of a secret, computed from a Kubernetes Secret, and the check that Secrets Manager can store it."""

from __future__ import annotations

from typing import Final

from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError

MAX_BYTES: Final = 65_536


def storable(value: bytes | None, key: str) -> bytes:
    """Return the value; raise if Secrets Manager cannot store it."""
    if not value:
        raise invalid_request(f'the value for "{key}" is empty, and Secrets Manager keeps no empty values')
    if len(value) > MAX_BYTES:
        words = f'the value for "{key}" has more than {MAX_BYTES} bytes, the limit of Secrets Manager; split it'
        raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, words)
    return value
