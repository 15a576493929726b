"""Labels, annotations and field managers on targets, equal to those of the Go operator. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.targets.hashes import owner_digest
from kubebase.meta import OwnerReference
from kuberun.ownership import controller_reference

MANAGED_LABEL: Final = "reconcile.external-secrets.io/managed"
MANAGED: Final = "true"
CREATED_BY_LABEL: Final = "reconcile.external-secrets.io/created-by"
HASH_ANNOTATION: Final = "reconcile.external-secrets.io/data-hash"
FINALIZER: Final = "externalsecrets.external-secrets.io/externalsecret-cleanup"

TARGET_INDEX: Final = "target"
"""The index of ExternalSecrets by namespace and name of the Secret that they write to."""

_RESOURCE: Final = EXTERNAL_SECRET.resource()
_MANAGER: Final = "externalsecrets.external-secrets.io"
_MAX_MANAGER_BYTES: Final = 63

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
