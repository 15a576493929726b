"""Digests of content and metadata, equal to those of the Go operator, so that a takeover rewrites no Secret.

A digest is the SHA3-224 of the value as Go's `%+v` prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from eso_api.values import SecretBytes
from gotmpl.floats import format_float

_NUMBERS: Final = tuple(str(byte).encode() for byte in range(256))
_SLICE: Final = 4096


def digest(value: Any) -> str:
    """Return the digest in lower-case hex. `SecretBytes` counts as the bytes it holds."""
    return _hashed(_pieces(value))


def data_digest(data: Mapping[str, SecretBytes]) -> str:
    """Return the digest of the data of a Secret."""
    return digest(data)


def metadata_digest(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the digest of labels and annotations, which is part of `status.syncedResourceVersion`."""
    return _hashed([b"{annotations:", *_pieces(annotations), b" labels:", *_pieces(labels), b"}"])


def synced_version(generation: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return `status.syncedResourceVersion`, which changes with the spec and with any label or annotation."""
    return f"{generation}-{metadata_digest(labels, annotations)}"


def owner_digest(namespace: str, name: str) -> str:
    """Return the value of the label that names the ExternalSecret that created a Secret."""
    return digest(f"{namespace}/{name}")


def _hashed(pieces: Iterable[bytes]) -> str:
    found = hashlib.sha3_224()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    match value:
        case None:
            yield b"<nil>"
        case bool():
            yield b"true" if value else b"false"
        case str():
            yield value.encode("utf-8", "surrogateescape")
        case SecretBytes():
            yield from _numbers(value.reveal())
        case bytes():
            yield from _numbers(value)
        case int():
            yield str(value).encode()
        case float():
            yield format_float(value, "g", -1).encode()
        case Mapping():
            keys = sorted(value, key=lambda key: str(key).encode("utf-8", "surrogateescape"))
            yield from _between(b"map[", (_entry(key, value[key]) for key in keys))
        case list() | tuple():
            yield from _between(b"[", map(_pieces, value))
        case _:
            raise TypeError(f"a {type(value).__name__} has no digest")


def _entry(key: Any, value: Any) -> Iterator[bytes]:
    yield from _pieces(key)
    yield b":"
    yield from _pieces(value)


def _numbers(value: bytes) -> Iterator[bytes]:
    """Print bytes in pieces, so that the hashing thread releases the interpreter between them."""
    slices = (value[start : start + _SLICE] for start in range(0, len(value), _SLICE))
    return _between(b"[", ((b" ".join([_NUMBERS[byte] for byte in part]),) for part in slices))


def _between(opening: bytes, parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    yield opening
    for number, part in enumerate(parts):
        if number:
            yield b" "
        yield from part
    yield b"]"
