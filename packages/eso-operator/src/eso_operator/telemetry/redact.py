"""The last safeguard before text leaves the process: it limits what a log line may contain.

Code that writes a log line passes names and numbers. For any other object, the log shows its type instead of its
content. Values are removed from the texts of providers when these arrive (`calling.redaction`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from eso_api.values import SecretBytes
from kubebase.meta import ObjectKey
from kuberun.redaction import bounded

MAX_LOG_TEXT_BYTES: Final = 4096
_MAX_ENTRIES: Final = 200
_MAX_DEPTH: Final = 4
_MASK: Final = "<secret>"


def printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Print names, numbers and bounded texts as they are, and any other value by its type. A structlog processor."""
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
            return _MASK
        case Mapping() if depth:
            return {str(key): _printable(member, depth - 1) for key, member in list(value.items())[:_MAX_ENTRIES]}
        case list() | tuple() | set() | frozenset() if depth:
            return [_printable(member, depth - 1) for member in list(value)[:_MAX_ENTRIES]]
        case _:
            return f"<{type(value).__name__}>"
