"""Digests of content and metadata, byte for byte those of the existing operator.

So that taking over a cluster rewrites nothing: the digest is SHA3-224 of the value as Go's `%+v` prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from eso_api.values import SecretBytes
from gotmpl.floats import format_float

_NUMBERS: Final = tuple(str(byte).encode() for byte in range(256))


def digest(value: Any) -> str:
    """Lower-case hex of the value's digest. `SecretBytes` counts as the bytes it holds."""
    return hashlib.sha3_224(_printed(value)).hexdigest()


def data_digest(data: Mapping[str, SecretBytes]) -> str:
    """Of the whole data of a Secret."""
    return digest(data)


def metadata_digest(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Of an object's metadata, part of `status.syncedResourceVersion`."""
    return hashlib.sha3_224(
        b"{annotations:" + _printed(annotations) + b" labels:" + _printed(labels) + b"}"
    ).hexdigest()


def synced_version(generation: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """`status.syncedResourceVersion`: changes with the spec and with any label or annotation."""
    return f"{generation}-{metadata_digest(labels, annotations)}"


def owner_digest(namespace: str, name: str) -> str:
    """The value of the label that says which ExternalSecret created a Secret."""
    return digest(f"{namespace}/{name}")


def _printed(value: Any) -> bytes:
    match value:
        case None:
            return b"<nil>"
        case bool():
            return b"true" if value else b"false"
        case str():
            return value.encode("utf-8", "surrogateescape")
        case SecretBytes():
            return _list(map(_NUMBERS.__getitem__, value.reveal()))
        case bytes():
            return _list(map(_NUMBERS.__getitem__, value))
        case int():
            return str(value).encode()
        case float():
            return format_float(value, "g", -1).encode()
        case Mapping():
            keys = sorted(value, key=lambda key: str(key).encode("utf-8", "surrogateescape"))
            return b"map[" + b" ".join(_printed(key) + b":" + _printed(value[key]) for key in keys) + b"]"
        case list() | tuple():
            return _list(map(_printed, value))
        case _:
            raise TypeError(f"a {type(value).__name__} has no digest")


def _list(parts: Iterable[bytes]) -> bytes:
    return b"[" + b" ".join(parts) + b"]"
