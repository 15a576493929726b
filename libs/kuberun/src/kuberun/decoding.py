"""Decode the bytes of one object to its Python type; an object that does not fit becomes `Malformed`."""

from __future__ import annotations

import re
from collections.abc import Callable
from sys import intern
from typing import Generic, TypeVar

import msgspec

from kubebase.meta import Kind, Malformed, Object, ObjectMeta, meta_of
from kuberun.redaction import bounded

T = TypeVar("T")

_VALUE_IN_ERROR = re.compile(r"(Invalid (?:enum )?value) '.*?'(?=$| - at)", re.DOTALL)
_LONGEST_ERROR = 512
_MANIFEST_COPY = "kubectl.kubernetes.io/last-applied-configuration"


class ObjectDecoder(Generic[T]):
    """Decodes objects of one kind, each on its own: one bad object must never hide the others.

    Items of a list have no apiVersion and kind, and metadata-only objects have those of the metadata form. Both get the
    kind's own, so that an object looks the same however it was fetched. Metadata-only objects lose the copy of the
    whole manifest that `kubectl apply` keeps in an annotation: that of a Secret contains its values. With
    `annotations`, they keep only those whose names it accepts: users write up to 256 KiB of others on each object.
    """

    def __init__(self, kind: Kind[T], annotations: Callable[[str], bool] | None = None) -> None:
        self._annotations = annotations
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.type)
        self._api_version = kind.resource.api_version
        self._kind = kind.resource.kind
        self._only_metadata = kind.type is Object

    def decode(self, raw: bytes | msgspec.Raw) -> T | Malformed:
        try:
            found = self._decoder.decode(raw)
        except msgspec.DecodeError as exc:  # includes ValidationError
            return Malformed(_metadata(raw), error_text(exc))
        return self.labelled(found)

    def labelled(self, found: T) -> T:
        """Set the kind's own apiVersion and kind on the object, and share what many objects have in common."""
        if isinstance(found, Object):
            found.api_version, found.kind = self._api_version, self._kind
            if self._only_metadata:
                self._trim(found.metadata)
            _share(found.metadata)
        elif isinstance(found, dict):
            found["apiVersion"], found["kind"] = self._api_version, self._kind
        return found

    def _trim(self, meta: ObjectMeta) -> None:
        meta.annotations.pop(_MANIFEST_COPY, None)
        if self._annotations is not None and meta.annotations:
            kept = filter(self._annotations, meta.annotations)
            meta.annotations = {name: meta.annotations[name] for name in kept}


def _share(meta: ObjectMeta) -> None:
    """Let equal strings of all objects be one: caches keep thousands of objects with the same few labels and owners."""
    meta.namespace = intern(meta.namespace)
    if meta.labels:
        meta.labels = {intern(name): intern(value) for name, value in meta.labels.items()}
    if meta.annotations:
        meta.annotations = {intern(name): value for name, value in meta.annotations.items()}
    for owner in meta.owner_references:
        msgspec.structs.force_setattr(owner, "api_version", intern(owner.api_version))
        msgspec.structs.force_setattr(owner, "kind", intern(owner.kind))


def error_text(error: msgspec.DecodeError) -> str:
    """Return which field is wrong and what was expected there, without the value that was found."""
    return bounded(_VALUE_IN_ERROR.sub(r"\1", str(error)), _LONGEST_ERROR)


def _metadata(raw: bytes | msgspec.Raw) -> ObjectMeta:
    """Return as much of the metadata as can be read, so that the object can be named."""
    try:
        found = meta_of(msgspec.json.decode(raw, type=dict))
    except msgspec.DecodeError:
        return ObjectMeta()
    found.annotations.pop(_MANIFEST_COPY, None)
    return found
