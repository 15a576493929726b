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

from eso_tools.preflight.snapshot import Owner, Release, is_ours
from kubebase.meta import JsonObject
from kubebase.yamlvalues import YamlError, read_first

TYPE: Final = "helm.sh/release.v1"
RELEASE_NAME: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"
POLICY: Final = "helm.sh/resource-policy"
KEEP: Final = "keep"
CHART: Final = "external-secrets"
"""The name of the chart of the operator in Go, and of ours."""
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

_MAX_BYTES: Final = 64 << 20
_GZIP: Final = b"\x1f\x8b\x08"
_GZIP_FORMAT: Final = 31
_SEPARATOR: Final = re.compile(r"^---.*$", re.MULTILINE)
_IS_DEFINITION: Final = re.compile(r"""^kind:\s*["']?CustomResourceDefinition\b""", re.MULTILINE)
_LARGE: Final = re.compile(r"^(?:spec|status):.*\n(?:[ \t#].*\n|\n)*", re.MULTILINE)
"""The large parts of a definition at the top level: only its metadata is read."""
_CONVERSION: Final = re.compile(r"""^  conversion:\s*\n(?:    .*\n)*?    strategy:\s*["']?Webhook""", re.MULTILINE)
"""A conversion webhook in a definition, as the chart in Go writes it."""


class RecordError(ValueError):
    """The record cannot be read; the message says why, without its content."""


def owner_of(annotations: dict[str, str]) -> Owner | None:
    """Return the release that an object belongs to; None if Helm does not own it."""
    name = annotations.get(RELEASE_NAME, "")
    return Owner(annotations.get(RELEASE_NAMESPACE, ""), name) if name else None


def is_managed(labels: dict[str, str]) -> bool:
    """Return whether the label of an object says that Helm manages it."""
    return labels.get(_MANAGED_BY) == "Helm"


def release_of(owner: Owner, secret: JsonObject) -> Release:
    """Decode the Secret that holds the record."""
    if secret.get("type") != TYPE:
        raise RecordError(f"the Secret is not of type {TYPE}")
    record = _decoded((secret.get("data") or {}).get("release"))
    match record:
        case {
            "chart": {"metadata": {"name": str(name), "version": str(version), **metadata}, **chart},
            "manifest": str(manifest),
        }:
            part = CHART if name == CHART else _dependency(metadata.get("dependencies"))
            values = _values(record.get("config"))
            if part and name != CHART:
                values = _merged(_values(_values(chart.get("values")).get(part)), _values(values.get(part)))
            found = list(_definitions(manifest))
            return Release(
                owner,
                f"{name}-{version}",
                values,
                {crd: is_retained for crd, is_retained, _ in found},
                frozenset(crd for crd, _, converted in found if converted),
                part,
                version,
            )
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


def _dependency(dependencies: Any) -> str:
    """Return the name that a parent chart gives to the chart external-secrets; empty if it has no such dependency."""
    for each in dependencies if isinstance(dependencies, list) else ():
        match each:
            case {"name": "external-secrets", **more}:
                return str(more.get("alias") or CHART)
            case _:
                continue
    return ""


def _values(given: Any) -> JsonObject:
    return given if isinstance(given, dict) else {}


def _merged(defaults: JsonObject, values: JsonObject) -> JsonObject:
    """Merge maps and replace everything else, as Helm does."""
    both = {
        key: _merged(defaults[key], value)
        for key, value in values.items()
        if isinstance(value, dict) and isinstance(defaults.get(key), dict)
    }
    return {**defaults, **values, **both}


def _definitions(manifest: str) -> Iterator[tuple[str, bool, bool]]:
    """Yield the CRDs of External Secrets in the manifest: is it kept, and has it a conversion webhook?"""
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
                is_retained = isinstance(annotations, dict) and annotations.get(POLICY) == KEEP
                yield name, is_retained, _CONVERSION.search(document) is not None
            case _:
                continue
