"""The pushed value of a secret, computed from a Kubernetes Secret, and the check that Secrets Manager can store it."""

from __future__ import annotations

from typing import Final

import msgspec

from eso_api.values import SecretBytes
from eso_sdk.drafts import text_of
from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import PushItem

MAX_BYTES: Final = 65_536


def payload_of(item: PushItem) -> bytes:
    """Return the bytes of one key, or all keys of the Secret as one JSON object."""
    if isinstance(item.payload, SecretBytes):
        return item.payload.reveal()
    texts = {name: text_of(value.reveal(), item.remote.key, name) for name, value in item.payload.items()}
    return msgspec.json.encode(texts, order="sorted")


def storable(value: bytes | None, key: str) -> bytes:
    """Return the value; raise if Secrets Manager cannot store it."""
    if not value:
        raise invalid_request(f'the value for "{key}" is empty, and Secrets Manager keeps no empty values')
    if len(value) > MAX_BYTES:
        words = f'the value for "{key}" has more than {MAX_BYTES} bytes, the limit of Secrets Manager; split it'
        raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, words)
    return value
