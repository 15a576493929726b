"""Labels, annotations and field managers on targets, and what a target says of generated values. Pure.

All are equal to those of the Go operator, except the annotation of generated values, which is ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.targets.hashes import owner_digest
from kubebase.meta import OwnerReference
from kuberun.ownership import controller_reference

MANAGED_LABEL: Final = "reconcile.external-secrets.io/managed"
MANAGED: Final = "true"
CREATED_BY_LABEL: Final = "reconcile.external-secrets.io/created-by"
HASH_ANNOTATION: Final = "reconcile.external-secrets.io/data-hash"
GENERATED_PREFIX: Final = "reconcile.external-secrets.io/generated-"
"""Followed by the uid of an ExternalSecret: several may write to one target, each with an annotation of its own."""
FINALIZER: Final = "externalsecrets.external-secrets.io/externalsecret-cleanup"

TARGET_INDEX: Final = "target"
"""The index of ExternalSecrets by namespace and name of the Secret that they write to."""

_RESOURCE: Final = EXTERNAL_SECRET.resource()
_MANAGER: Final = "externalsecrets.external-secrets.io"
_MAX_MANAGER_BYTES: Final = 63
_MAX_STATES: Final = 64

OWNER, ORPHAN, MERGE, CREATE_OR_MERGE, NONE = "Owner", "Orphan", "Merge", "CreateOrMerge", "None"
"""Creation policies."""


def field_manager_of(name: str) -> str:
    """Return the field manager that writes the target of the ExternalSecret of this name."""
    plain = f"{_MANAGER}/{name}"
    if len(plain.encode()) <= _MAX_MANAGER_BYTES:
        return plain
    return f"{_MANAGER}/sha3/{hashlib.sha3_224(name.encode()).hexdigest()}"


def is_field_manager(name: str) -> bool:
    """Return whether this is the field manager of an ExternalSecret."""
    return name.startswith(f"{_MANAGER}/")


def created_by(es: ExternalSecret) -> str:
    """Return the value of the label that names the ExternalSecret that created a Secret."""
    return owner_digest(es.metadata.namespace, es.metadata.name)


def controller_reference_of(es: ExternalSecret) -> OwnerReference:
    return controller_reference(_RESOURCE, es.metadata)


def target_name(es: ExternalSecret) -> str:
    return es.spec.target.name or es.metadata.name


# --- generated values -------------------------------------------------------------------------------------------------


class GeneratedMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The annotation of a target that holds generated values, written together with them.

    After a lost status it says that the values exist, so that they are not generated again.
    """

    time: str
    """When they were generated: `status.refreshTime` of that sync."""
    version: str
    """The version of the ExternalSecret: `status.syncedResourceVersion` of that sync."""
    renew_time: str | None = None
    """When they must be generated again: `status.renewTime` of that sync."""
    states: tuple[str, ...] | None = None
    """The names of their GeneratorStates; None if there are too many to list."""


def generated_annotation(es: ExternalSecret) -> str:
    """Return the key of the annotation about values that this very ExternalSecret generated."""
    return GENERATED_PREFIX + es.metadata.uid


def with_states(mark: GeneratedMark, names: tuple[str, ...]) -> GeneratedMark:
    return msgspec.structs.replace(mark, states=names if len(names) <= _MAX_STATES else None)


def generated_by(es: ExternalSecret, annotations: Mapping[str, str]) -> GeneratedMark | None:
    """Return what a target says of values that this ExternalSecret generated; None if it says nothing valid."""
    written = annotations.get(generated_annotation(es))
    if written is None:
        return None
    try:
        return msgspec.json.decode(written, type=GeneratedMark)
    except msgspec.MsgspecError:
        return None


def marked(
    es: ExternalSecret, annotations: Mapping[str, str], mark: GeneratedMark | None, *, unchanged: bool
) -> dict[str, str]:
    """Return the annotation for the next write; empty if no value is generated.

    Values that the target holds already keep the annotation that was written with them, or have none.
    """
    if mark is None:
        return {}
    key = generated_annotation(es)
    if unchanged:
        return {key: annotations[key]} if key in annotations else {}
    return {key: msgspec.json.encode(mark).decode()}
