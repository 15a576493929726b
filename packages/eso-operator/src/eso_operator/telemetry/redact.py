"""The last net before text leaves the process: what may stand in a log line, and values cut out of messages.

Code that writes a log line passes names and numbers. Should anything else get there, its type is shown instead of its
content. `without_secrets` is for texts that others wrote, say a backend's error, before they become a condition or an
event.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

from eso_api.values import SecretBytes
from kuberun.meta import ObjectKey
from kuberun.redaction import bounded

MAX_LOG_TEXT_BYTES: Final = 4096
_MAX_ENTRIES: Final = 200
_MAX_DEPTH: Final = 4
_SHORTEST: Final = 4  # shorter values occur in any sentence; masking them would only destroy it
MASK: Final = "<secret>"


def without_secrets(text: str, secrets: Iterable[SecretBytes]) -> str:
    """The text without these values, plain or in base64, longest first so that no remainder stays."""
    forms = {form for secret in secrets for form in _forms(secret.reveal())}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: only names, numbers and bounded texts are printed; anything else by its type."""
    for name, value in event.items():
        event[name] = _printable(value, _MAX_DEPTH)
    return event


def _printable(value: Any, depth: int) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return bounded(str(value), MAX_LOG_TEXT_BYTES)
        case ObjectKey():
            return str(value)
        case SecretBytes():
            return MASK
        case Mapping() if depth:
            return {str(key): _printable(member, depth - 1) for key, member in list(value.items())[:_MAX_ENTRIES]}
        case list() | tuple() | set() | frozenset() if depth:
            return [_printable(member, depth - 1) for member in list(value)[:_MAX_ENTRIES]]
        case _:
            return f"<{type(value).__name__}>"


def _forms(raw: bytes) -> Iterable[str]:
    if len(raw) < _SHORTEST:
        return
    try:
        yield raw.decode()
    except UnicodeDecodeError:
        yield binascii.hexlify(raw).decode()
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        yield encoded.decode().rstrip("=")
