"""Helm's record of a release: a Secret whose key `release` is base64 of gzipped JSON. Pure.

The stored manifest decides what `helm uninstall` deletes, whatever annotations the live objects carry.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from eso_cli.preflight.snapshot import Owner, Release, is_ours
from kubebase.meta import JsonObject
from kubebase.yamlvalues import YamlError, read_first

TYPE: Final = "helm.sh/release.v1"
RELEASE_NAME: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"
POLICY: Final = "helm.sh/resource-policy"
KEEP: Final = "keep"

_MAX_BYTES: Final = 64 << 20
_GZIP: Final = b"\x1f\x8b\x08"
_GZIP_FORMAT: Final = 31
_SEPARATOR: Final = re.compile(r"^---.*$", re.MULTILINE)
_IS_DEFINITION: Final = re.compile(r"""^kind:\s*["']?CustomResourceDefinition\b""", re.MULTILINE)
_LARGE: Final = re.compile(r"^(?:spec|status):.*\n(?:[ \t#].*\n|\n)*", re.MULTILINE)
"""The large parts of a definition at the top level: only its metadata is read."""


class RecordError(ValueError):
    """The record cannot be read; the message says why, without its content."""


def owner_of(annotations: dict[str, str]) -> Owner | None:
    """Return the release that an object belongs to; None if Helm does not own it."""
    name = annotations.get(RELEASE_NAME, "")
    return Owner(annotations.get(RELEASE_NAMESPACE, ""), name) if name else None


def release_of(owner: Owner, secret: JsonObject) -> Release:
    """Decode the Secret that holds the record."""
    if secret.get("type") != TYPE:
        raise RecordError(f"the Secret is not of type {TYPE}")
    record = _decoded((secret.get("data") or {}).get("release"))
    match record:
        case {"chart": {"metadata": {"name": str(name), "version": str(version)}}, "manifest": str(manifest)}:
            config = record.get("config")
            values = config if isinstance(config, dict) else {}
            return Release(owner, f"{name}-{version}", values, dict(_definitions(manifest)))
        case _:
            raise RecordError("it has another form than that of Helm 3")


def _decoded(text: Any) -> Any:
    if not isinstance(text, str):
        raise RecordError("the Secret has no key release")
    try:
        raw = base64.b64decode(base64.b64decode(text), validate=True)
        if raw.startswith(_GZIP):
            unpacker = zlib.decompressobj(_GZIP_FORMAT)
            raw = unpacker.decompress(raw, _MAX_BYTES)
            if unpacker.unconsumed_tail:
                raise RecordError(f"it is larger than {_MAX_BYTES >> 20} MiB")
        return msgspec.json.decode(raw)
    except (binascii.Error, zlib.error, msgspec.DecodeError):
        raise RecordError("it is not base64 of gzipped JSON") from None


def _definitions(manifest: str) -> Iterator[tuple[str, bool]]:
    """Yield each CRD of External Secrets in the manifest, and whether Helm is told to keep it."""
    for document in _SEPARATOR.split(manifest):
        if not _IS_DEFINITION.search(document):
            continue
        try:
            head = read_first(_LARGE.sub("", document + "\n").encode())
        except YamlError as problem:
            raise RecordError(f"a CRD in its manifest cannot be read: line {problem.line}") from None
        match head:
            case {"metadata": {"name": str(name), **metadata}} if is_ours(name.partition(".")[2]):
                annotations = metadata.get("annotations")
                yield name, isinstance(annotations, dict) and annotations.get(POLICY) == KEEP
            case _:
                continue
