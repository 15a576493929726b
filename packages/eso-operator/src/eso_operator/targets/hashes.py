"""Digests of content and metadata, equal to those of the Go operator, so that a takeover rewrites no Secret.

A digest is the SHA3-224 of the value as Go's `%+v` prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from gotmpl.floats import format_float

_NUMBERS: Final = tuple(str(byte).encode() for byte in range(256))
_SLICE: Final = 4096

Put = Callable[[bytes], None]
"""Takes the next piece of the printed value."""


def digest(value: Any) -> str:
    """Return the digest in lower-case hex. `SecretBytes` counts as the bytes it holds."""
    found = hashlib.sha3_224()
    _print(value, found.update)
    return found.hexdigest()


def data_digest(data: Mapping[str, SecretBytes]) -> str:
    """Return the digest of the data of a Secret."""
    return digest(data)


def metadata_digest(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the digest of labels and annotations, which is part of `status.syncedResourceVersion`."""
    found = hashlib.sha3_224(b"{annotations:")
    _print(annotations, found.update)
    found.update(b" labels:")
    _print(labels, found.update)
    found.update(b"}")
    return found.hexdigest()


def synced_version(generation: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return `status.syncedResourceVersion`, which changes with the spec and with any label or annotation."""
    return f"{generation}-{metadata_digest(labels, annotations)}"


def is_synced(es: ExternalSecret) -> bool:
    """Return whether spec, labels and annotations of an ExternalSecret are those of its last sync."""
    meta = es.metadata
    return es.status.synced_resource_version == synced_version(meta.generation, meta.labels, meta.annotations)


def owner_digest(namespace: str, name: str) -> str:
    """Return the value of the label that names the ExternalSecret that created a Secret."""
    return digest(f"{namespace}/{name}")


def _print(value: Any, put: Put) -> None:
    match value:
        case None:
            put(b"<nil>")
        case bool():
            put(b"true" if value else b"false")
        case str():
            put(value.encode("utf-8", "surrogateescape"))
        case SecretBytes():
            _print_bytes(value.reveal(), put)
        case bytes():
            _print_bytes(value, put)
        case int():
            put(str(value).encode())
        case float():
            put(format_float(value, "g", -1).encode())
        case Mapping():
            _print_mapping(value, put)
        case list() | tuple():
            put(b"[")
            for number, each in enumerate(value):
                if number:
                    put(b" ")
                _print(each, put)
            put(b"]")
        case _:
            raise TypeError(f"a {type(value).__name__} has no digest")


def _print_mapping(value: Mapping[Any, Any], put: Put) -> None:
    put(b"map[")
    for number, key in enumerate(sorted(value, key=lambda key: str(key).encode("utf-8", "surrogateescape"))):
        if number:
            put(b" ")
        _print(key, put)
        put(b":")
        _print(value[key], put)
    put(b"]")


def _print_bytes(value: bytes, put: Put) -> None:
    """Print bytes in pieces, so that the hashing thread releases the interpreter between them."""
    put(b"[")
    for start in range(0, len(value), _SLICE):
        if start:
            put(b" ")
        put(b" ".join([_NUMBERS[byte] for byte in value[start : start + _SLICE]]))
    put(b"]")
